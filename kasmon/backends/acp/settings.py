"""What an agent lets a client choose: its model and its mode, in the three ways that the protocol has had. Pure.

| how it is offered | how it is set |
|---|---|
| `configOptions` of the category `model` or `mode` | `session/set_config_option` |
| `modes` | `session/set_mode` |
| `models`, which the SDK's schema no longer has (gemini 0.61) | `session/set_model` |
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from acp.schema import (
    LoadSessionResponse,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectGroup,
)
from pydantic import ValidationError

from kasmon.backends.common.json_access import rows, text
from kasmon.model.events import SettingsChanged

Setting = Literal["model", "mode"]
NAMES_BYTES: Final = 64 * 1024
"""Maximum size of a list of models or modes in one event."""


class SettingOption(NamedTuple):
    """One setting: its current value and the available ones."""

    current: str
    values: tuple[str, ...]
    option: str = ""
    """The id of its config option; empty if it has a method of its own."""


class AcpSettings(NamedTuple):
    """The chosen and available settings; None is not offered."""

    model: SettingOption | None = None
    mode: SettingOption | None = None

    def offer(self, setting: Setting) -> SettingOption | None:
        """Return what can be chosen for *setting*; None if the agent offers nothing."""
        return self.model if setting == "model" else self.mode

    def chosen(self, setting: Setting, value: str) -> "AcpSettings":
        offer = self.offer(setting)
        if offer is None:
            return self
        offer = offer._replace(current=value)
        return self._replace(model=offer) if setting == "model" else self._replace(mode=offer)

    def diff_from(self, before: "AcpSettings | None" = None) -> SettingsChanged | None:
        """Return the difference from *before*, as an event without its time; None if there is none."""
        model, mode = self.model or SettingOption("", ()), self.mode or SettingOption("", ())
        old_model, old_mode = (
            (before and before.model) or SettingOption("", ()),
            (before and before.mode) or SettingOption("", ()),
        )
        if (model, mode) == (old_model, old_mode):
            return None
        return SettingsChanged(
            at=0.0,
            model=model.current if model.current != old_model.current else "",
            models=_few(model.values) if model.values != old_model.values else (),
            permission_mode=mode.current if mode.current != old_mode.current else "",
            permission_modes=_few(mode.values) if mode.values != old_mode.values else (),
        )


def parse_offered(answer: Mapping[str, Any]) -> AcpSettings:
    """Return what an answer to `session/new`, `session/load` or `session/resume` offers."""
    try:
        told = LoadSessionResponse.model_validate(answer)
    except ValidationError:
        return AcpSettings(model=_models(answer.get("models")))
    settings = of_options(told.config_options or ())
    mode = settings.mode
    if mode is None and told.modes is not None:
        mode = SettingOption(told.modes.current_mode_id, tuple(mode.id for mode in told.modes.available_modes))
    return AcpSettings(model=settings.model or _models(answer.get("models")), mode=mode)


def of_options(options: Sequence[SessionConfigOptionSelect | SessionConfigOptionBoolean]) -> AcpSettings:
    """Return what a list of config options offers."""
    offers: dict[str, SettingOption] = {}
    for option in options:
        if isinstance(option, SessionConfigOptionSelect) and option.category in ("model", "mode"):
            offers.setdefault(str(option.category), SettingOption(option.current_value, _values(option), option.id))
    return AcpSettings(model=offers.get("model"), mode=offers.get("mode"))


def of_answer(answer: Mapping[str, Any], now: AcpSettings) -> AcpSettings:
    """Return the settings in the answer to a change; *now* for those it omits."""
    settings = parse_offered({"configOptions": answer.get("configOptions")})
    return AcpSettings(settings.model or now.model, settings.mode or now.mode)


def to_set(setting: Setting, offer: SettingOption, value: str, session: str) -> tuple[str, dict[str, Any]]:
    """Return the method that sets *value*, and its parameters."""
    if offer.option:
        return "session/set_config_option", {"sessionId": session, "configId": offer.option, "value": value}
    return f"session/set_{setting}", {"sessionId": session, f"{setting}Id": value}


def _values(option: SessionConfigOptionSelect) -> tuple[str, ...]:
    values: list[str] = []
    for entry in option.options:
        inner = entry.options if isinstance(entry, SessionConfigSelectGroup) else [entry]
        values += [one.value for one in inner]
    return tuple(values)


def _models(models: Any) -> SettingOption | None:
    """Parse gemini's `{"availableModels": [{"modelId": ...}], "currentModelId": ...}`."""
    if not (current := text(models, "currentModelId")):
        return None
    names = tuple(text(model, "modelId") for model in rows(models, "availableModels"))
    return SettingOption(current, tuple(filter(None, names)))


def _few(names: Sequence[str]) -> tuple[str, ...]:
    told, left = [], NAMES_BYTES
    for name in names:
        left -= len(name.encode("utf-8", "replace")) + 3
        if left < 0:
            break
        told.append(name)
    return tuple(told)
