"""The sessions that a command acts on: names, names from stdin, or a filter; all of them side by side."""

import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec

from kasmon.cli.arguments import NAMED, Arg
from kasmon.cli.ls import chosen, states_in
from kasmon.cli.output.console import confirm, note, print_json, say
from kasmon.cli.output.json_objects import error_object, session_object
from kasmon.errors import KasmonError, RefusedError, UsageError
from kasmon.host.rpc import event_loop
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.sanitize import clean_line
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.snapshot import read_fleet

Item = TypeVar("Item")
Result = TypeVar("Result")
SIDE_BY_SIDE: Final = 32

SEVERAL: Final = f"{NAMED} Several may be named; `-` reads names from stdin, one a line."
Sessions = Annotated[str, Arg(SEVERAL, ("SESSION",), "sessions", hyphen=True)]
InStates = Annotated[str | None, Arg("All sessions in these states, separated by commas.", ("--state",))]
Sandboxes = Annotated[str, Arg(SEVERAL, ("SESSION",), "sandboxes", hyphen=True)]
WithTags = Annotated[
    str | None, Arg("All sessions with one of these tags, separated by commas.", ("--tag",), completer="tags")
]
OfPlan = Annotated[str | None, Arg("All sessions of this plan.", ("--plan",), completer="plans")]
Everything = Annotated[bool, Arg("All sessions that the command can act on.", ("--all",))]
Yes = Annotated[bool, Arg("Act on several without confirmation.", ("--yes",))]

Act = Callable[[Paths, Session], Coroutine[Any, Any, object]]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one session, where a text does not say all."""

    fields: dict[str, Any] = {}
    """Added to its JSON."""
    text: str = ""
    """Printed instead of what was done."""
    notice: str = ""
    """A line on stderr."""
    code: int = 0


class SessionSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions are meant: those with *names*, or those that match all other fields."""

    names: tuple[str, ...] = ()
    states: str | None = None
    tags: str | None = None
    plan: str | None = None
    everything: bool = False
    yes: bool = False
    only_sandboxed: bool = False

    @property
    def is_filter(self) -> bool:
        return self.everything or any(each is not None for each in (self.states, self.tags, self.plan))

    def find(self, fleet: Fleet, fitting: Collection[SessionState]) -> tuple[list[Session], list[KasmonError]]:
        """Return the sessions, and an error for each name that no session has.

        A filter selects only sessions in one of the states *fitting*.

        Raises:
            UsageError: if nothing is selected, or both by name and by filter.
            RefusedError: if no session matches the filter.
        """
        if bool(self.names) == self.is_filter:
            raise UsageError(
                "no session is named." if not self.names else "both names and a filter are given.",
                hint="Name sessions, or select them by --state, --tag, --plan or --all.",
            )
        if self.names:
            return find_all(fleet, names_from_stdin() if self.names == ("-",) else self.names)
        states = states_in(self.states) & frozenset(fitting)
        matching = [each for each in chosen(fleet, states, None, tags=self.tags) if self.plan in (None, each.plan)]
        matching = [each for each in matching if each.sandbox or not self.only_sandboxed]
        if not matching:
            raise RefusedError("no session that this command can act on matches the filter.", hint="See `kasmon ls`.")
        return matching, []


def names_from_stdin() -> list[str]:
    """Return the lines on stdin. Raises `UsageError` if there are none."""
    if names := [line.strip() for line in sys.stdin if line.strip()]:
        return names
    raise UsageError("stdin has no session's name.", hint="Write one name a line.")


def find_all(fleet: Fleet, names: Sequence[str]) -> tuple[list[Session], list[KasmonError]]:
    """Return the sessions with *names*, each once, and an error for each name that no session has."""
    sessions: dict[SessionId, Session] = {}
    errors: list[KasmonError] = []
    for name in names:
        try:
            session = find(fleet, name)
        except KasmonError as error:
            errors.append(error)
        else:
            sessions[session.id] = session
    return list(sessions.values()), errors


