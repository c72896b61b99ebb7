"""The registered machines, and what the link to each reported last.

A machine has a folder in `Paths.machines`: `machine.json` says how it is reached, `presence.json` what is known of it.
Its link (`kasmon.bus.link`) writes the latter, and holds `link.lock` while it runs.
"""

import contextlib
import os
import re
import time
from typing import Final, NamedTuple

import msgspec

from kasmon.errors import NotFoundError, RefusedError, UnavailableError, UsageError
from kasmon.model.formatting import duration
from kasmon.model.permission import SessionId
from kasmon.model.plan.plan import ANY, LOCAL
from kasmon.paths import Paths, private_folder, read_json, write_private

ALL: Final = "all"
"""What `--machine` calls this machine and all registered ones."""
NEVER_CONNECTED: Final = "it was never connected"
NO_LINK: Final = "the link to it does not run"
CONNECTING: Final = "the link to it is connecting"
CLOCK_OFF_S: Final = 5.0
"""A clock that is off by more is reported."""
TICK_NS: Final = 50_000_000
"""For longer than this, no two changes of a folder have the same time, in ns."""
NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
"""A machine's name: it is a folder, a part of `NAME:PATH`, and a token of a NATS subject."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A registered machine."""

    name: str
    ssh: str = ""
    """Its ssh destination; empty for another kasmon on this machine, which `command` runs."""
    cluster: str = ""
    """The cluster that it is reached over instead, as an operator of it (`kasmon.bus.nats`)."""
    command: tuple[str, ...] = ("kasmon",)
    """The program there, with its first arguments."""
    added_at: float = 0.0
    drained: bool = False
    """Whether no more sessions are started there from here."""


class HostPresence(msgspec.Struct, frozen=True, array_like=True):
    """Which processes of a session are alive on its machine, as `supervisor.fleet.liveness.Liveness`."""

    host: int | None = None
    agent_runs: bool = False
    written_at: float = 0.0
    write_problem: str = ""
    is_folder_missing: bool = False
    unreadable: str = ""


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """What the link to a machine reported last."""

    since: float = 0.0
    """Since when it is connected or not, in seconds since the epoch."""
    why: str = ""
    """Why the machine is unreachable; empty while it is connected."""
    link: int = 0
    """The pid of the link that reported it; another one has not reported anything yet."""
    link_kasmon: str = ""
    is_late: bool = False
    """Whether it is connected, and its last sign of life is some seconds old."""
    kasmon: str = ""
    """The version of kasmon there; empty if it was never connected."""
    clock_offset_s: float = 0.0
    """How far its clock is ahead of the one here; 0 if less than half a second, or unknown."""
    sessions: dict[SessionId, HostPresence] = {}


class MachineReport(NamedTuple):
    """A registered machine, and what its link reported."""

    machine: Machine
    presence: Presence
    reported_at: float
    """When, in seconds since the epoch; 0 if it never did."""


class MachineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A registered machine, and what is known of it."""

    machine: Machine
    presence: Presence
    link: int | None
    """The pid of the link to it; None if it does not run."""
    reported_at: float = 0.0
    """When its link reported `presence`, in seconds since the epoch; 0 if it never did."""

    @property
    def state(self) -> str:
        if self.link is None:
            return "no link"
        if self.link != self.presence.link:
            return "connecting"
        if self.presence.is_late:
            return "late"
        return "unreachable" if self.presence.why else "connected"

    @property
    def is_unreachable(self) -> bool:
        return self.state not in ("connected", "late")

    @property
    def clock_problem(self) -> str:
        """A text that says how far its clock is off; empty if by `CLOCK_OFF_S` at most, or unknown."""
        offset_s = self.presence.clock_offset_s
        if abs(offset_s) <= CLOCK_OFF_S:
            return ""
        return f"its clock is {duration(abs(offset_s))} {'ahead of' if offset_s > 0 else 'behind'} this one"

    @property
    def why_unreachable(self) -> str:
        """Why its sessions are unreachable; empty if they are not."""
        if self.presence.why or not self.is_unreachable:
            return self.presence.why
        return NO_LINK if self.link is None else CONNECTING

    @property
    def unreachable_since(self) -> float:
        """Since when, in seconds since the epoch; 0 if that is not known."""
        return self.presence.since if self.presence.why else self.reported_at


def check_name(name: str) -> str:
    """Return *name*.

    Raises:
        UsageError: if it cannot be a machine's name.
    """
    if NAME.fullmatch(name):
        return name
    raise UsageError(
        f"{name!r} cannot be the name of a machine.",
        hint="Use up to 32 lower-case letters, digits, `-` and `_`, beginning with a letter or digit.",
    )


def machine_names(paths: Paths) -> list[str]:
    """Return the names of the registered machines, sorted."""
    return [name for name in machine_folders(paths) if (paths.machine(name) / "machine.json").exists()]


def machine_folders(paths: Paths) -> list[str]:
    """Return the names of the registered machines, sorted, and of those that are being added or removed."""
    with contextlib.suppress(OSError):
        return sorted(filter(NAME.fullmatch, os.listdir(paths.machines)))  # noqa: PTH208 - with each refresh
    return []


def read_machine(paths: Paths, name: str) -> Machine:
    """Return the machine that is registered as *name*.

    Raises:
        NotFoundError: if none is.
        UnavailableError: if its file cannot be read.
    """
    path = paths.machine(check_name(name)) / "machine.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Machine)
    except FileNotFoundError as error:
        raise NotFoundError(f"no machine {name!r} is registered.", hint="See `kasmon machines`.") from error
    except (OSError, msgspec.DecodeError) as error:
        raise UnavailableError(
            f"cannot read {str(path)!r}: {error}.", hint=f"Add it again: `kasmon machines rm {name}`, then `add`."
        ) from error


def own_names(paths: Paths) -> frozenset[str]:
    """Return the names of this machine: its host name, and those as which it joined clusters."""
    names = {os.uname().nodename.partition(".")[0].lower()}
    for file in paths.identities.glob("*-machine.json"):
        names.add(read_json(file, _Member, _Member("")).name)
    return frozenset(filter(NAME.fullmatch, names))


class _Member(msgspec.Struct, frozen=True):
    """What is read here of an identity in a cluster."""

    name: str


def is_own_name(paths: Paths, name: str) -> bool:
    """Whether *name* is this machine: `LOCAL`, or a name of its own that no other one is registered as."""
    return name == LOCAL or (name in own_names(paths) and not (paths.machine(name) / "machine.json").exists())


def is_drained(paths: Paths) -> bool:
    """Whether no more tasks of plans are placed on this machine."""
    return paths.drained.exists()


def write_drained(paths: Paths, *, drained: bool) -> None:
    """Record whether no more tasks of plans are placed on this machine.

    Raises:
        UnavailableError: if it cannot be written.
    """
    try:
        if drained:
            paths.make()
            write_private(paths.drained, b"", durable=True)
        else:
            paths.drained.unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot change {str(paths.drained)!r}: {error.strerror}.") from error


def require_free(paths: Paths, name: str) -> None:
    """Raise unless a machine can be registered as *name*.

    Raises:
        UsageError: if it cannot be a machine's name.
        RefusedError: if it is taken.
    """
    if name in (ALL, ANY, LOCAL):
        raise UsageError(f"{name!r} cannot be the name of a machine: it means something else in plans or commands.")
    if (paths.machine(check_name(name)) / "machine.json").exists():
        raise RefusedError(f"a machine {name!r} is registered.", hint="Choose another name, or remove it first.")


def write_machine(paths: Paths, machine: Machine, *, is_new: bool = False) -> None:
    """Register *machine*, or change it.

    Raises:
        RefusedError: if it *is_new* and its name is taken.
        UnavailableError: if it cannot be written.
    """
    folder = paths.machine(check_name(machine.name))
    if is_new:
        require_free(paths, machine.name)
    try:
        paths.make()
        private_folder(paths.machines)
        write_private(private_folder(folder) / "machine.json", msgspec.json.encode(machine), durable=True)
    except OSError as error:
        raise UnavailableError(f"cannot write {str(folder)!r}: {error.strerror}.") from error


def remove_machine(paths: Paths, name: str) -> None:
    """Remove the registration of *name*. The copies of its sessions' logs stay."""
    import shutil  # only here: `kasmon ls` reads machines, and it takes 2 ms to load

    shutil.rmtree(paths.machine(check_name(name)), ignore_errors=True)


