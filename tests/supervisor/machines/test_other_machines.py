"""A session of another machine: no operation on it has an effect here."""

import asyncio
import contextlib
import importlib
import inspect
import pkgutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kasmon.supervisor
from kasmon.config import Config
from kasmon.errors import KasmonError, NotFoundError, RefusedError
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc.control import ControlKind
from kasmon.host.rpc.spawn import spawn
from kasmon.model.commands import ActingAgent, Answer, Checkpoint, Mode, Requeue
from kasmon.model.events import LogOpened, PeerMessageWritten, ReviewComment, SessionCreated, SessionEnded
from kasmon.model.fleet import Fleet, peers_of
from kasmon.model.limits.resume import Resumption
from kasmon.model.permission import Decision, SessionId
from kasmon.model.review.hunks import ShownHunk
from kasmon.model.session import HostProbe, Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.process_identity import find_processes_with
from kasmon.store.machines import HostPresence, Machine, Presence, write_machine, write_presence
from kasmon.supervisor.finish.finish_plan import FinishRequest
from kasmon.supervisor.fleet.liveness import Liveness
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.sandbox_adoption import find_orphans, find_unfinished
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.peers.messages import find_peers
from kasmon.supervisor.recovery.sessions import find_lost_sessions
from kasmon.supervisor.sessions.names import announce
from kasmon.supervisor.sessions.other_hosts import find_other_hosts
from kasmon.supervisor.sessions.start import leave_ended, leave_notice
from kasmon.supervisor.sessions.tmux_host import without_host
from tests.support.supervisor.env import NOW, Env, launch, started

MACHINE = "gpu-1"
STRUCTURED, TERMINAL, SANDBOX = SessionId("abcdefgh"), SessionId("bcdefghi"), SessionId("cdefghij")
MODES = {STRUCTURED: Mode.SDK, TERMINAL: Mode.TMUX, SANDBOX: Mode.INTERPRETER}
COMMENT = ReviewComment(id="a1", file="a.txt", line=1, last_line=1, lines=("one",), text="why?")
HUNK = ShownHunk(head="diff --git a/a.txt b/a.txt", lines=("@@ -1 +1 @@", "-a", "+b"), name="a.txt", turn=None)
ARGUMENTS: dict[str, object] = {
    "action": "prompt",
    "changes_permissions": True,
    "code": "true",
    "actor": ActingAgent(session=SessionId("lead0000")),
    "starters": {},
    "comment": COMMENT,
    "config": Config(),
    "events": (),
    "facts": (),
    "file": "a.txt",
    "first": 1,
    "fleet": Fleet(),
    "folder": Path("/nowhere"),
    "interpreter": "bash",
    "is_resolved": True,
    "kind": ControlKind.STOP,
    "last": 1,
    "later": 0,
    "lines": ("one",),
    "message": PeerMessageWritten(at=NOW, to="notes", name="notes", text="a text"),
    "name": "another",
    "names": ("one", "another"),
    "now": NOW,
    "number": None,
    "planned": None,
    "port": 80,
    "profiles": {},
    "prompt": "continue",
    "resumption": Resumption(),
    "request": FinishRequest(commits=True, message="all", discards=True),
    "seen": Liveness(),
    "shown": HUNK,
    "text": "a text",
    "to": Mode.TMUX,
    "to_disk": False,
    "turn": None,
    "until": NOW,
    "whole": True,
}
"""What is passed as a parameter of this name."""
OF_FUNCTION: dict[str, dict[str, object]] = {
    "notifications.alerts.alert": {"kind": "asking"},
    "recovery.sessions.find_conversation": {"launch": launch(STRUCTURED), "taken": ()},
    "review.comments.edit_comment": {"comment": "a1"},
    "review.comments.find_comment": {"comment": "a1"},
    "review.comments.mark_comment": {"comment": "a1"},
    "review.comments.remove_comment": {"comment": "a1"},
    "sandboxes.use.execute": {"command": Checkpoint()},
    "sessions.session_operations.execute": {
        "command": Answer(request="r1", digest="d", decision=Decision.ALLOW),  # type: ignore[arg-type]
    },
    "sessions.session_operations.requeue": {"command": Requeue(receipt="x-r1", drop=True)},  # type: ignore[arg-type]
}


@pytest.fixture
def env() -> Iterator[Env]:
    """A kasmon with three sessions of the machine gpu-1, to which no link runs."""
    env = Env()
    paths = env.paths
    write_machine(paths, Machine(name=MACHINE, command=("false",)))
    alive = HostPresence(host=4242, agent_runs=True)
    write_presence(paths, MACHINE, Presence(since=NOW, kasmon="1", sessions=dict.fromkeys(MODES, alive)))
    for session, mode in MODES.items():
        described = launch(session, name=f"fix-{mode}", mode=mode, sandbox="jail" if mode is Mode.INTERPRETER else None)
        described = msgspec.structs.replace(described, workdir=f"{MACHINE}:/src")
        env.says(SessionCreated(at=NOW, launch=described, machine=MACHINE, via=MACHINE))
        paths.folder(session).mkdir(mode=0o700)
        paths.launch(session).write_bytes(msgspec.json.encode(described))
        paths.via(session).write_text(f"{MACHINE}\n77\n")
        env.tells(session, LogOpened(at=NOW, session=session), started(mode=mode))
    yield env
    env.close()


def files_of(env: Env) -> dict[str, object]:
    """All files of this kasmon, except what may be deleted at any time."""
    files = (path for path in env.folder.rglob("*") if not path.name.startswith(("index.db", "search.db")))
    return {str(path): path.read_bytes() if path.is_file() else None for path in files if not path.is_socket()}


