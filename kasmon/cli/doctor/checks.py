"""The checks of `kasmon doctor`, from Python to the running hosts and machines. Those of agents are in
`cli/doctor/agents.py`."""

import asyncio
import errno
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from kasmon import __version__, system
from kasmon.charset import needs_ascii
from kasmon.cli import mcp
from kasmon.cli.dashboard import no_screen
from kasmon.cli.doctor.agents import agents, fallbacks, hooks, statuses, versions
from kasmon.cli.doctor.result import DoctorCheck, Level
from kasmon.cli.doctor.strays import strays
from kasmon.cli.doctor.system import limits, sqlite
from kasmon.cli.ls import is_utf8
from kasmon.cli.notify.commands import check_notifications
from kasmon.cli.web import command as web
from kasmon.config import load
from kasmon.config.parser import read
from kasmon.errors import KasmonError, RemoteUnreachableError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.sandbox.policy import Tier
from kasmon.model.session_state import SessionState
from kasmon.paths import SOCKET_PATH_BYTES, Paths, no_runtime_dir
from kasmon.sandbox import tiers
from kasmon.sandbox.base import TierProbe
from kasmon.store.machines import machine_names
from kasmon.supervisor.fleet.snapshot import find_write_problem, read_fleet
from kasmon.supervisor.machines import registration
from kasmon.supervisor.machines.candidates import machines_in_use
from kasmon.supervisor.sessions.folder_config import in_folder
from kasmon.tmux.remote.ssh import RemoteMachine, ssh_environment
from kasmon.tmux.remote.task import version

if TYPE_CHECKING:
    from kasmon.supervisor.sessions.other_hosts import OtherHost

AT_ONCE: Final = 8
"""This many machines are probed at once: an unreachable one takes ten seconds."""


def machines(where: Paths, judge_tmux: Callable[[str], tuple[Level, str]]) -> Iterator[DoctorCheck]:
    """Check each machine that a session runs or ran on; *judge_tmux* judges its tmux."""
    try:
        hosts, ssh = machines_in_use(read_fleet(where)), load(where).remote.ssh
    except KasmonError:
        return  # other checks report it
    if hosts:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asked = pool.map(partial(_check_machine, ssh=ssh, judge_tmux=judge_tmux), hosts)
            yield from (replace(check, private={host: "⟨machine⟩"}) for host, check in zip(hosts, asked, strict=True))


def _check_machine(host: str, ssh: tuple[str, ...], judge_tmux: Callable[[str], tuple[Level, str]]) -> DoctorCheck:
    name = f"machine-{host}"
    try:
        output = version(RemoteMachine(host, ssh), ssh_environment(os.environ))
    except RemoteUnreachableError as error:
        return DoctorCheck(name, "warn", f"{host!r} does not respond: {error.why}", fix=error.hint)
    if not output:
        text = f"{host!r} responds, but has no tmux: no agent can be started there"
        return DoctorCheck(name, "fail", text, fix=f"Install tmux 3.4 or newer on {host!r}.")
    level, why = judge_tmux(output)
    text = f"{host!r} responds, with {output}" + (f": {why}" if why else "")
    return DoctorCheck(name, level, text, fix=f"Install a newer tmux on {host!r}." if level != "ok" else "")


def registered_machines(where: Paths) -> Iterator[DoctorCheck]:
    """Check the link to each registered machine, and the kasmon there."""
    for name in machine_names(where):
        check = f"registered-machine-{name}"
        try:
            status = registration.status(where, name)
        except KasmonError as error:
            yield DoctorCheck(check, "fail", error.message, fix=error.hint)
            continue
        if status.link is None:
            yield DoctorCheck(
                check,
                "warn",
                f"the link to {name!r} does not run: its sessions are unsure",
                fix="Open the dashboard, or run `kasmon machines ls`: both start it.",
                mend=partial(registration.start_link, where, name),
                private={name: "⟨machine⟩"},
            )
            continue
        version, why = status.presence.kasmon, status.presence.why
        text = f"{name!r} is {status.state}" + (f": {why}" if why else f", with kasmon {version}")
        is_other = bool(version) and not why and version != __version__
        fix = f"`kasmon machines show {name}` shows the log of the link." if why else ""
        if status.clock_problem and not fix:
            fix = f"Set the clock of {name!r}. Ages are corrected here; the times of its events are not."
        problems = [f"this is kasmon {__version__}"] if is_other else []
        problems += [status.clock_problem] if status.clock_problem else []
        yield DoctorCheck(
            check,
            "warn" if why or problems else "ok",
            "; ".join((text, *problems)),
            fix="Use the same version on both." if is_other else fix,
            private={name: "⟨machine⟩"},
        )