def read_presence(paths: Paths, name: str) -> Presence:
    """Return what the link to *name* reported last; a `Presence` with a reason if it never did."""
    return read_json(paths.machine(name) / "presence.json", Presence, Presence(why=NEVER_CONNECTED))


class MachineReader:
    """Reads what is registered, and what the links reported; again only if a machine's folder changed since."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._reports: dict[str, tuple[int, int, MachineReport | None]] = {}
        """By machine: when its folder had changed last, when its files were read, both in ns, and the result."""

    def read(self, name: str) -> "MachineReport | None":
        """Return what is known of the machine *name*: the same value as before unless it changed; None without one."""
        try:
            changed_at = os.stat(f"{self._paths.machines}/{name}").st_mtime_ns  # noqa: PTH116 - likewise
        except OSError:
            self._reports.pop(name, None)
            return None
        known = self._reports.get(name)
        if known is None or known[0] != changed_at or known[1] - changed_at < TICK_NS:
            known = self._reports[name] = changed_at, time.time_ns(), self._read(name, known and known[2])
        return known[2]

    def _read(self, name: str, before: "MachineReport | None") -> "MachineReport | None":
        presence, reported_at = Presence(why=NEVER_CONNECTED), 0.0
        try:
            machine = read_machine(self._paths, name)
            presence = read_presence(self._paths, name)
            reported_at = (self._paths.machine(name) / "presence.json").stat().st_mtime
        except NotFoundError:
            return None
        except UnavailableError as error:
            machine, presence = Machine(name=name), Presence(why=error.message)
        except OSError:
            pass
        report = MachineReport(machine, presence, reported_at)
        return before if before == report else report


def write_presence(paths: Paths, name: str, presence: Presence) -> None:
    """Replace what is known of the machine *name*.

    Raises:
        OSError: if it cannot be written.
    """
    write_private(paths.machine(name) / "presence.json", msgspec.json.encode(presence))


class _Children(msgspec.Struct):
    """The content of `children.json` in the machine's folder."""

    started: dict[SessionId, SessionId] = {}
    """Session there -> the one here whose agent had it started."""
    delivered: dict[SessionId, int] = {}
    """Session there -> how many of its messages were delivered, or refused."""


class ChildRegister:
    """What agents here had started on *machine*, in a file; only the link to it writes it. Its methods block."""

    def __init__(self, paths: Paths, machine: str) -> None:
        import threading  # only here: `kasmon ls` reads machines

        self._path = paths.machine(machine) / "children.json"
        self._children, self._lock = read_json(self._path, _Children, _Children()), threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._children.started)

    def add(self, session: SessionId, starter: SessionId) -> None:
        """Record that the agent of *starter* had *session* started. Raises `OSError` if it cannot be written."""
        with self._lock:
            self._children.started.setdefault(session, starter)
            self._save()

    def remove(self, session: SessionId) -> None:
        """Forget *session*, which is no longer listed there. Raises `OSError` if it cannot be written."""
        with self._lock:
            if session in self._children.started or session in self._children.delivered:
                self._children.started.pop(session, None)
                self._children.delivered.pop(session, None)
                self._save()

    def starter_of(self, session: SessionId) -> SessionId | None:
        return self._children.started.get(session)

    def delivered(self, session: SessionId) -> int:
        return self._children.delivered.get(session, 0)

    def note_delivered(self, session: SessionId, number: int) -> None:
        """Record that the messages of *session* up to *number* are done. Raises `OSError` if it cannot be written."""
        with self._lock:
            self._children.delivered[session] = number
            self._save()

    def _save(self) -> None:
        write_private(self._path, msgspec.json.encode(self._children), durable=True)


def machine_of(paths: Paths, session: SessionId) -> str:
    """Return the registered machine whose session it is; empty for a session of this kasmon.

    Raises:
        OSError: if that cannot be read.
        UsageError: if it is no name of a machine.
    """
    try:
        name = paths.via(session).read_text("utf-8", "replace").partition("\n")[0]
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return check_name(name)
