"""`kasmon send`: send a prompt to one session or several, and print how far it got."""

import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from kasmon.cli.arguments import Arg, Json, Timeout
from kasmon.cli.ls import chosen, states_in
from kasmon.cli.output.console import confirm, note, print_answer, print_json, say
from kasmon.cli.output.json_objects import error_object, receipt_object, session_object
from kasmon.cli.output.table import aligned
from kasmon.cli.session_selection import Everything, InStates, OfPlan, WithTags, find_all, run_side_by_side
from kasmon.config.parser import load_or_default
from kasmon.config.profile import programs
from kasmon.errors import KasmonError, RefusedError, SessionEndedError, SessionNotFoundError, TimedOutError, UsageError
from kasmon.model.agent_program import is_agent
from kasmon.model.commands import ActingAgent, Receipt, ReceiptId, ReceiptState, Sender, When
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import duration
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.model.transcript.text import cells
from kasmon.paths import Paths, user_paths
from kasmon.sanitize import clean_line
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.budgets import find_warnings
from kasmon.supervisor.prompts.images import read_images
from kasmon.supervisor.sessions import session_operations

EXIT_CODES: Final = {ReceiptState.REFUSED: 4, ReceiptState.LOST: 1, ReceiptState.FAILED: 1, ReceiptState.UNSURE: 1}
"""The exit codes for prompts that are not known to be done."""
ON_ITS_WAY: Final = frozenset({ReceiptState.QUEUED, ReceiptState.TYPED})
"""Receipts of prompts that the agent does not have yet."""
NONE_RUNS: Final = "no session runs."
SUBMIT_S: Final = 30.0
"""How long the delivery of a prompt that is not to be queued may take, in seconds."""


class WaitGoal(msgspec.Struct, frozen=True):
    """What to wait for after a prompt was sent."""

    when: When
    states: frozenset[SessionState] | None
    """Until the session is in one of these after it took the prompt; None: until the agent has the prompt."""
    timeout_s: float | None

    def is_reached(self, receipt: Receipt) -> bool:
        """Whether *receipt* is enough, whatever the session's state is."""
        return self.states is None and (receipt.state not in ON_ITS_WAY or self.when == "idle")


SendPrompt = Callable[[Session], Coroutine[Any, Any, Receipt]]


