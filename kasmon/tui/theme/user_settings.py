"""Apply the user's settings to the dashboard: keys and theme; invalid ones are reported."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from textual.theme import Theme

from kasmon.config.parser import line_of
from kasmon.errors import ConfigError
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.gateway.theme_library import ThemeLibrary
from kasmon.tui.keymap import ROWS, KeyMap, chosen
from kasmon.tui.notifications.controller import NotificationController
from kasmon.tui.session_pane import PaneDashboard
from kasmon.tui.terminal.key_encoding import leave_keys
from kasmon.tui.theme.theme import DEFAULT, LIGHT, PLAIN, SIXTEEN, ThemeFile, terminal_theme, textual_theme


class SettingsDashboard(PaneDashboard, Protocol):
    settings: DashboardSettings
    keys: KeyMap
    theme: str
    ansi_theme_dark: TerminalTheme
    ansi_theme_light: TerminalTheme

    @property
    def themes(self) -> ThemeLibrary: ...
    @property
    def no_color(self) -> bool: ...
    @property
    def console(self) -> Console: ...
    @property
    def is_running(self) -> bool: ...
    @property
    def notifications(self) -> NotificationController: ...
    def register_theme(self, theme: Theme, /) -> None: ...
    def refresh_css(self, animate: bool) -> None: ...


class UserSettings:
    """Applies the user's settings to the app's look and keys."""

    def __init__(self, app: SettingsDashboard) -> None:
        self.app = app
        self.is_light = False
        """Whether the terminal's background is light, as far as it has said."""

    def use_background(self, is_light: bool) -> None:
        """Show the theme for a light or a dark terminal from now on."""
        if is_light is not self.is_light:
            self.is_light = is_light
            self._choose_theme(self.app.settings, "")

    def adopt(self, settings: DashboardSettings) -> None:
        """Apply the valid parts of *settings*; the rest stays unchanged."""
        app = self.app
        app.settings = settings
        app.notifications.alerts.reasons.finished_after_s = settings.finished_after_s
        try:
            app.keys = chosen(settings.keys, settings.config_path or "config", settings.config_text)
            app.session_pane.leave_keys = leave_keys(app.keys.chosen.get("leave_focus", ROWS["leave_focus"].keys))
        except ConfigError as error:
            self._report_problem(str(error))
        except ValueError as error:
            self._complain(str(error), ("keys", "leave_focus"))
        app.themes.put(settings.theme_files)
        for problem in app.themes.problems:
            self._report_problem(problem)
        self._choose_theme(settings, app.theme)
        if app.is_running:
            app.offer_keys()
            app.permissions.show_notice()  # whether a card opens by itself may have changed

    def _choose_theme(self, settings: DashboardSettings, instead: str) -> None:
        """Show the theme of *settings*; if it does not exist, report that and show *instead*, or the default."""
        app = self.app
        chosen_key, name = "theme", settings.theme
        if self.is_light and settings.light_theme:
            chosen_key, name = "light_theme", settings.light_theme
        usual = LIGHT if self.is_light else DEFAULT
        wanted = PLAIN if app.no_color else SIXTEEN if self._colours == "standard" else name or usual
        if app.themes.get(wanted) is None:
            self._complain(f"no such theme: {wanted!r}", ("ui", chosen_key), [name for name, _ in app.themes.all()])
            wanted = instead if instead in dict(app.themes.all()) else usual
        self.show_theme(wanted)

    def _complain(self, why: str, key: tuple[str, str], allowed: Sequence[str] = ()) -> None:
        """Report an error in a setting that only the dashboard can validate."""
        file, line = self.app.settings.config_path or "config", line_of(self.app.settings.config_text, key)
        self._report_problem(str(ConfigError(file, why, line=line, key=".".join(key), allowed=allowed)))

    def _report_problem(self, problem: str) -> None:
        if self.app.is_running:
            self.app.say(problem, severity="error")
        else:
            self.app.call_later(partial(self.app.say, problem, severity="error"))

    def show_theme(self, name: str) -> None:
        """Draw everything with this theme from now on; does nothing if it is shown already."""
        app = self.app
        theme = self.theme_file(name)
        if app.theme == name and app.look.theme == theme:
            return
        app.register_theme(textual_theme(name, theme))
        app.look.use(theme)
        app.ansi_theme_dark = app.ansi_theme_light = terminal_theme(theme)
        if app.theme == name:
            app.refresh_css(animate=False)
        else:
            app.theme = name
        app.main_view.table.redraw()
        app.session_pane.redraw()
        for screen in app.screen_stack if app.is_running else ():
            for widget in screen.query("*"):
                widget.refresh()

    def theme_file(self, name: str) -> ThemeFile:
        """Return the theme of this name, or the default if there is none."""
        theme = self.app.themes.get(name) or self.app.themes.get(DEFAULT)
        assert theme is not None
        if self._colours != "256":
            return theme
        from kasmon.tui.theme.few_colours import reduce_colours  # imported late

        return reduce_colours(theme)

    @property
    def _colours(self) -> str | None:
        """The terminal's colours, as Rich names them: `standard` (16), `256`, `truecolor`, or None."""
        return self.app.console.color_system