def processes_of(env: Env) -> list[int]:
    state = str(env.paths.state.parent)
    return [pid for pid, of in find_processes_with("XDG_STATE_HOME") if of == state]


def operations() -> dict[str, Callable[..., Any]]:
    """Every public function of `kasmon.supervisor` that gets a session."""
    found: dict[str, Callable[..., Any]] = {}
    for info in pkgutil.walk_packages(kasmon.supervisor.__path__, "kasmon.supervisor."):
        module = importlib.import_module(info.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            hints = [str(getattr(each.annotation, "__name__", each.annotation)) for each in _parameters(function)]
            if function.__module__ == info.name and not name.startswith("_") and "Session" in hints:
                found[f"{info.name.removeprefix('kasmon.supervisor.')}.{name}"] = function
    return found


def _parameters(function: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


LEFT_OUT = (
    "machines.",  # what has it done there is called by the others
    "plans.peers.",  # between agents of one plan: only its runner writes to those of other machines
    "finish.feedback.begin_round",  # these get what a function returned that is called here
    "finish.feedback.cancel_round",
    "finish.discarded_work.discard",
    "finish.finish.finish",
    "review.hunks.undo_hunk",
)


def arguments_of(name: str, function: Callable[..., Any], paths: Paths, session: Session) -> dict[str, object]:
    values = {"paths": paths, "session": session, "peer": session, "others": (session,), **ARGUMENTS}
    values |= OF_FUNCTION.get(name, {})
    needed = [each.name for each in _parameters(function) if each.default is inspect.Parameter.empty]
    assert values.keys() >= set(needed), f"{name}: say what it gets for {set(needed) - values.keys()}"
    return {each: values[each] for each in needed}


def call(function: Callable[..., Any], arguments: dict[str, object]) -> None:
    """Call *function*, on a loop if it is asynchronous, and go through what it returns."""

    async def on_loop() -> None:
        async with asyncio.timeout(20):
            await function(**arguments)

    with contextlib.suppress(KasmonError, OSError):
        if inspect.iscoroutinefunction(function):
            asyncio.run(on_loop())
        elif isinstance(result := function(**arguments), Iterator):
            list(result)


def states_of(session: Session) -> Iterator[Session]:
    """*session* as if it ran, was lost, had ended, had no host, could not be reached; its process is this one."""
    replace = msgspec.structs.replace
    alive = replace(
        session, state=SessionState.IDLE, host=HostProbe(pid=1, alive=True), finished_at=time.time(), viewed_at=0.0
    )
    yield alive
    silent = replace(alive, host=HostProbe(pid=None, alive=False))
    yield replace(silent, state=SessionState.UNSURE, unsure_why="host gone", source="host")
    yield replace(silent, state=SessionState.LOST, resume_id="c1")
    yield replace(silent, state=SessionState.ENDED, handed_over=True, resume_id="c1")


def test_no_operation_on_it_changes_a_file_or_starts_a_process_here(env: Env) -> None:
    before, effects = files_of(env), {}
    states = [state for session in read_fleet(env.paths).sessions for state in states_of(session)]

    for name, function in operations().items():
        if name.startswith(LEFT_OUT):
            continue
        for state in states:
            call(function, arguments_of(name, function, env.paths, state))
        if (now := files_of(env)) != before:
            effects[name] = sorted({*now.items()} ^ {*before.items()}, key=str)
            before = now

    assert (effects, processes_of(env)) == ({}, [])


def test_no_search_for_work_finds_it(env: Env) -> None:
    found = [state for session in read_fleet(env.paths).sessions for state in states_of(session)]
    fleet = Fleet(at=NOW, sessions=tuple(found))

    assert (find_lost_sessions(env.paths, fleet), find_orphans(found), find_unfinished(env.paths, found)) == ([],) * 3
    assert (find_other_hosts(env.paths, found), without_host(found)) == ([], [])


def test_its_copied_log_is_never_written_here(env: Env) -> None:
    before = files_of(env)

    with pytest.raises(RefusedError, match="is a copy"):
        SessionLog(env.paths, STRUCTURED)
    with pytest.raises(RefusedError, match="is a copy"):
        leave_ended(env.paths, STRUCTURED, SessionEnded(at=NOW))
    with pytest.raises(RefusedError, match="is a copy"):
        leave_notice(env.paths, STRUCTURED, "a text")

    assert files_of(env).keys() - before.keys() <= {str(env.paths.host_lock(STRUCTURED))}
    assert env.paths.log(STRUCTURED).read_bytes() == before[str(env.paths.log(STRUCTURED))]


def test_no_host_is_started_for_it(env: Env) -> None:
    with pytest.raises(OSError, match="another machine's"):
        spawn(env.paths, STRUCTURED)

    assert processes_of(env) == []


def test_its_name_is_available_here(env: Env) -> None:
    name = read_fleet(env.paths).sessions[0].name

    announce(env.paths, SessionCreated(at=NOW, launch=launch("defghijk", name=name), machine="here"))

    assert find(read_fleet(env.paths), name).id == "defghijk"
    assert find(read_fleet(env.paths), f"{MACHINE}:{name}").name == name
    assert find(read_fleet(env.paths), f"{MACHINE}:{name}").via == MACHINE


def test_it_is_no_peer_of_an_agent_here(env: Env) -> None:
    seen = msgspec.structs.replace(read_fleet(env.paths).sessions[0], wave=1, plan=None)
    here = msgspec.structs.replace(seen, id=SessionId("defghijk"), name="here", via="")
    fleet = Fleet(at=NOW, sessions=(seen, here))

    assert (peers_of(fleet, here), peers_of(fleet, seen)) == ((), ())
    with pytest.raises(NotFoundError):
        find_peers(fleet, here, "wave", {})