def send(
    *words: Annotated[
        str,
        Arg(
            "Sessions (id, exact name or id prefix), unless a filter selects them; then the prompt (`-`: from stdin).",
            ("SESSION... TEXT",),
            completer="sessions",
            hyphen=True,
        ),
    ],
    to: Annotated[str | None, Arg("Send to all matching agents, for example state=idle,wave=2,agent=claude.")] = None,
    state: InStates = None,
    with_tags: WithTags = None,
    plan: OfPlan = None,
    everything: Everything = False,
    include: Annotated[
        Literal["shells"] | None,
        Arg("With a filter: also send to shells, interpreters and plain commands, which execute the prompt."),
    ] = None,
    dry_run: Annotated[bool, Arg("With a filter: list the recipients without sending.")] = False,
    yes: Annotated[bool, Arg("With a filter: send to several without confirmation.")] = False,
    when: Annotated[When, Arg("What to do if busy: queue (idle), send anyway (now), interrupt, or refuse.")] = "now",
    anyway: Annotated[bool, Arg("Send even if the input box is not visible, unless a request is pending.")] = False,
    over_budget: Annotated[bool, Arg("Send even if a budget of the config is used up.")] = False,
    image: Annotated[
        list[str] | None, Arg("Send the picture in this file (PNG, JPEG, GIF, WebP) with the prompt; repeatable.")
    ] = None,
    wait: Annotated[str | None, Arg("After sending, wait until the session is in one of these states.")] = None,
    timeout: Timeout = None,
    key: Annotated[str, Arg("A prompt with the same key is sent once.", is_shown=False)] = "",
    by: Annotated[Sender, Arg("What another machine's kasmon sends it for.", is_shown=False)] = "user",
    actor: Annotated[str, Arg("The agent that another machine's kasmon sends it for, as JSON.", is_shown=False)] = "",
    wants_json: Json = False,
) -> int:
    """Send a prompt, and print its receipt."""
    filters = [*([to] if to is not None else []), *(f"state={each}" for each in (state or "").split(",") if each)]
    filters += [f"tag={each}" for each in (with_tags or "").split(",") if each]
    filters += [f"plan={plan}"] if plan is not None else []
    is_filter = bool(filters) or everything
    names, prompt = _read_words(words, is_filter=is_filter, needs_filter=include is not None or dry_run)
    if anyway and when == "idle":
        raise UsageError(
            "--anyway cannot be combined with --when idle: a queued prompt is typed once the input box is visible.",
            hint="Leave out --when idle or --anyway.",
        )
    agent, images = _parse_actor(actor) if actor else None, read_images(image or ())
    goal = WaitGoal(when, None if wait is None else states_in(wait), timeout)
    if over_budget:
        _must_be_a_person()
    where = user_paths()
    fleet = read_fleet(where)
    errors: list[KasmonError] = []
    if names:
        sessions, errors = find_all(fleet, names)
        if errors and len(names) == 1:
            raise errors[0]
    else:
        profiles = programs(load_or_default(where))
        sessions, left_out = recipients(fleet, ",".join(filters), profiles, include_shells=include is not None)
    if dry_run:
        if wants_json:
            listed, others = ([session_object(each) for each in group] for group in (sessions, left_out))
            print_json(recipients=listed, left_out=others)
        else:
            say(*_list_recipients(sessions, left_out))
        return 0
    if is_filter and len(sessions) > 1 and not yes:
        _confirm(sessions, left_out, wants_json=wants_json)

    async def send_prompt(session: Session) -> Receipt:
        def say_resumed(took_s: float) -> None:
            note(f"{clean_line(session.label)} was hibernated; resumed in {duration(took_s)}.")

        receipt = await session_operations.send(
            where,
            session,
            prompt,
            when,
            by,
            anyway=anyway,
            key=key,
            over_budget=over_budget,
            images=images,
            actor=agent,
            on_resumed=say_resumed,
        )
        for warning in find_warnings(where, session):
            note(f"{warning}.")
        return receipt

    async def send_now(session: Session) -> Receipt | None:
        may_take_longer = timeout is not None or session.state is SessionState.PAUSED
        return None if may_take_longer else await send_prompt(session)

    outcomes = _follow_all(where, sessions, run_side_by_side(sessions, send_now), send_prompt, goal)
    if len(names) != 1:
        return _report(where, sessions, outcomes, errors, wants_json=wants_json)
    receipt = outcomes[0]
    if isinstance(receipt, KasmonError):
        raise receipt
    print_answer(
        f"{receipt.id}: {receipt.state}{_reason(receipt)}", wants_json=wants_json, receipt=receipt_object(receipt)
    )
    return EXIT_CODES.get(receipt.state, 0)


def _read_words(words: Sequence[str], *, is_filter: bool, needs_filter: bool) -> tuple[list[str], str]:
    """Return the names of the sessions, none with a filter, and the prompt.

    Raises:
        UsageError: if one is missing, or there are names with a filter, or no filter where it *needs_filter*.
    """
    if not words or (len(words) == 1 and not is_filter):
        raise UsageError("missing prompt.", hint="Usage: `kasmon send SESSION TEXT`, or `-` to read it from stdin.")
    if needs_filter and not is_filter:
        raise UsageError(
            "--include and --dry-run require --to.", hint="A prompt for one SESSION is sent whatever program it runs."
        )
    *names, text = words
    if names and is_filter:
        raise UsageError(
            "the recipient is ambiguous.", hint="Name sessions, or select them with --to state=idle,wave=2."
        )
    prompt = sys.stdin.read() if text == "-" else text
    if not prompt.strip():
        raise UsageError("the prompt is empty.", hint="Pass it as one argument, or `-` to read it from stdin.")
    return names, prompt


def _report(
    where: Paths,
    sessions: Sequence[Session],
    outcomes: Sequence[Receipt | KasmonError],
    errors: Sequence[KasmonError],
    *,
    wants_json: bool,
) -> int:
    """Print what came of a prompt to several *sessions*, and the *errors* of other names; return the exit code."""
    results = [_result(where, session, outcome) for session, outcome in zip(sessions, outcomes, strict=True)]
    for error in errors:
        note(str(error))
    if wants_json:
        failed = {"errors": [error_object(error)["error"] for error in errors]} if errors else {}
        print_json(receipts=[receipt_object(receipt) for receipt, _ in results], **failed)
    elif sessions:
        say(*table(sessions, [receipt for receipt, _ in results]))
    return max([code for _, code in results] + [error.exit_code for error in errors])


