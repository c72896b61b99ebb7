"""What is done to a kasmon: what people do, and what happens to computers. Each deed says in words what it did.

A deed draws what it needs from its dice in an order of its own, whatever the world is like: so the same seed does the
same things again.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

import msgspec
import psutil

from kasmon.errors import KasmonError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Answer
from kasmon.model.permission import Decision, Request, SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.process_identity import started_at
from kasmon.supervisor.sandboxes import use
from kasmon.supervisor.sessions import session_operations as verb
from tests.support.chaos import promises
from tests.support.chaos.fleet import AgentFleet
from tests.support.chaos.promises import Answered, Leaving
from tests.support.wait import until

KEYS: Final = ("j", "k", "G", "g", " ", "w", "?", "\x1b", "/", "x\x1b", "h", "l", "S", "p", "\t", "\x1b[A", "\x1b[B")
"""What is typed into dashboards: nothing that answers, stops or forgets."""
FATAL: Final = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
JUMPS_S: Final = (0.0, 3600.0, -3600.0, 8 * 3600.0, -86400.0)
PATIENCE_S: Final = 2.0
"""So long somebody waits for a prompt to one whose log cannot be written."""
LIMIT_S: Final = 40.0
"""A net, no expectation."""


class Fault(NamedTuple):
    weight: int
    do: Callable[[AgentFleet, Random], str]


def _kill(pid: int | None) -> bool:
    """End process *pid* with -9 and wait until it is gone; False where there is none."""
    if not pid or not (at := started_at(pid)):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: started_at(pid) != at or _is_zombie(pid), LIMIT_S, "its end")
    return True


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    return True


def _name(fleet: AgentFleet, session: SessionId) -> str:
    found = fleet.session(session)
    return found.name if found is not None else session


# -- what people do


def prompt_talker(fleet: AgentFleet, dice: Random) -> str:
    session, kind = dice.choice(fleet.talkers), dice.choice(("say", "say", "ask", "two"))
    fleet.prompts += 1
    token = f"p{fleet.prompts}"
    hostile = "".join(bytes_.decode() for bytes_ in promises.HOSTILE.values())
    text = {"say": f"say {token} {hostile}", "ask": f"ask touch {token}", "two": f"ask one {token} &\nask two {token}"}[
        kind
    ]
    return _sent(fleet, session, text)


def prompt_box(fleet: AgentFleet, dice: Random) -> str:
    session = dice.choice(sorted(fleet.boxes))
    fleet.prompts += 1
    return _sent(fleet, session, f"prompt {fleet.prompts} ;-t $(touch {fleet.home.path}/ran) #{{pane_id}}")


def _sent(fleet: AgentFleet, session: SessionId, text: str) -> str:
    now = fleet.session(session)
    if now is None:
        return "nobody to prompt"
    receipt = fleet.do(verb.send(fleet.paths, now, text))
    return f"prompt for {now.name!r}: {receipt.state if receipt else 'refused'}"


def _open(fleet: AgentFleet) -> list[tuple[Session, Request]]:
    return [(session, ask) for session in fleet.fleet().sessions for ask in session.requests]


def answer(fleet: AgentFleet, dice: Random) -> str:
    """The oldest request, by one or by two at once."""
    at, decision, two = dice.random(), dice.choice((Decision.ALLOW, Decision.DENY)), dice.random() < 0.3
    waiting = _open(fleet)
    if not waiting:
        return "nothing to answer"
    session, ask = waiting[int(at * len(waiting))]
    command = Answer(request=ask.id, digest=ask.digest, decision=decision)
    fleet.given.append(Answered(ask.id, decision.value))
    if not two:
        fleet.do(verb.execute(fleet.paths, session, command))
        return f"{decision.value} for {ask.id}"
    other = Decision.DENY if decision is Decision.ALLOW else Decision.ALLOW
    fleet.given.append(Answered(ask.id, other.value))

    async def both() -> list[object]:
        commands = (command, msgspec.structs.replace(command, decision=other))
        return await asyncio.gather(
            *(verb.execute(fleet.paths, session, each) for each in commands), return_exceptions=True
        )

    results = asyncio.run(both())
    accepted = sum(not isinstance(result, BaseException) for result in results)
    if accepted > 1:
        fleet.broken.append(f"two answers to {ask.id} were heard")
    return f"two answers at once to {ask.id}: {accepted} heard"


def answer_stale(fleet: AgentFleet, dice: Random) -> str:
    at = dice.random()
    waiting = _open(fleet)
    if not waiting:
        return "nothing to answer with another digest"
    session, ask = waiting[int(at * len(waiting))]
    command = Answer(request=ask.id, digest="0" * len(ask.digest), decision=Decision.ALLOW)
    try:
        asyncio.run(verb.execute(fleet.paths, session, command))
    except KasmonError as error:
        return f"another digest for {ask.id}: {type(error).__name__}"
    fleet.broken.append(f"an answer to another text of {ask.id} was taken")
    return f"another digest for {ask.id} was taken"


def type_keys(fleet: AgentFleet, dice: Random) -> str:
    number, keys = dice.randrange(2), [dice.choice(KEYS) for _ in range(dice.randrange(1, 9))]
    for key in keys:
        fleet.dashboards[number].send(key.encode())
    return f"keys {keys} for dashboard {number}"


def resize(fleet: AgentFleet, dice: Random) -> str:
    number = dice.randrange(2)
    sizes = [(dice.randrange(0, 220), dice.randrange(0, 70)) for _ in range(dice.randrange(1, 30))]
    for columns, rows in [*sizes, (150, 40)]:
        fleet.dashboards[number].resize(max(columns, 1), max(rows, 1))
    return f"{len(sizes)} sizes for dashboard {number}"


def restart(fleet: AgentFleet, dice: Random) -> str:
    """Start up to four again that are over."""
    draws = [dice.random() for _ in range(4)]
    over = [each for each in fleet.fleet().sessions if each.state not in ALIVE and not each.plan]
    chosen = {over[int(at * len(over))].id: over[int(at * len(over))] for at in draws if over}
    for session in chosen.values():
        fleet.wanted[session.id] += 1
        fleet.do(verb.restart(fleet.paths, session))
    return f"restart of {[session.name for session in chosen.values()]}"


def interrupt(fleet: AgentFleet, dice: Random) -> str:
    session = dice.choice(fleet.talkers)
    if (now := fleet.session(session)) is not None:
        fleet.do(verb.interrupt(fleet.paths, now))
    return f"interrupt of {_name(fleet, session)!r}"


def run_code(fleet: AgentFleet, dice: Random) -> str:
    if not fleet.jails:
        return "no sandbox here"
    session = dice.choice(fleet.jails)
    now = fleet.session(session)
    if now is not None:
        fleet.do(use.run(fleet.paths, now, "python", "x = 1; print(x)"))
    return f"code for {_name(fleet, session)!r}"


# -- what happens to computers


def end_dashboard(fleet: AgentFleet, dice: Random) -> str:
    """End one by a signal, look who lives, and open it again."""
    number, how = dice.randrange(2), dice.choice(FATAL)
    dashboard = fleet.dashboards[number]
    before = {**fleet.running(), **fleet.hosts()}
    process, written = dashboard.process, len(dashboard.seen)  # its guard stands above it
    process.send_signal(how)
    try:
        dashboard.ended(LIMIT_S)
    except TimeoutError:
        process.send_signal(signal.SIGABRT)  # it tells where each of its threads stands
        with contextlib.suppress(TimeoutError):
            dashboard.ended(LIMIT_S)
        output = dashboard.seen[written:].decode("utf-8", "replace")
        fleet.broken.append(f"dashboard {number} does not end by {how.name}: {output[output.find('Fatal') :]}")
    alive = {process for process in before if started_at(process.pid) == process.started}
    fleet.broken += promises.agents_outlive_dashboards(before, alive)
    fleet.leavings.append(Leaving(how.name, dashboard.before, dashboard.modes, dashboard.seen))
    fleet.seen.append(dashboard.seen)
    dashboard.__exit__(None, None, None)
    fleet.open(number)
    return f"{how.name} for dashboard {number}; {len(before)} lived on"


def kill_host(fleet: AgentFleet, dice: Random) -> str:
    session = dice.choice(fleet.talkers)
    if not _kill(lock_holder(fleet.paths.host_lock(session))):
        return f"{_name(fleet, session)!r} has no host to kill"
    _truth(fleet, lambda: _state(fleet, session) is SessionState.LOST)
    return f"kill -9 of the host of {_name(fleet, session)!r}"


def kill_fork_server(fleet: AgentFleet, dice: Random) -> str:
    hosts = fleet.hosts()
    killed = [pid for pid in fleet.fork_servers() if _kill(pid)]
    ended = [name for process, name in hosts.items() if started_at(process.pid) != process.started]
    if ended:
        fleet.broken.append(f"the hosts {ended} ended with the fork server")
    return f"kill -9 of {len(killed)} fork servers; {len(hosts)} hosts lived on"


def kill_tmux_host(fleet: AgentFleet, dice: Random) -> str:
    if not _kill(lock_holder(fleet.paths.tmux_host_lock)):
        return "no tmux host to kill"
    boxes = [session for session in (*fleet.boxes, *fleet.terminals) if _state(fleet, session) in promises.SURE]
    _truth(fleet, lambda: not any(_state(fleet, session) in promises.SURE for session in boxes) or _is_back(fleet))
    return "kill -9 of the tmux host"


def _is_back(fleet: AgentFleet) -> bool:
    return lock_holder(fleet.paths.tmux_host_lock) is not None


def kill_tmux(fleet: AgentFleet, dice: Random) -> str:
    boxes = [session for session in (*fleet.boxes, *fleet.terminals) if _state(fleet, session) in promises.SURE]
    servers = fleet.tmux_servers()
    for pid in servers:
        _kill(pid)
    if not servers:
        return "no tmux server to kill"
    if len(servers) > 1:
        fleet.broken.append(f"{len(servers)} tmux servers ran at once")
    _truth(fleet, lambda: not any(_state(fleet, session) in promises.SURE for session in boxes))
    return f"kill -9 of the tmux server; {len(boxes)} were in it"


def kill_agent(fleet: AgentFleet, dice: Random) -> str:
    session = dice.choice(sorted(fleet.boxes))
    now = fleet.session(session)
    if now is None or now.state not in ALIVE or not _kill(now.pid):
        return f"{_name(fleet, session)!r} does not run"
    if lock_holder(fleet.paths.tmux_host_lock) is not None:
        _truth(fleet, lambda: _state(fleet, session) not in promises.SURE)
    return f"kill -9 of {_name(fleet, session)!r}"


def kill_jail(fleet: AgentFleet, dice: Random) -> str:
    if not fleet.jails:
        return "no sandbox to kill"
    session = dice.choice(fleet.jails)
    now = fleet.session(session)
    runtime = now.sandbox_state.runtime if now is not None and now.sandbox_state is not None else None
    _kill(runtime.pid if runtime is not None else None)
    return f"kill -9 of the sandbox of {_name(fleet, session)!r}"


def _state(fleet: AgentFleet, session: SessionId) -> SessionState | None:
    now = fleet.session(session)
    return None if now is None else now.state


def _truth(fleet: AgentFleet, is_shown: Callable[[], bool]) -> None:
    """Wait until a look from outside shows what is so, and note how long that took."""
    began = time.monotonic()
    try:
        until(is_shown, LIMIT_S)
    except TimeoutError:
        fleet.broken.append(f"the truth about a crash was not shown within {LIMIT_S:g} s")
    fleet.late.append(time.monotonic() - began)


def sweep_sockets(fleet: AgentFleet, dice: Random) -> str:
    name = dice.choice(("h.sock", "t.sock"))
    (fleet.paths.runtime / name).unlink(missing_ok=True)
    return f"{name} swept away"


def damage_index(fleet: AgentFleet, dice: Random) -> str:
    noise = dice.randbytes(200)
    with contextlib.suppress(OSError), fleet.paths.index.open("r+b") as file:
        file.write(noise)
    return "noise over the index"


def break_config(fleet: AgentFleet, dice: Random) -> str:
    text = dice.choice(("theme = [", "nonsense = 1\n", "\x00\xff", '[ui]\ntheme = "nord"\n', ""))
    fleet.paths.config_file.write_bytes(text.encode("utf-8", "surrogateescape"))
    fleet.left[str(fleet.paths.config_file)] = fleet.paths.config_file.read_bytes()
    return f"the config is {text!r}"


def jump(fleet: AgentFleet, dice: Random) -> str:
    seconds = dice.choice(JUMPS_S)
    fleet.clock.write_text(str(seconds))
    return f"the clock on the wall is {seconds:+g} s off"


def fill_disk(fleet: AgentFleet, dice: Random) -> str:
    """The log of one cannot be written; another one takes a prompt meanwhile."""
    session, other = dice.sample(fleet.talkers, 2)
    fleet.prompts += 1
    text = f"say p{fleet.prompts}"
    log = fleet.paths.log(session)
    if not log.is_file():
        return "no log to keep from being written"
    kept, link = log.with_suffix(".kept"), log.with_suffix(".link")
    kept.hardlink_to(log)
    link.symlink_to("nowhere")
    link.replace(log)
    try:
        now = fleet.session(other)
        can = now is not None and now.state in ALIVE and lock_holder(fleet.paths.host_lock(other)) is not None
        took = fleet.do(verb.send(fleet.paths, now, text, "idle")) is not None if now is not None and can else True
        if (full := fleet.session(session)) is not None and full.state in ALIVE:
            fleet.do(_prompted(fleet, full, "say over a full disk"))
        fleet.broken += promises.control_goes_on(fleet.session(session), took)
    finally:
        kept.replace(log)
    return f"no room for the facts of {_name(fleet, session)!r}"


async def _prompted(fleet: AgentFleet, session: Session, text: str) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            await verb.send(fleet.paths, session, text)


def tear_log(fleet: AgentFleet, dice: Random) -> str:
    """Half a line of somebody else at the end of a log whose host is gone."""
    session, noise = dice.choice(fleet.talkers), dice.randbytes(40).replace(b"\n", b"")
    if lock_holder(fleet.paths.host_lock(session)) is not None:
        return "no log without a writer"
    with fleet.paths.log(session).open("ab") as file:
        file.write(b'{"kind":"message.said","at":1' + noise)
    return f"half a line in the log of {_name(fleet, session)!r}"


def kill_runner(fleet: AgentFleet, dice: Random) -> str:
    lock = fleet.paths.plan(fleet.plan) / "host.lock"
    return "kill -9 of the plan's runner" if fleet.plan and _kill(lock_holder(lock)) else "no runner to kill"


def recover(fleet: AgentFleet, dice: Random) -> str:
    """`kasmon recover`, which starts each lost agent that has a conversation once, and the plan's runner."""
    lost = [each.id for each in fleet.fleet().sessions if each.state is SessionState.LOST]
    fleet.wanted.update(lost)
    done = fleet.command("recover")
    if "Traceback" in done.stderr:
        fleet.broken.append(f"`kasmon recover` fell: {done.stderr.splitlines()[-1]}")
    return f"kasmon recover: {len(lost)} were lost"