def run_on_each(
    where: Paths,
    selection: SessionSelection,
    fitting: Collection[SessionState],
    act: Act,
    verb: str,
    *,
    wants_json: bool,
) -> int:
    """Call *act* on the selected sessions, side by side, and print each outcome; return the highest exit code.

    One named session is answered as ever: its error is raised, and its JSON has the session alone.

    Args:
        where: the folders of this kasmon.
        fitting: the states of the sessions that a filter selects.
        act: the operation; it returns an `Outcome`, a text that is printed instead of *verb*, or None.
        verb: what was done, as `stopped`.

    Raises:
        KasmonError: as `SessionSelection.find`; RefusedError also if the user does not confirm.
        NotFoundError: if the only name is that of no session.
    """
    sessions, errors = selection.find(read_fleet(where), fitting)
    is_one = len(selection.names) == 1 and selection.names != ("-",)
    if is_one and errors:
        raise errors[0]
    if selection.is_filter and len(sessions) > 1 and not selection.yes:
        _confirm(sessions, verb, wants_json=wants_json)
    outcomes = run_side_by_side(sessions, lambda session: act(where, session))
    if is_one and isinstance(outcomes[0], KasmonError):
        raise outcomes[0]
    now = read_fleet(where)
    results: list[dict[str, Any]] = [{"session": None, "error": _error(error)} for error in errors]
    code = max((error.exit_code for error in errors), default=0)
    for error in errors:
        note(str(error))
    for session, outcome in zip(sessions, outcomes, strict=True):
        current = now.get(session.id) or session
        name = f"{current.label} ({current.id})"
        if isinstance(outcome, KasmonError):
            outcome = Outcome(
                fields={"error": _error(outcome)},
                notice=f"{name}: {outcome}",
                code=outcome.exit_code,
            )
        elif not wants_json:
            text = outcome.text if isinstance(outcome, Outcome) else outcome
            say(f"{name}: {text if isinstance(text, str) and text else verb}")
        more = outcome if isinstance(outcome, Outcome) else Outcome()
        if more.notice:
            note(more.notice)
        code = max(code, more.code)
        results.append({"session": session_object(current)} | more.fields)
    if wants_json:
        print_json(**(results[0] if is_one else {"results": results}))
    return code


def _error(error: KasmonError) -> object:
    return error_object(error)["error"]


def run_side_by_side(
    items: Sequence[Item], act: Callable[[Item], Coroutine[Any, Any, Result]]
) -> list[Result | KasmonError]:
    """Return what *act* returns or raises for each of *items*, in their order; each runs in a thread, without a loop.

    Raises:
        Exception: the first error that is no `KasmonError`.
    """
    outcomes: dict[int, Result | KasmonError] = {}
    failures: list[Exception] = []
    left = iter(enumerate(items))
    taking = threading.Lock()

    def work() -> None:
        while True:
            with taking:
                n, item = next(left, (None, None))
            if n is None or item is None:
                return
            try:
                outcomes[n] = event_loop.run(act(item))
            except KasmonError as error:
                outcomes[n] = error
            except Exception as error:  # noqa: BLE001 - raised below, in the thread that waits
                failures.append(error)

    # Ctrl+C ends the command without waiting for them.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(SIDE_BY_SIDE, len(items)) - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [outcomes[n] for n in range(len(items))]


def _confirm(sessions: Sequence[Session], verb: str, *, wants_json: bool) -> None:
    """List the selected sessions and have the user type `yes`. Raises `RefusedError`."""
    confirm(
        (f"{clean_line(each.label)} ({each.id}): {each.state}" for each in sessions),
        f"Type yes; then these {len(sessions)} are {verb}",
        wants_json=wants_json,
        unasked=RefusedError(
            f"nothing was done: {len(sessions)} sessions would be {verb}, and there is no terminal to confirm them on.",
            hint="Pass --yes, or name them.",
        ),
        refused=RefusedError("nothing was done.", hint="Narrow the filter, or name sessions."),
    )