def table(sessions: Sequence[Session], receipts: Sequence[Receipt]) -> list[str]:
    """Return the results of one prompt to several *sessions*, a line each."""
    names = [clean_line(session.label) for session in sessions]
    name_cells = max(map(cells, names))
    return [
        f"{name}{' ' * (name_cells - cells(name))}  {receipt.id or '-':<12}  {receipt.state}{_reason(receipt)}"
        for name, receipt in zip(names, receipts, strict=True)
    ]


def recipients(
    fleet: Fleet, to: str, profiles: Mapping[str, str], *, include_shells: bool = False
) -> tuple[list[Session], list[Session]]:
    """Return the running sessions that get the prompt, and the matching ones that would execute it.

    Args:
        to: the filter, `state=idle,wave=2,agent=claude`; repeated parts are alternatives.
        profiles: as for `is_agent`.
        include_shells: include shells, interpreters and plain commands, which execute the prompt.

    Raises:
        UsageError: if the filter is invalid.
        RefusedError: if no session is left.
    """
    filters: dict[str, list[str]] = {"state": [], "wave": [], "agent": [], "tag": [], "plan": []}
    for part in to.split(",") if to else ():
        name, _, value = part.strip().partition("=")
        if name not in filters or not value:
            raise UsageError(
                f"{part!r} is not a valid selector.",
                hint="--to accepts state=STATE, wave=N, agent=NAME, tag=TAG and plan=ID, separated by commas.",
            )
        filters[name].append(value)
    states = states_in(",".join(filters["state"]) or None)
    found = [
        session
        for session in chosen(fleet, states, None, tags=",".join(filters["tag"]) or None)
        if (session.exists or (session.state is SessionState.HIBERNATED and filters["state"]))
        and (not filters["wave"] or str(session.wave) in filters["wave"])
        and (not filters["agent"] or session.agent in filters["agent"])
        and (not filters["plan"] or session.plan in filters["plan"])
    ]
    if not found:
        raise RefusedError(f"no running session matches {to!r}." if to else NONE_RUNS, hint="See `kasmon ls`.")
    agents = found if include_shells else [session for session in found if is_agent(session, profiles)]
    if not agents:
        raise RefusedError(
            f"{to or '--all'!r} matches no agent, only {', '.join(session.label for session in found)}.",
            hint="--include shells also sends to shells, interpreters and commands, which execute the prompt.",
        )
    return agents, [session for session in found if session not in agents]


def _list_recipients(sessions: Sequence[Session], left_out: Sequence[Session]) -> list[str]:
    rows = [(session.label, session.agent, session.state.value, session.workdir) for session in sessions]
    lines = aligned([("NAME", "AGENT", "STATE", "FOLDER"), *(tuple(map(clean_line, row)) for row in rows)])
    names = ", ".join(clean_line(session.label) for session in left_out)
    return [*lines, *([f"skipped, not agents (--include shells sends to them too): {names}"] if names else [])]


def _confirm(sessions: Sequence[Session], left_out: Sequence[Session], *, wants_json: bool) -> None:
    """List the recipients and have the user type `yes`. Raises `RefusedError`."""
    confirm(
        _list_recipients(sessions, left_out),
        f"Type yes to send the prompt to these {len(sessions)}",
        wants_json=wants_json,
        unasked=RefusedError(
            f"not sent: the prompt has {len(sessions)} recipients, and there is no terminal to confirm them on.",
            hint="List them with --dry-run, then pass --yes.",
        ),
        refused=RefusedError("nothing was sent.", hint="Narrow the recipients with --to, or name one session."),
    )


def _parse_actor(text: str) -> ActingAgent:
    from kasmon.supervisor.machines.agent_requests import parse_actor  # only for other machines

    return parse_actor(text).actor


def _must_be_a_person() -> None:
    import asyncio  # only for that
    import os

    from kasmon.host.rpc.peer import must_be_a_person

    asyncio.run(must_be_a_person(os.getpid(), None, action="send prompts over a budget"))


