"""The settings: of the dashboard (a theme with a live preview, the config), and of a running agent (its model)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from textual.containers import Vertical
from textual.strip import Strip
from textual.widget import Widget

from kasmon.model.commands import Configure
from kasmon.model.session import Session
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.fields import ChoiceField, DialogField
from kasmon.tui.keymap import KeyMap
from kasmon.tui.session_meter import filled_lines, settable
from kasmon.tui.theme.look import StyledSpan, ThemeStyles, width_of
from kasmon.tui.theme.theme import ThemeFile
from kasmon.tui.widgets.reader import Sentences
from kasmon.tui.widgets.row_list import RowList

SAMPLE = ("asking", "working", "idle", "lost")
ROOMY = 50
"""With fewer cells a theme is shown by its title alone."""


OFF_AND_ON: Final = ("off", "on")
LIGHT_KEY: Final = "ui.light_theme"
IN_LIGHT: Final = "This terminal is light: the theme that you apply is used in light terminals only."


class SettingsDialog(Dialog):
    """Up and down preview a theme, Enter applies it, Esc restores the old one."""

    title_text = "Settings"

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
        themes: Sequence[tuple[str, ThemeFile]],
        chosen: str,
        key: str,
        show: Callable[[str], None],
        config_path: str,
        problems: Sequence[str],
    ) -> None:
        super().__init__(look, keys)
        self.before, self.key, self.preview = chosen, key, show
        self.config_path, self.problems = config_path, tuple(problems)
        index = next((at for at, (name, _) in enumerate(themes) if name == chosen), 0)
        self.themes = RowList(look, self._draw, themes, index, most_rows=len(themes), id="themes")

    def inside(self) -> Iterable[Widget]:
        yield self.themes
        lines = [("", Token.TEXT), (f"Config: {clean_line(self.config_path) or 'none'}", Token.TEXT)]
        lines += [(IN_LIGHT, Token.TEXT)] if self.key == LIGHT_KEY else []
        lines += [("Changes to this file apply immediately. Put custom themes in themes/ next to it.", Token.FAINT)]
        lines += [(clean_line(problem), Token.ERROR) for problem in self.problems]
        yield Sentences(self.look, *lines, id="config")

    def on_mount(self) -> None:
        self.offer(("up down", "preview"), ("enter", "apply"), ("esc", "revert"))
        self.begin(self.themes)

    def _draw(self, named: tuple[str, ThemeFile], is_selected: bool, width: int) -> Strip:
        name, theme = named
        own = ThemeStyles(theme, utf8=self.look.utf8)
        title = f" {clean_line(theme.title)}"
        apart = "  " if width >= ROOMY else " "
        shapes: list[StyledSpan] = [(f" {own.state_glyph(state)}{apart}", f"state-{state}") for state in SAMPLE]
        sample = own.strip(shapes, width_of(shapes))
        left: list[StyledSpan] = [
            (self.look.mark("cursor") if is_selected else " ", "accent"),
            (title, "text.bold" if is_selected else "text"),
            (f"  {clean_line(name)}" if width >= ROOMY else "", "faint"),
        ]
        strip = self.look.strip(left, width - width_of(shapes), "selected" if is_selected else "raised")
        return Strip.join([strip, sample])

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        self.preview(self.themes.values[self.themes.index][0])

    def submit(self) -> None:
        name, _ = self.themes.values[self.themes.index]
        self.run_operation(lambda operations: operations.save_theme(name, self.key))

    def action_leave(self) -> None:
        self.preview(self.before)
        self.dismiss()


class ModelDialog(Dialog):
    """Model, permission mode and options that are on or off, as far as the agent can change them."""

    def __init__(self, look: ThemeStyles, keys: KeyMap, session: Session) -> None:
        super().__init__(look, keys)
        self.session = session
        self.title_text = f"Model and permissions: {clean_line(session.label)}"
        can = settable(session)
        self.models = _with_current(session.model, session.models) if "model" in can else ()
        self.modes = (
            _with_current(session.permission_mode, session.permission_modes) if "permission_mode" in can else ()
        )
        self.switches = [(each, ChoiceField(look, OFF_AND_ON, int(each.is_on))) for each in session.switches]
        self.model, self.mode = (
            _choice(look, self.models, session.model),
            _choice(look, self.modes, session.permission_mode),
        )

    def inside(self) -> Iterable[Widget]:
        if self.models:
            yield DialogField("Model", self.model)
        if self.modes:
            yield DialogField("Permissions", self.mode)
        for switch, choice in self.switches:
            about = [(clean_line(text), Token.FAINT) for text in (switch.title or switch.id, switch.text) if text]
            yield DialogField("Option", Vertical(choice, Sentences(self.look, *about)))
        yield Sentences(self.look, *((line, Token.FAINT) for line in filled_lines(self.session)), id="filled-by")

    def on_mount(self) -> None:
        self.offer(("left right", "choose"), ("enter", "change"), ("tab", "next field"), ("esc", "close"))
        fields = [*([self.model] if self.models else []), *([self.mode] if self.modes else [])]
        self.begin([*fields, *(choice for _, choice in self.switches)][0])

    def submit(self) -> None:
        model = self.models[self.model.chosen] if self.models else ""
        mode = self.modes[self.mode.chosen] if self.modes else ""
        changes = Configure(
            model=model if model != self.session.model else None,
            permission_mode=mode if mode != self.session.permission_mode else None,
            switches={
                switch.id: bool(choice.chosen) for switch, choice in self.switches if switch.is_on != choice.chosen
            },
        )
        if changes == Configure():
            self.dismiss()
        else:
            self.run_operation(lambda operations: operations.configure(self.session.id, changes))


def _with_current(now: str, offers: tuple[str, ...]) -> tuple[str, ...]:
    """The choices, including the current one, which an agent need not offer."""
    return offers if now in offers else (now, *offers)


def _choice(look: ThemeStyles, offers: tuple[str, ...], now: str) -> ChoiceField:
    names = [clean_line(offer) or "agent default" for offer in offers]
    return ChoiceField(look, names, offers.index(now) if now in offers else 0)