def look(fleet: AgentFleet, dice: Random) -> str:
    """A verb of somebody at another terminal, cold."""
    verb_ = dice.choice((("ls",), ("inbox",), ("ls", "--json"), ("plan", "show", "chaos")))
    done = fleet.command(*verb_)
    if "Traceback" in done.stderr:
        fleet.broken.append(f"`kasmon {' '.join(verb_)}` fell: {done.stderr.splitlines()[-1]}")
    return f"kasmon {' '.join(verb_)}"


DEEDS: Final[dict[str, Fault]] = {
    "prompt a structured agent": Fault(20, prompt_talker),
    "prompt a terminal": Fault(16, prompt_box),
    "answer": Fault(14, answer),
    "answer another text": Fault(4, answer_stale),
    "type": Fault(10, type_keys),
    "resize": Fault(6, resize),
    "restart": Fault(12, restart),
    "interrupt": Fault(3, interrupt),
    "run code": Fault(4, run_code),
    "end a dashboard": Fault(6, end_dashboard),
    "kill a host": Fault(5, kill_host),
    "kill the fork server": Fault(3, kill_fork_server),
    "kill the tmux host": Fault(3, kill_tmux_host),
    "kill tmux": Fault(1, kill_tmux),
    "kill an agent": Fault(4, kill_agent),
    "kill a sandbox": Fault(2, kill_jail),
    "sweep a socket": Fault(2, sweep_sockets),
    "damage the index": Fault(2, damage_index),
    "break the config": Fault(2, break_config),
    "let the clock jump": Fault(3, jump),
    "fill the disk": Fault(3, fill_disk),
    "tear a log": Fault(2, tear_log),
    "kill the runner": Fault(2, kill_runner),
    "recover": Fault(3, recover),
    "look": Fault(4, look),
}
