"""`explain`: which evidence decided a state, which did not, and why; for a session, or for a screen in a file.

A screen can be exported as a golden folder: screen, title, and expected result. In `kasmon/agents/NAME/VERSION` it is a
test; in a bug report it shows the problem. It contains the whole text of the screen.
"""

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import note, print_answer, print_json, say
from kasmon.cli.output.table import ending
from kasmon.config.parser import load_or_default
from kasmon.detection.terminal_screen import TerminalScreen, captured
from kasmon.errors import NotFoundError, RefusedError, UnavailableError, UsageError
from kasmon.host.rpc import event_loop
from kasmon.model.evidence import judge
from kasmon.model.session import Session
from kasmon.paths import Paths, user_paths
from kasmon.supervisor.fleet.lookup import find_here
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions.explain import ExplainedState
from kasmon.supervisor.sessions.explain import explain as explained
from kasmon.supervisor.sessions.explanation_text import EXPECTED, SCREEN, TITLE, as_object, lines, save

if TYPE_CHECKING:  # as in `supervisor/sessions/explain.py`
    from kasmon.detection.rules.catalog import RuleCatalog

LARGEST: Final = 1024 * 1024
"""A larger file is not accepted as a screen, in bytes."""
LOOK_FIRST: Final = "{folder!r} contains the whole screen: review it before you share it."


def explain(
    session: Annotated[str | None, Arg("Session id, exact name or id prefix.", completer="sessions")] = None,
    /,
    *,
    screen: Annotated[
        str | None, Arg("File with a captured screen, or a golden folder (`-`: stdin).", hyphen=True)
    ] = None,
    agent: Annotated[str | None, Arg("Agent that the screen belongs to.", completer="agents")] = None,
    title: Annotated[str | None, Arg("Window title of that screen.", hyphen=True)] = None,
    agent_version: Annotated[str, Arg("Agent version (default: the newest known).")] = "",
    export: Annotated[str | None, Arg("Write the screen and its result to this folder, as a golden folder.")] = None,
    report: Annotated[str | None, Arg("Write the session's screen to this new folder, without secrets.")] = None,
    wants_json: Json = False,
) -> None:
    """Explain why a session has its status."""
    if screen is None and session is None:
        raise UsageError(
            "`kasmon explain` requires a session or a screen.",
            hint="Run `kasmon explain SESSION` or `kasmon explain --screen FILE --agent AGENT`.",
        )
    if screen is None and session is not None:
        if agent is not None or title is not None or agent_version:
            raise UsageError("--agent, --title and --agent-version require --screen.")
        explain_session(session, export=export, report=report, wants_json=wants_json)
    elif agent is None or session is not None or screen is None or report is not None:
        raise UsageError(
            "--screen requires --agent, and cannot be combined with a session or --report.",
            hint="Run `kasmon explain --screen FILE --agent AGENT`.",
        )
    else:
        explain_screen(screen, agent, title=title, version=agent_version, export=export, wants_json=wants_json)


def explain_session(
    wanted: str, *, export: str | None = None, report: str | None = None, wants_json: bool = False
) -> None:
    """Print why a session is in its state, and write its screen to the folder *export*.

    Raises:
        NotFoundError: if there is no such session.
        UnavailableError: if it is to be exported, and its screen cannot be read.
        RefusedError: if *export* already holds a golden folder.
    """
    where = user_paths()
    session = find_here(read_fleet(where), wanted)
    found = event_loop.run(explained(where, session, partial(catalogue, where)))
    if export is not None:
        if found.shot is None:
            raise UnavailableError(f"cannot export a screen of {session.name!r}: {found.unseen}.")
        of_session = {"agent": session.agent, "session": session.id}
        _export(export, found.text, found.shot, found, {**of_session, **as_object(found)})
    if report is not None:
        _report(report, session, found)
    if wants_json:
        print_json(session=session.id, explanation=as_object(found))
    else:
        first, *others = lines(found)
        if session.crashed:
            first = f"{session.state} ({ending(session)}){first.removeprefix(session.state)}"
        say(f"{session.label} ({session.id}): {first}", *others)