TMUX_LIMIT_S: Final = 5.0
SMALLEST: Final = (80, 24)
"""The smallest recommended terminal for the dashboard: columns and rows."""


def checks(where: Paths, environment: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Run all checks, the most fundamental first. Changes nothing; contacts machines that were used."""
    yield python()
    yield tmux(environment)
    yield from terminal(environment)
    yield from folders(where, environment)
    yield socket_path(where)
    yield config(where)
    yield from local(where)
    yield sqlite(where)
    yield from limits(system.HERE)
    yield agents(where, environment)
    yield from versions(where, environment)
    yield from hooks(where, environment)
    yield from statuses(where, environment)
    yield from fallbacks(where, environment)
    yield from strays(where)
    yield from check_sandboxes(where)
    yield from machines(where, judge_tmux)
    yield from registered_machines(where)
    yield mcp.check()
    yield web.check()
    yield check_notifications(where)
    yield from hosts(where)
    yield from host_versions(where)


def python() -> DoctorCheck:
    """Report which Python runs kasmon."""
    version = ".".join(map(str, sys.version_info[:3]))
    return DoctorCheck("python", "ok", f"Python {version} at {sys.executable}")


def tmux(environment: Mapping[str, str]) -> DoctorCheck:
    """Report which tmux would be used, and the known problems of its version."""
    wanted = environment.get("KASMON_TMUX") or "tmux"
    program = shutil.which(wanted, path=environment.get("PATH"))
    get = "Install tmux 3.4 or newer, for example `apt-get install tmux` or `brew install tmux`."
    if program is None:
        text = f"{wanted!r} is not on PATH: structured sessions work, terminal sessions do not"
        return DoctorCheck("tmux", "fail", text, fix=get)
    try:
        output = subprocess.run(
            [program, "-V"], capture_output=True, text=True, timeout=TMUX_LIMIT_S, check=False
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return DoctorCheck("tmux", "fail", f"cannot read the version of {program!r}: {error}", fix=get)
    level, why = judge_tmux(output)
    text = f"{output or 'something that is no tmux'} at {program}" + (f": {why}" if why else "")
    return DoctorCheck("tmux", level, text, fix=get if level != "ok" else "")


def judge_tmux(output: str) -> tuple[Level, str]:
    """Return the level of the tmux whose `-V` prints *output*, and its known problem."""
    found = re.search(r"(\d+)\.(\d+)([a-z]?)", output)
    if not output.startswith("tmux"):
        return "fail", "it is not tmux"
    if found is None:
        return "ok", ""
    version, letter = (int(found[1]), int(found[2])), found[3]
    if version < (3, 2):
        return "fail", "too old (minimum 3.2); structured sessions work without it"
    if (version, letter) == ((3, 7), ""):
        return "fail", "this release crashes on break-pane; 3.7a does not"
    if version < (3, 4):
        return "warn", "it crashes when text is pasted into a dead pane; kasmon's paste guard is active"
    if (version, letter) in (((3, 6), ""), ((3, 6), "a"), ((3, 6), "b")):
        return "warn", "it may crash when a terminal with a large history is resized in copy mode"
    return "ok", ""


def terminal(environment: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Check whether the dashboard could open here; skipped without a terminal."""
    if not sys.stdout.isatty():
        yield DoctorCheck("terminal", "ok", "not checked: the output is not a terminal", is_info=True)
        return
    if why := no_screen(environment):
        fix = "Run kasmon in a terminal; `kasmon ls --watch` works anywhere."
        yield DoctorCheck("terminal", "warn", f"the dashboard cannot open here: {why}", fix=fix)
        return
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    small = columns < SMALLEST[0] or rows < SMALLEST[1]
    text = f"{environment.get('TERM')}, {columns}x{rows}, {colours(environment)}"
    yield DoctorCheck("terminal", "warn" if small else "ok", text, fix="Make it 80x24 or larger." if small else "")
    encoding = "ASCII (from the locale)" if needs_ascii() else sys.stdout.encoding or "none"
    utf8 = is_utf8()
    fix = "" if utf8 else "Set LANG to a UTF-8 locale, for example C.UTF-8; until then shapes are ASCII."
    yield DoctorCheck("encoding", "ok" if utf8 else "warn", f"the terminal's encoding is {encoding}", fix=fix)


def colours(environment: Mapping[str, str]) -> str:
    """Return the terminal's number of colours according to its variables."""
    if environment.get("NO_COLOR"):
        return "no colours (NO_COLOR)"
    if environment.get("COLORTERM") in ("truecolor", "24bit"):
        return "16 million colours"
    return "256 colours" if "256" in environment.get("TERM", "") else "few colours"


def folders(where: Paths, environment: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Check whether kasmon's folders are private and writable."""
    yield _folder("state", where.state)
    yield runtime(where, environment)
    yield _folder("config", where.config)
    if full := find_write_problem(where):
        yield DoctorCheck("disk", "fail", f"{str(where.state)!r}: {full}", fix="Make room on this disk.")
    else:
        yield DoctorCheck("disk", "ok", "writable")


def runtime(where: Paths, environment: Mapping[str, str]) -> DoctorCheck:
    """Check the sockets' folder; warn if it is not the one that XDG_RUNTIME_DIR names."""
    check = _folder("runtime", where.runtime)
    if where.given_runtime is not None or check.level == "fail":
        return check
    why = no_runtime_dir(environment)
    instead = f"using {str(where.runtime)!r}" if where.has_runtime else "created when needed"
    fix = "Set XDG_RUNTIME_DIR to a private folder with a short path." if environment.get("XDG_RUNTIME_DIR") else ""
    text = f"XDG_RUNTIME_DIR: {why}; {instead}"
    return DoctorCheck(check.id, "warn" if fix else "ok", text, fix=fix)


def _folder(name: str, folder: Path) -> DoctorCheck:
    identity = f"folder-{name}"
    try:
        facts = folder.lstat()
    except FileNotFoundError:
        return DoctorCheck(identity, "ok", f"{str(folder)!r} is created when needed")
    except NotADirectoryError:
        return DoctorCheck(
            identity, "fail", f"cannot create {str(folder)!r}: its parent is a file", fix="Move that file away."
        )
    except OSError as error:
        return DoctorCheck(identity, "fail", f"{str(folder)!r}: {error.strerror}")
    make_ours = f"chmod 700 {folder}"
    if name == "config" and stat.S_ISLNK(facts.st_mode):
        return DoctorCheck(identity, "ok", f"{str(folder)!r} is a symbolic link")
    if not stat.S_ISDIR(facts.st_mode):
        is_link = stat.S_ISLNK(facts.st_mode)
        return DoctorCheck(
            identity,
            "fail",
            f"{str(folder)!r} is {'a symbolic link, which kasmon does not follow' if is_link else 'not a folder'}",
            fix="Move it away: kasmon creates a folder there.",
        )
    if facts.st_uid != os.geteuid():
        return DoctorCheck(
            identity, "fail", f"{str(folder)!r} belongs to another user", fix=f"chown {os.geteuid()} {folder}"
        )
    if facts.st_mode & 0o022:
        text, mend = f"other users can write to {str(folder)!r}", partial(folder.chmod, 0o700)
        return DoctorCheck(identity, "fail", text, fix=make_ours, mend=mend)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return DoctorCheck(identity, "fail", f"{str(folder)!r}: {os.strerror(errno.EACCES)}", fix=make_ours)
    return DoctorCheck(identity, "ok", str(folder))


def socket_path(where: Paths) -> DoctorCheck:
    """Check whether the system accepts the length of socket paths in the runtime folder."""
    if not where.has_runtime:
        return DoctorCheck("socket-path", "ok", "the runtime folder will get a short path")
    longest = len(os.fsencode(where.socket("12345678")))
    if longest > SOCKET_PATH_BYTES:
        limit = f"a socket path would have {longest} bytes (maximum {SOCKET_PATH_BYTES})"
        text = f"the runtime folder's path is too long: {limit}"
        return DoctorCheck("socket-path", "fail", text, fix="Set XDG_RUNTIME_DIR to a folder with a shorter path.")
    return DoctorCheck("socket-path", "ok", f"socket paths have {longest} of {SOCKET_PATH_BYTES} bytes")


def config(where: Paths) -> DoctorCheck:
    """Check whether the config is valid, its keys included."""
    from kasmon.tui.keymap import chosen

    try:
        chosen(load(where).keys, str(where.config_file), read(where.config_file))
    except KasmonError as error:
        return DoctorCheck("config", "fail", error.message, fix=error.hint or f"Edit {where.config_file}.")
    exists = where.config_file.exists()
    return DoctorCheck("config", "ok", str(where.config_file) if exists else "no config file; using the defaults")


def local(where: Paths) -> Iterator[DoctorCheck]:
    """Report whether the current folder's own config is trusted; nothing of it is run."""
    try:
        settings = in_folder(where, load(where), "")
    except (KasmonError, OSError):
        return  # the checks of the config or the folder report it
    if settings.counts and settings.local is not None:
        yield DoctorCheck("local-config", "ok", f"{settings.local.file} is trusted and applies here")
    elif settings.notice:
        what, _, fix = settings.notice.partition(". ")
        yield DoctorCheck("local-config", "warn", what.removesuffix("."), fix=fix)


def hosts(where: Paths) -> Iterator[DoctorCheck]:
    """Report live hosts, and sockets of hosts that no longer run."""
    try:
        sessions = read_fleet(where).sessions
    except KasmonError as error:
        yield DoctorCheck("hosts", "fail", error.message)
        return
    alive = sum(session.host is not None and session.host.alive for session in sessions)
    odd = [session for session in sessions if session.state in ("lost", "unsure")]
    text = f"{len(sessions)} sessions, {alive} with a live host"
    if odd:
        text += f"; lost or unsure: {', '.join(session.name for session in odd)}"
    fix = "`kasmon explain SESSION` explains why a session is unsure." if odd else ""
    if any(session.state is SessionState.LOST for session in odd):
        fix = "`kasmon restart SESSION` restarts a lost session."
    names = {session.name: session.id for session in odd}
    yield DoctorCheck("hosts", "warn" if odd else "ok", text, fix=fix, private=names)
    stale = list(_stale_sockets(where))
    if stale:
        text, fix = f"{len(stale)} sockets of hosts that no longer run", "`kasmon doctor --fix` removes them."
        yield DoctorCheck("sockets", "warn", text, fix=fix, mend=partial(_remove, stale))


def host_versions(where: Paths) -> Iterator[DoctorCheck]:
    """Report hosts of another kasmon version; `--fix` replaces those that can hand over."""
    from kasmon.supervisor.sessions.other_hosts import find_other_hosts  # loads asyncio, and is rarely needed

    try:
        others = find_other_hosts(where, read_fleet(where).sessions)
    except (KasmonError, OSError):
        return  # the check of hosts reports it
    names = {each.name: each.session.id for each in others if each.session is not None}
    if movable := [each for each in others if each.status is not None]:
        text = f"hosts of another kasmon version: {'; '.join(each.text for each in movable)}"
        fix = "`kasmon doctor --fix` replaces them: terminals keep running, other agents are resumed after their turn."
        mend = partial(_replace, where, movable)
        yield DoctorCheck("host-versions", "warn", text, fix=fix, mend=mend, private=names)
    if fixed := [each for each in others if each.status is None]:
        text = f"hosts too old to hand over: {'; '.join(each.text for each in fixed)}"
        fix = " ".join(each.end for each in fixed)
        yield DoctorCheck("host-too-old", "warn", text, fix=fix, private=names)


def _replace(where: Paths, others: Sequence["OtherHost"]) -> None:
    """Try each of *others*. Raise `KasmonError` if some were not replaced."""
    from kasmon.supervisor.sessions.other_hosts import replace  # likewise

    problems = []
    for other in others:
        try:
            asyncio.run(replace(where, other))
        except KasmonError as error:
            problems.append(str(error))
    if problems:
        raise KasmonError(" ".join(problems))


def _stale_sockets(where: Paths) -> Iterator[Path]:
    """Yield sockets of structured hosts whose lock is free; not those of tmux and the tmux host."""
    for path in sorted(where.runtime.glob("????????.sock")):
        if lock_holder(where.host_lock(path.stem)) is None and stat.S_ISSOCK(path.lstat().st_mode):
            yield path


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def check_sandboxes(where: Paths) -> Iterator[DoctorCheck]:
    """Check each tier; only the config's own tier causes a warning."""
    try:
        wanted: Tier = load(where).sandbox.tier
    except KasmonError:
        wanted = "jail"  # another check reports it
    scratch = Path(tempfile.mkdtemp(prefix="kasmon-"))
    aside = Paths(state=scratch / "s", config=scratch / "c", given_runtime=scratch / "r")
    try:
        with ThreadPoolExecutor(len(tiers.TIERS)) as pool:
            for probe in pool.map(partial(_probe_tier, of=aside), tiers.TIERS):
                yield _build_tier_check(probe, is_wanted=probe.tier == wanted)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _probe_tier(tier: Tier, of: Paths) -> TierProbe:
    try:
        return tiers.load(tier, of).probe()
    except (KasmonError, OSError) as error:
        why = error.message if isinstance(error, KasmonError) else str(error)
        return TierProbe(tier=tier, ok=False, why=why.rstrip("."), hint=getattr(error, "hint", ""))


def _build_tier_check(probe: TierProbe, *, is_wanted: bool) -> DoctorCheck:
    took = "" if probe.measured_ms is None else f"tried in {probe.measured_ms:.0f} ms"
    what = "works" if probe.ok else "unavailable"
    text = f"{what}: {'; '.join(part for part in (took, probe.why) if part)}".removesuffix(": ")
    level: Level = "ok" if probe.ok or not is_wanted else "warn"
    return DoctorCheck(
        f"sandbox-{probe.tier}", level, text, fix="" if probe.ok else probe.hint, is_info=not probe.ok and not is_wanted
    )
