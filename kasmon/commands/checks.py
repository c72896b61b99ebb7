"""What `kasmon doctor` looks at, from Python to the hosts that live. Its agents have a page of their own."""

import errno
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from kasmon.charset import wants_ascii
from kasmon.commands import browsing, serving
from kasmon.commands.check import Check, Level
from kasmon.commands.check_agents import agents, fallbacks, hooks, statuses, versions
from kasmon.commands.check_machines import machines
from kasmon.commands.check_sandboxes import sandboxes
from kasmon.commands.check_strays import strays
from kasmon.commands.check_system import limits, sqlite
from kasmon.commands.listing import is_utf8
from kasmon.commands.screen import no_screen
from kasmon.config import load
from kasmon.config.file import read
from kasmon.errors import KasmonError
from kasmon.host.alive import lock_holder
from kasmon.model.state import SessionState
from kasmon.paths import SOCKET_PATH_BYTES, Places, no_runtime_dir
from kasmon.supervisor.local_config import in_folder
from kasmon.supervisor.look import look_once, no_room

TMUX_LIMIT_S: Final = 5.0
SMALLEST: Final = (80, 24)
"""The smallest terminal that the dashboard is at ease in: columns and rows."""


def checks(where: Places, environment: Mapping[str, str]) -> Iterator[Check]:
    """Look at everything, the most fundamental first. Leaves nothing behind; asks machines that were used."""
    yield python()
    yield tmux(environment)
    yield from terminal(environment)
    yield from folders(where, environment)
    yield socket_path(where)
    yield config(where)
    yield from local(where)
    yield sqlite(where)
    yield from limits()
    yield agents(where, environment)
    yield from versions(where, environment)
    yield from hooks(where, environment)
    yield from statuses(where, environment)
    yield from fallbacks(where, environment)
    yield from strays(where)
    yield from sandboxes(where)
    yield from machines(where, known_of_tmux)
    yield serving.check()
    yield browsing.check()
    yield from hosts(where)


