"""What stands in the list while there is nothing in it: why, and what to do about it. Pure."""

from collections.abc import Sequence

from kasmon.clean import clean_line
from kasmon.tui.keys import Keys
from kasmon.tui.look import Span

FROM_A_SHELL = (
    ("kasmon new fix-auth --agent claude", "starts one from a shell"),
    ("kasmon demo", "shows a fleet at work; its agents only act"),
)


def nothing_lines(narrowed_to: str, keys: Keys, utf8: bool) -> Sequence[Sequence[Span]]:
    """The lines of an empty list; *narrowed_to* is the filter's text that nothing fits."""
    if narrowed_to:
        return (
            ((f"No session fits {clean_line(narrowed_to)!r}.", "soft"),),
            _do(keys.shown("show_all", utf8), "shows all"),
        )
    return (
        (("No sessions yet.", "text.bold"),),
        (),
        _do(keys.shown("new", utf8), "starts one"),
        _do(keys.shown("help", utf8), "shows what every key does"),
        (),
        *(((command, "says-code"), (f"   {what}", "soft")) for command, what in FROM_A_SHELL),
    )


def _do(key: str, what: str) -> Sequence[Span]:
    return ((key, "accent.bold"), (f"  {what}", "soft"))
