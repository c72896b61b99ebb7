"""The text of the empty list: what kasmon is, which agents are installed, what to do next. Pure."""

import re
from collections.abc import Sequence

from kasmon.config.profile import ProfileOffer
from kasmon.model.commands import Mode
from kasmon.sanitize import clean_line
from kasmon.tui.keymap import KeyMap
from kasmon.tui.theme.look import StyledSpan, width_of

SIMULATED = "scripted"
"""The simulated agent: it does not count as installed."""
ANY = "shell"
APART = "   "
"""What separates two columns."""
FROM_A_SHELL = (
    ("kasmon new fix-auth --agent {agent}", "start a session from a shell"),
    ("kasmon doctor", "check what works on this machine"),
    ("kasmon demo", "try it with simulated agents"),
)


def nothing_lines(
    narrowed_to: str, keys: KeyMap, utf8: bool, offers: Sequence[ProfileOffer] | None = None
) -> Sequence[Sequence[StyledSpan]]:
    """Return the lines of an empty list.

    Args:
        narrowed_to: the filter's text that no session matches; empty where there is no session at all.
        utf8: whether the terminal can show more than ASCII.
        offers: the agents that can be started here; None while unknown.
    """
    if narrowed_to:
        return (
            ((f"No session matches {clean_line(narrowed_to)!r}.", "soft"),),
            _key_line(keys.shown("show_all", utf8), "clear filter"),
        )
    installed, missing = _agent_names(offers, works=True), _agent_names(offers, works=False)
    return (
        (("No sessions yet.", "text.bold"), (" Sessions that need you are listed first.", "soft")),
        (),
        *_installed_lines(offers, installed, missing),
        _key_line(
            keys.shown("new", utf8), f"new session ({installed[0]} or another agent)" if installed else "new session"
        ),
        _key_line(keys.shown("adopt", utf8), "adopt a running tmux pane"),
        _key_line(keys.shown("help", utf8), "help"),
        (),
        *_from_a_shell(installed[0] if installed else ANY),
    )


def fit_lines(lines: Sequence[Sequence[StyledSpan]], rows: int, width: int) -> Sequence[Sequence[StyledSpan]]:
    """Return *lines* wrapped to *width*; without the empty ones where they do not fit into *rows* with them."""
    whole = [row for line in lines for row in _wrap(line, width)]
    return whole if len(whole) <= rows else tuple(row for row in whole if row)


def _wrap(line: Sequence[StyledSpan], width: int) -> Sequence[Sequence[StyledSpan]]:
    """Wrap *line* at words to at most *width* cells; of two columns the second goes below."""
    if not line or width_of(line) <= width:
        return [line]
    if line[-1][0].startswith(APART):
        (command, code), (what, role) = line
        return [((command.rstrip(), code),), ((f"  {what.strip()}", role),)]
    rows: list[list[StyledSpan]] = [[]]
    for text, role in line:
        for word in re.findall(r"\s*\S+|\s+", text):
            if rows[-1] and width_of([*rows[-1], (word, role)]) > width:
                rows.append([])
            rows[-1].append((word if rows[-1] else word.lstrip(), role))
    return rows


def _installed_lines(
    offers: Sequence[ProfileOffer] | None, installed: Sequence[str], missing: Sequence[str]
) -> Sequence[Sequence[StyledSpan]]:
    if offers is None:
        return ()
    if not installed:
        return (*_without_agents(missing), ())
    found: Sequence[StyledSpan] = (("installed      ", "soft"), (", ".join(installed), "text"))
    if not missing:
        return (found, ())
    return (found, (("not installed  ", "soft"), (", ".join(missing), "soft")), ())


def _without_agents(missing: Sequence[str]) -> Sequence[Sequence[StyledSpan]]:
    none: Sequence[StyledSpan] = (("No coding agent is installed; any program can run here.", "warn"),)
    if not missing:
        return (none,)
    missing_line: Sequence[StyledSpan] = (("not installed  ", "soft"), (", ".join(missing), "text"))
    remedy: Sequence[StyledSpan] = (("Install one, or set ", "soft"), (f"[agents.{missing[0]}] program", "says-code"))
    return (none, missing_line, (*remedy, (" in the config.", "soft")))


def _from_a_shell(agent: str) -> Sequence[Sequence[StyledSpan]]:
    commands = [(command.format(agent=agent), what) for command, what in FROM_A_SHELL]
    widest = max(len(command) for command, _ in commands)
    return [((f"{command:<{widest}}", "says-code"), (f"{APART}{what}", "soft")) for command, what in commands]


def _agent_names(offers: Sequence[ProfileOffer] | None, *, works: bool) -> list[str]:
    """Names of the agents that can be started here, or that cannot; a sandbox's interpreters do not count."""
    return [
        clean_line(offer.name)
        for offer in offers or ()
        if bool(offer.modes) is works and offer.name not in (SIMULATED, ANY) and Mode.INTERPRETER not in offer.modes
    ]


def _key_line(key: str, what: str) -> Sequence[StyledSpan]:
    return ((key, "accent.bold"), (f"  {what}", "soft"))