def python() -> Check:
    """Which Python runs kasmon."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Check(id="python", level="ok", text=f"Python {version} at {sys.executable}")


def tmux(environment: Mapping[str, str]) -> Check:
    """Which tmux would be used, and what that version is known for."""
    wanted = environment.get("KASMON_TMUX") or "tmux"
    program = shutil.which(wanted, path=environment.get("PATH"))
    get = "Install tmux 3.4 or newer, for example `apt-get install tmux` or `brew install tmux`."
    if program is None:
        text = f"{wanted!r} is not on PATH: structured sessions work, terminals do not"
        return Check(id="tmux", level="fail", text=text, fix=get)
    try:
        said = subprocess.run(
            [program, "-V"], capture_output=True, text=True, timeout=TMUX_LIMIT_S, check=False
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(id="tmux", level="fail", text=f"{program!r} does not say its version: {error}", fix=get)
    level, why = known_of_tmux(said)
    text = f"{said or 'something that is no tmux'} at {program}" + (f": {why}" if why else "")
    return Check(id="tmux", level=level, text=text, fix=get if level != "ok" else "")


def known_of_tmux(said: str) -> tuple[Level, str]:
    """How good the tmux is whose `-V` says *said*, and why it is not quite."""
    found = re.search(r"(\d+)\.(\d+)([a-z]?)", said)
    if not said.startswith("tmux"):
        return "fail", "it is no tmux"
    if found is None:
        return "ok", ""
    version, letter = (int(found[1]), int(found[2])), found[3]
    if version < (3, 2):
        return "fail", "too old, kasmon needs 3.2; structured sessions work without it"
    if (version, letter) == ((3, 7), ""):
        return "fail", "this one release dies when a pane is broken off; 3.7a does not"
    if version < (3, 4):
        return "warn", "it dies when something is pasted into a dead pane; kasmon's paste guard is active"
    if (version, letter) in (((3, 6), ""), ((3, 6), "a"), ((3, 6), "b")):
        return "warn", "it may die when a terminal with a huge history is resized in copy mode"
    return "ok", ""


def terminal(environment: Mapping[str, str]) -> Iterator[Check]:
    """Whether the dashboard could open here."""
    if why := no_screen(environment):
        fix = "Run it in a terminal; `kasmon ls --watch` works anywhere."
        yield Check(id="terminal", level="warn", text=f"the dashboard cannot open here: {why}", fix=fix)
        return
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    small = columns < SMALLEST[0] or rows < SMALLEST[1]
    text = f"{environment.get('TERM')}, {columns}x{rows}, {colours(environment)}"
    yield Check(
        id="terminal", level="warn" if small else "ok", text=text, fix="Make it 80x24 or larger." if small else ""
    )
    encoding = "ASCII, as its locale says" if wants_ascii() else sys.stdout.encoding or "none"
    utf8 = is_utf8()
    fix = "" if utf8 else "Set LANG to a UTF-8 locale, for example C.UTF-8; until then shapes are ASCII."
    yield Check(id="encoding", level="ok" if utf8 else "warn", text=f"the terminal's encoding is {encoding}", fix=fix)


def colours(environment: Mapping[str, str]) -> str:
    """How many colours the terminal has, by what its variables say."""
    if environment.get("NO_COLOR"):
        return "no colours (NO_COLOR)"
    if environment.get("COLORTERM") in ("truecolor", "24bit"):
        return "16 million colours"
    return "256 colours" if "256" in environment.get("TERM", "") else "few colours"


def folders(where: Places, environment: Mapping[str, str]) -> Iterator[Check]:
    """Whether our folders are ours alone, and whether facts can be written down."""
    yield _folder("state", where.state)
    yield runtime(where, environment)
    yield _folder("config", where.config)
    if full := no_room(where):
        yield Check(id="disk", level="fail", text=f"{str(where.state)!r}: {full}", fix="Make room on this disk.")
    else:
        yield Check(id="disk", level="ok", text="facts can be written down")


def runtime(where: Places, environment: Mapping[str, str]) -> Check:
    """Where sockets are; told where that is not the folder that XDG_RUNTIME_DIR names."""
    check = _folder("runtime", where.runtime)
    if where.given_runtime is not None or check.level == "fail":
        return check
    why = no_runtime_dir(environment)
    instead = f"{str(where.runtime)!r} is used" if where.has_runtime else "one of our own is made when it is needed"
    fix = "Set XDG_RUNTIME_DIR to a folder of yours, with a short path." if environment.get("XDG_RUNTIME_DIR") else ""
    text = f"XDG_RUNTIME_DIR: {why}; {instead}"
    return Check(id=check.id, level="warn" if fix else "ok", text=text, fix=fix)


def _folder(name: str, folder: Path) -> Check:
    identity = f"folder-{name}"
    try:
        facts = folder.lstat()
    except FileNotFoundError:
        return Check(id=identity, level="ok", text=f"{str(folder)!r} is made when it is needed")
    except NotADirectoryError:
        return Check(
            id=identity,
            level="fail",
            text=f"{str(folder)!r} cannot be made: what it would lie in is a file",
            fix="Move that file out of the way.",
        )
    except OSError as error:
        return Check(id=identity, level="fail", text=f"{str(folder)!r}: {error.strerror}")
    make_ours = f"chmod 700 {folder}"
    if name == "config" and stat.S_ISLNK(facts.st_mode):
        return Check(id=identity, level="ok", text=f"{str(folder)!r} is a link")
    if not stat.S_ISDIR(facts.st_mode):
        return Check(id=identity, level="fail", text=f"{str(folder)!r} is no folder", fix="Move it out of the way.")
    if facts.st_uid != os.geteuid():
        return Check(
            id=identity,
            level="fail",
            text=f"{str(folder)!r} belongs to another user",
            fix=f"chown {os.geteuid()} {folder}",
        )
    if facts.st_mode & 0o022:
        text, mend = f"others can write to {str(folder)!r}", partial(folder.chmod, 0o700)
        return Check(id=identity, level="fail", text=text, fix=make_ours, mend=mend)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return Check(id=identity, level="fail", text=f"{str(folder)!r}: {os.strerror(errno.EACCES)}", fix=make_ours)
    return Check(id=identity, level="ok", text=str(folder))


def socket_path(where: Places) -> Check:
    """Whether the path of a socket in the runtime folder is one that the system takes."""
    if not where.has_runtime:
        return Check(id="socket-path", level="ok", text="the runtime folder gets a short path when it is made")
    longest = len(os.fsencode(where.socket("12345678")))
    if longest > SOCKET_PATH_BYTES:
        text = f"the runtime folder's path is too long: a socket's would have {longest} bytes, {SOCKET_PATH_BYTES} fit"
        return Check(
            id="socket-path", level="fail", text=text, fix="Set XDG_RUNTIME_DIR to a folder with a shorter path."
        )
    return Check(id="socket-path", level="ok", text=f"a socket's path has {longest} of {SOCKET_PATH_BYTES} bytes")


def config(where: Places) -> Check:
    """Whether the config can be used, its keys too."""
    from kasmon.tui.keys import chosen

    try:
        chosen(load(where).keys, str(where.config_file), read(where.config_file))
    except KasmonError as error:
        return Check(id="config", level="fail", text=error.message, fix=error.hint or f"Edit {where.config_file}.")
    there = where.config_file.exists()
    return Check(
        id="config", level="ok", text=str(where.config_file) if there else "there is none, so all is as shipped"
    )


def local(where: Places) -> Iterator[Check]:
    """Whether the config that this folder brings along counts; nothing of it runs here."""
    try:
        here = in_folder(where, load(where), "")
    except (KasmonError, OSError):
        return  # told of the config itself, or of the folder that is gone
    if here.counts and here.local is not None:
        yield Check(id="local-config", level="ok", text=f"{here.local.file} counts here: you trust it as it is")
    elif here.notice:
        what, _, fix = here.notice.partition(". ")
        yield Check(id="local-config", level="warn", text=what.removesuffix("."), fix=fix)


def hosts(where: Places) -> Iterator[Check]:
    """Who is alive, and which sockets nobody listens on any more."""
    try:
        sessions = look_once(where).sessions
    except KasmonError as error:
        yield Check(id="hosts", level="fail", text=error.message)
        return
    alive = sum(session.host is not None and session.host.alive for session in sessions)
    odd = [session for session in sessions if session.state in ("lost", "unsure")]
    text = f"{len(sessions)} sessions, {alive} with a live host"
    if odd:
        text += f"; lost or unsure: {', '.join(session.name for session in odd)}"
    fix = "`kasmon explain SESSION` says why nobody can tell how one is." if odd else ""
    if any(session.state is SessionState.LOST for session in odd):
        fix = "`kasmon restart SESSION` starts a lost one again."
    names = {session.name: session.id for session in odd}
    yield Check(id="hosts", level="warn" if odd else "ok", text=text, fix=fix, private=names)
    stale = list(_stale_sockets(where))
    if stale:
        text, fix = f"{len(stale)} sockets of hosts that are gone", "`kasmon doctor --fix` removes them."
        yield Check(id="sockets", level="warn", text=text, fix=fix, mend=partial(_remove, stale))


def _stale_sockets(where: Places) -> Iterator[Path]:
    """Sockets of structured hosts whose lock nobody holds; tmux's and the tmux host's own are left alone."""
    for path in sorted(where.runtime.glob("????????.sock")):
        if lock_holder(where.host_lock(path.stem)) is None and stat.S_ISSOCK(path.lstat().st_mode):
            yield path


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
