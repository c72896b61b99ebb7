"""What an agent lets a client choose: its model and its mode, in the three ways that the protocol has had, and its
options that are on or off. Pure.

| how it is offered | how it is set |
|---|---|
| `configOptions` of the category `model` or `mode`, and those of the type `boolean` | `session/set_config_option` |
| `modes` | `session/set_mode` |
| `models`, which the SDK's schema no longer has (gemini 0.61) | `session/set_model` |
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from acp.schema import (
    LoadSessionResponse,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectGroup,
)
from pydantic import ValidationError

from kasmon.backends.common.json_access import rows, text
from kasmon.model.events import AgentSwitch, SettingsChanged
from kasmon.sanitize import clean_line

Setting = Literal["model", "mode"]
MOST_SWITCHES: Final = 20
LONGEST_TEXT: Final = 200
"""Most characters of a switch's title, and of what it does."""
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
    switches: tuple[AgentSwitch, ...] = ()
    """The options that are on or off."""

    def offer(self, setting: Setting) -> SettingOption | None:
        """Return what can be chosen for *setting*; None if the agent offers nothing."""
        return self.model if setting == "model" else self.mode

    def chosen(self, setting: Setting, value: str) -> "AcpSettings":
        offer = self.offer(setting)
        if offer is None:
            return self
        offer = offer._replace(current=value)
        return self._replace(model=offer) if setting == "model" else self._replace(mode=offer)

    def switched(self, id_: str, *, is_on: bool) -> "AcpSettings":
        switches = (msgspec.structs.replace(each, is_on=is_on) if each.id == id_ else each for each in self.switches)
        return self._replace(switches=tuple(switches))

    def diff_from(self, before: "AcpSettings", at: float) -> SettingsChanged | None:
        """Return the difference from *before*; None if there is none."""
        none = SettingOption("", ())
        model, mode, old_model, old_mode = (one or none for one in (self.model, self.mode, before.model, before.mode))
        if (model, mode, self.switches) == (old_model, old_mode, before.switches):
            return None
        return SettingsChanged(
            at=at,
            model=model.current if model.current != old_model.current else "",
            models=_few(model.values) if model.values != old_model.values else (),
            permission_mode=mode.current if mode.current != old_mode.current else "",
            permission_modes=_few(mode.values) if mode.values != old_mode.values else (),
            switches=self.switches if self.switches != before.switches else None,
        )


def parse_offered(answer: Mapping[str, Any]) -> AcpSettings:
    """Return what an answer to `session/new`, `session/load` or `session/resume` offers."""
    try:
        response = LoadSessionResponse.model_validate(answer)
    except ValidationError:
        return AcpSettings(model=_models(answer.get("models")))
    settings = of_options(response.config_options or ())
    mode = settings.mode
    if mode is None and response.modes is not None:
        mode = SettingOption(response.modes.current_mode_id, tuple(mode.id for mode in response.modes.available_modes))
    return settings._replace(model=settings.model or _models(answer.get("models")), mode=mode)


def of_options(options: Sequence[SessionConfigOptionSelect | SessionConfigOptionBoolean]) -> AcpSettings:
    """Return what a list of config options offers."""
    offers: dict[str, SettingOption] = {}
    switches: list[AgentSwitch] = []
    for option in options:
        if isinstance(option, SessionConfigOptionBoolean):
            switches.append(_switch(option))
        elif option.category in ("model", "mode"):
            offers.setdefault(str(option.category), SettingOption(option.current_value, _values(option), option.id))
    return AcpSettings(model=offers.get("model"), mode=offers.get("mode"), switches=tuple(switches[:MOST_SWITCHES]))


def of_answer(answer: Mapping[str, Any], now: AcpSettings) -> AcpSettings:
    """Return the settings in the answer to a change; *now* for those it omits."""
    options = answer.get("configOptions")
    settings = parse_offered({"configOptions": options})
    switches = settings.switches if isinstance(options, list) else now.switches
    return AcpSettings(settings.model or now.model, settings.mode or now.mode, switches)


def to_set(setting: Setting, offer: SettingOption, value: str, session: str) -> tuple[str, dict[str, Any]]:
    """Return the method that sets *value*, and its parameters."""
    if offer.option:
        return "session/set_config_option", {"sessionId": session, "configId": offer.option, "value": value}
    return f"session/set_{setting}", {"sessionId": session, f"{setting}Id": value}


def to_switch(switch: AgentSwitch, is_on: bool, session: str) -> tuple[str, dict[str, Any]]:
    """Return the method that turns *switch* on or off, and its parameters."""
    params = {"sessionId": session, "configId": switch.id, "type": "boolean", "value": is_on}
    return "session/set_config_option", params


def _switch(option: SessionConfigOptionBoolean) -> AgentSwitch:
    title, text = (clean_line(each or "")[:LONGEST_TEXT] for each in (option.name, option.description))
    return AgentSwitch(id=option.id, title=title, text=text, is_on=option.current_value)


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
    result, left = [], NAMES_BYTES
    for name in names:
        left -= len(name.encode("utf-8", "replace")) + 3
        if left < 0:
            break
        result.append(name)
    return tuple(result)