def explain_screen(
    screen: str,
    agent: str,
    *,
    title: str | None = None,
    version: str = "",
    export: str | None = None,
    wants_json: bool = False,
) -> None:
    """Print the state of an *agent* by the screen in the file *screen*; `-` is stdin.

    A golden folder, or a `screen.txt` in one, has its own title and cursor. Without a cursor, the end of the last row
    is used.

    Raises:
        UsageError: if the file is unusable, or there are no rules for *agent*.
        RefusedError: if *export* already holds a golden folder.
    """
    from kasmon.detection.reader import read, signals

    where = user_paths()
    text, shot = read_shot(screen, title)
    now = time.time()
    chosen = catalogue(where).rules(program_of(where, agent), version)
    if chosen is None:
        known = ", ".join(catalogue(where).programs)
        raise UsageError(f"there are no screen rules for {agent!r}.", hint=f"Known: {known}.")
    reading = read(shot, chosen.rules, now, wants_all=True)
    evidence = signals(reading, now)
    found = ExplainedState(verdict=judge(evidence, now), signals=evidence, reading=reading, note=chosen.note)
    if export is not None:
        _export(export, text, shot, found)
    print_answer(*lines(found), wants_json=wants_json, explanation=as_object(found))


def catalogue(where: Paths, program: str = "") -> "RuleCatalog":
    """Return the screen rules, the user's own before the built-in ones; print problems of the user's on stderr.

    With *program*, of the built-in ones only its own.
    """
    from kasmon.agents.catalog import catalog
    from kasmon.detection.rules.catalog import RuleCatalog

    found = RuleCatalog([where.config / "screens"], program, catalog(where))
    for problem in found.problems:
        note(str(problem))
    return found


def program_of(where: Paths, agent: str) -> str:
    """Return the program that the profile *agent* starts, as rule files name it."""
    profile = load_or_default(where).agents.get(agent)
    return Path(profile.program).name if profile is not None and profile.program else agent


def _export(
    folder: str, text: str, shot: TerminalScreen, explained: ExplainedState, evidence: dict[str, Any] | None = None
) -> None:
    save(Path(folder), text, shot, explained, evidence)
    note(LOOK_FIRST.format(folder=folder))


def _report(folder: str, session: Session, explained: ExplainedState) -> None:
    """Write the screen of *session* to the new *folder*: what a wrong or unsure state is reported with.

    Raises:
        UnavailableError: if its screen cannot be read, or not be written.
        RefusedError: if *folder* exists.
    """
    from kasmon.cli.agents.redacted_screen import write_screen

    if explained.shot is None:
        raise UnavailableError(f"cannot report the screen of {session.name!r}: {explained.unseen}.")
    if Path(folder).exists():
        raise RefusedError(f"{folder!r} already exists.", hint="Name another folder.")
    reading = {"rule": explained.reading.rule} if explained.reading and explained.reading.rule else {}
    write_screen(Path(folder), explained.text, explained.shot, {"state": explained.verdict.state.value, **reading})
    note(
        f"reported in {folder!r}: review it before you share it. `kasmon agents record {session.agent} {folder} CASE "
        "--state STATE` makes it a recorded screen, with the state that is right."
    )


def read_shot(screen: str, title: str | None) -> tuple[str, TerminalScreen]:
    """Return the text of the file or the folder *screen*, and the screen that it shows, with *title* if given."""
    path = Path(screen)
    folder = path if path.is_dir() else path.parent if path.name == SCREEN else None
    text = _read(screen if path != folder else str(path / SCREEN))
    facts: dict[str, Any] = {}
    if folder is not None:
        title = title if title is not None else _beside(folder / TITLE).strip()
        facts = _facts(folder / EXPECTED)
    return text, captured(text, title or "", **facts)


def _read(screen: str) -> str:
    try:
        if screen == "-":
            content = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(screen).open("rb") as file:
                content = file.read(LARGEST + 1)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no file {screen!r}.", hint="Create one with `tmux capture-pane -e -p`."
        ) from error
    except OSError as error:
        raise UsageError(f"{screen!r} cannot be read: {error.strerror or error}.") from error
    if len(content) > LARGEST:
        raise UsageError(f"{screen!r} is larger than {LARGEST // 1024} KB, so it is not a screen.")
    return content.decode("utf-8", "replace")


def _beside(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _facts(path: Path) -> dict[str, Any]:
    """Return a golden folder's details of its terminal; empty if they are unusable."""
    import tomllib

    try:
        shot = tomllib.loads(_beside(path)).get("shot", {})
        return msgspec.structs.asdict(msgspec.convert(shot, _Facts))
    except (ValueError, RecursionError, AttributeError):  # the errors of msgspec and tomllib are ValueErrors
        return {}


class _Facts(msgspec.Struct):
    cursor: tuple[int, int] | None = None
    cursor_visible: bool = True
    alternate: bool = False
    columns: int = 0
