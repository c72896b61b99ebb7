"""Values of registered machines, and the sessions there."""

from typing import Any

from kasmon.model.fleet import Fleet
from kasmon.model.session import HostProbe, Session
from kasmon.model.session_state import SessionState
from kasmon.store.machines import Machine, MachineStatus, Presence
from tests.support.sample_fleet import NOW, asking, change, command, ended, fleet, idle, session, working


def registered(name: str, why: str = "", *, ago: float = 125.0) -> MachineStatus:
    """A machine that is connected, or unreachable with this reason, since *ago* seconds."""
    return MachineStatus(
        machine=Machine(name=name, ssh=f"you@{name}"),
        presence=Presence(since=NOW - ago, why=why, kasmon="0.1.0", link=4100),
        link=4100,
    )


MACHINES = (registered("build"), registered("gpu-1"), registered("lab", "no sign of life for 10 s"))


def there(machine: str, seen: Session) -> Session:
    """*seen*, as a session of a registered machine."""
    fields: dict[str, Any] = {"via": machine, "machine": machine, "workdir": f"{machine}:{seen.workdir}", "pid": None}
    return Session(**{name: getattr(seen, name) for name in seen.__struct_fields__} | fields)


def cut_off(name: str, machine: str = "lab", *, ago: float = 125.0, **fields: Any) -> Session:
    """A session whose machine is unreachable, as `supervisor.fleet.liveness.derive` shows it."""
    shown = session(
        name,
        SessionState.UNSURE,
        ago=ago,
        source="link",
        unsure_why=f"{machine} is unreachable: no sign of life for 10 s",
        host=HostProbe(pid=None, alive=False),
        **fields,
    )
    return there(machine, shown)


def three_machines() -> Fleet:
    """Sessions here and on three other machines, of which one is unreachable."""
    return fleet(
        asking("fix-auth", ago=12),
        working("docs", "Bash  make html", ago=8),
        there("gpu-1", asking("train", command("train", "torchrun --nproc 8 train.py"), ago=31)),
        there("gpu-1", working("evaluate", "Reading runs/41/metrics.json", ago=64, agent="codex")),
        there("build", asking("release", change("release"), ago=90, agent="codex")),
        there("build", idle("changelog", "The changelog has an entry for each change.", ago=75)),
        there("build", ended("nightly", 0, ago=5400, last_line="214 tests pass")),
        cut_off("sensors", last_line="Calibrating the second camera"),
        cut_off("arm", agent="gemini"),
    )