def _follow_all(
    where: Paths,
    sessions: Sequence[Session],
    outcomes: Sequence[Receipt | KasmonError | None],
    send_prompt: SendPrompt,
    goal: WaitGoal,
) -> list[Receipt | KasmonError]:
    """Return the *outcomes* of *sessions* once *goal* is reached; one's error does not affect the others.

    An outcome of None: *send_prompt* has not sent it yet.
    """
    if all(isinstance(each, KasmonError) or (each and goal.is_reached(each)) for each in outcomes):
        return [each for each in outcomes if each is not None]
    import asyncio  # only where a prompt is to be followed

    async def follow_all() -> list[Receipt | KasmonError]:
        pairs = zip(sessions, outcomes, strict=True)
        return list(await asyncio.gather(*(_follow(where, *each, send_prompt, goal) for each in pairs)))

    return asyncio.run(follow_all())


def _result(where: Paths, session: Session, outcome: Receipt | KasmonError) -> tuple[Receipt, int]:
    """Return the receipt of one of several sessions, and its exit code; for an error one with that as its reason."""
    if isinstance(outcome, Receipt):
        return outcome, EXIT_CODES.get(outcome.state, 0)
    state = ReceiptState.REFUSED if outcome.exit_code == RefusedError.exit_code else ReceiptState.LOST
    if isinstance(outcome, TimedOutError) and (known := _newest(where, session)):
        return msgspec.structs.replace(known, reason=known.reason or outcome.message), outcome.exit_code
    return Receipt(id=ReceiptId(""), session=session.id, state=state, reason=outcome.message), EXIT_CODES.get(state, 0)


def _newest(where: Paths, before: Session) -> Receipt | None:
    """Return the receipt of the prompt that was sent after *before* was read."""
    now, known = read_fleet(where).get(before.id), {receipt.id for receipt in before.receipts}
    return next((receipt for receipt in now.receipts if receipt.id not in known), None) if now is not None else None


async def _follow(
    where: Paths, session: Session, outcome: Receipt | KasmonError | None, send_prompt: SendPrompt, goal: WaitGoal
) -> Receipt | KasmonError:
    """Send the prompt, unless it was sent with *outcome*, and return its outcome once *goal* is reached."""
    import asyncio

    if isinstance(outcome, KasmonError):
        return outcome
    waits_on_purpose = goal.states is not None or goal.when == "idle"
    limit_s = goal.timeout_s if goal.timeout_s is not None or waits_on_purpose else SUBMIT_S
    try:
        async with asyncio.timeout(limit_s):
            receipt = await send_prompt(session) if outcome is None else outcome
            return receipt if goal.is_reached(receipt) else await _await_receipt(where, session, receipt, goal.states)
    except TimeoutError:
        until = "accept the prompt" if goal.states is None else f"be {' or '.join(sorted(goal.states))}"
        return TimedOutError(f"waited {limit_s:g} s for {session.name!r} to {until}.", hint="See `kasmon show`.")
    except KasmonError as error:
        return error


async def _await_receipt(
    where: Paths, before: Session, receipt: Receipt, states: frozenset[SessionState] | None
) -> Receipt:
    """Return the receipt once the agent has the prompt and, if requested, the session is in one of the states.

    Raises:
        SessionNotFoundError: if it was removed meanwhile.
        SessionEndedError: if its agent has ended, unless that was waited for.
    """
    from kasmon.supervisor.fleet.wait import fleets

    async with fleets(where) as changes:
        async for fleet in changes:
            if (now := fleet.get(before.id)) is None:
                break
            receipt = next((known for known in now.receipts if known.id == receipt.id), receipt)
            if receipt.state in EXIT_CODES or (states is None and receipt.state not in ON_ITS_WAY):
                return receipt
            is_over = receipt.state is ReceiptState.FINISHED or now.state is not SessionState.IDLE
            if states and now.state in states and is_over and has_moved(before, now, receipt):
                return receipt
            if now.state not in ALIVE:
                raise SessionEndedError(now.name)
    raise SessionNotFoundError(before.name)


def has_moved(before: Session, now: Session, receipt: Receipt) -> bool:
    """Whether *now* can be a result of the prompt, and is not just the state before it."""
    if receipt.state is ReceiptState.FINISHED or now.state is not before.state:
        return True
    return (now.turns, now.since, now.generation) != (before.turns, before.since, before.generation)


def _reason(receipt: Receipt) -> str:
    code = f" with exit code {receipt.exit_code}" if receipt.exit_code is not None else ""
    return f"{code}, {receipt.reason}" if receipt.reason else code
