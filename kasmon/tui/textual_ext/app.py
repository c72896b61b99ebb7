"""Textual's app with our line filters, and with a crash report without values."""

from textual.app import App
from textual.filter import LineFilter, Monochrome

from kasmon.tui.textual_ext.line_filters import AsciiFilter, ControlCharacterFilter, MonochromeFilter, log_crash


class SafeApp(App[None], inherit_bindings=False):
    """Draws no control character; a crash shows and logs places only."""

    crash = ""
    """What is printed once the terminal is restored; empty unless the dashboard crashed."""

    def set_filters(self, *, utf8: bool) -> None:
        """Pass every drawn line through our filters; without *utf8*, symbols become ASCII characters."""
        filters: list[LineFilter] = [each for each in self._filters if not isinstance(each, Monochrome)]
        filters += [ControlCharacterFilter(), *([MonochromeFilter()] if self.no_color else [])]
        self._filters = [*filters, *([] if utf8 else [AsciiFilter()])]

    def _handle_exception(self, error: Exception) -> None:
        """Log only places and set `crash`: Textual's own report would print the values of variables."""
        self._return_code = 1
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
        log_crash(error)
        name = type(error).__name__
        self.crash = self.crash or f"the dashboard crashed ({name}); the agents keep running. Run `kasmon` again."
        self.panic()
