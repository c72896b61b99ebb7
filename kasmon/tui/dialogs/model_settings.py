"""The dialog that changes a running agent's model and permission mode."""

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from kasmon.model.commands import Configure
from kasmon.model.session import Session
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.base import ChoiceField, Dialog, DialogField
from kasmon.tui.keymap import KeyMap
from kasmon.tui.session_meter import settable
from kasmon.tui.theme.look import ThemeStyles


class ModelDialog(Dialog):
    """Model and permission mode, as far as the agent can change them."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "change", "change", show=False)]

    def __init__(self, look: ThemeStyles, keys: KeyMap, session: Session) -> None:
        super().__init__(look, keys)
        self.session = session
        self.title_text = f"Model and permissions: {clean_line(session.name)}"
        can = settable(session)
        self.models = _with_current(session.model, session.models) if "model" in can else ()
        self.modes = (
            _with_current(session.permission_mode, session.permission_modes) if "permission_mode" in can else ()
        )
        self.model, self.mode = (
            _choice(look, self.models, session.model),
            _choice(look, self.modes, session.permission_mode),
        )

    def inside(self) -> Iterable[Widget]:
        if self.models:
            yield DialogField("Model", self.model)
        if self.modes:
            yield DialogField("Permissions", self.mode)

    def on_mount(self) -> None:
        self.offer(("left right", "choose"), ("enter", "change"), ("tab", "next field"), ("esc", "close"))
        self.begin(self.model if self.models else self.mode)

    def action_change(self) -> None:
        model = self.models[self.model.chosen] if self.models else ""
        mode = self.modes[self.mode.chosen] if self.modes else ""
        changes = Configure(
            model=model if model != self.session.model else None,
            permission_mode=mode if mode != self.session.permission_mode else None,
        )
        if changes.model is None and changes.permission_mode is None:
            self.dismiss()
        else:
            self.run_operation(lambda operations: operations.configure(self.session.id, changes))


def _with_current(now: str, offers: tuple[str, ...]) -> tuple[str, ...]:
    """The choices, including the current one, which an agent need not offer."""
    return offers if now in offers else (now, *offers)


def _choice(look: ThemeStyles, offers: tuple[str, ...], now: str) -> ChoiceField:
    names = [clean_line(offer) or "agent default" for offer in offers]
    return ChoiceField(look, names, offers.index(now) if now in offers else 0)
