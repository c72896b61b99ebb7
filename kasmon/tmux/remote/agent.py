"""Starts, attaches to, queries and stops agents in a tmux on another machine, over ssh.

Each function that connects blocks, and raises `RemoteUnreachableError` if there is no connection.

No variable of an agent is on a command line, here or there: ssh passes scripts by stdin (`tmux/remote/ssh`). The
agent's variables are in a 0600 file there, which its launcher deletes before it starts the agent. Only attaching is a
command line; it contains a session id and a marker.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from kasmon.errors import RemoteLaunchError
from kasmon.tmux.quoting import own_name
from kasmon.tmux.remote.ssh import HEAD, OPTIONS, RemoteMachine, run_script
from kasmon.tmux.server_config import CELLS

SOCKET: Final = "kasmon-remote"
"""The name of the remote tmux server (`tmux -L`), apart from any other."""
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

CONF: Final = f"""\
set -s escape-time 0
set -s focus-events on
set -s set-clipboard off
set -s terminal-overrides[100] '*:smcup@:rmcup@'
set -g prefix None
set -g prefix2 None
set -g status off
set -g mouse off
set -g update-environment ''
set -g detach-on-destroy on
set -g default-size {CELLS[0]}x{CELLS[1]}
set -g set-titles on
set -g set-titles-string '#T'
set -gw window-size latest
set -gw remain-on-exit off
set -gw allow-rename off
set -gw automatic-rename off
unbind -a -T root
unbind -a -T prefix
"""
"""The conf of the remote tmux server. It uses no alternate screen, so that its history can be read in our pane."""

OF_SESSION: Final = """\
d=${{XDG_STATE_HOME:-$HOME/.local/state}}/kasmon-remote
s=$d/{session}
t() {{ tmux -u -L {socket} "$@" </dev/null; }}
"""
"""Shell prologue that sets the folder of the session's files."""

START: Final = """\
command -v tmux >/dev/null 2>&1 || say missing tmux
[ ! -f "$s/status" ] && t has-session -t ={session} 2>/dev/null && say runs
( cd -- {folder} ) 2>/dev/null || say missing folder
path=$("${{SHELL:-/bin/sh}}" -lc env </dev/null 2>/dev/null | sed -n 's/^PATH=//p' | tail -n 1)
[ -n "$path" ] || path=$PATH
[ -z {program} ] || ( PATH=$path; cd -- {folder} && command -v -- {program} ) >/dev/null 2>&1 || say missing program
t kill-session -t ={session} 2>/dev/null
rm -rf "$s" && mkdir -p "$s" || say missing room
printf '%s\\n' "$path" >"$s/path"
cat >"$d/tmux.conf" <<'{end}' || say missing room
{conf}set -g history-limit {history_lines}
{end}
cat >"$s/run" <<'{end}' || say missing room
{run}{end}
t -f "$d/tmux.conf" new-session -d -s {session} -x {columns} -y {rows} -- sh "$s/run" "$s" >&2 || say refused
say started
"""

RUN: Final = """\
s=$1
rm -f "$0"
trap : INT QUIT
PATH=$(cat "$s/path")
{exports}export PATH COLORTERM=truecolor
cd -- {folder} || exit
sh -c 'unset TMUX TMUX_PANE; echo $$ >"$1/pid"; shift; exec "$@"' sh "$s" {command}
status=$?
stty -icanon -echo min 0 time 20 2>/dev/null && printf '\\033[5n' && dd bs=4 count=1 >/dev/null 2>&1
tmux -u -L {socket} capture-pane -p {kept} -t ={session}: >"$s/screen" 2>/dev/null
echo "$status" >"$s/new" && mv "$s/new" "$s/status"
tmux -u -L {socket} kill-session -t ={session}
"""
"""The script of the remote pane. The reply to its query (`ESC [ 5 n`) shows that the remote tmux has drawn all that the
agent printed. The script kills its session itself: that tmux, too, sometimes misses the death of a child."""

STATE: Final = """\
if [ -f "$s/status" ]; then
    status=$(cat "$s/status")
    show; cat "$s/screen" 2>/dev/null
    {tidy}
    say ended "$status"
fi
t has-session -t ={session} 2>/dev/null && say runs
say gone
"""

TIDY: Final = 't kill-session -t ={session} 2>/dev/null; rm -rf "$s"'
STOP: Final = """\
t has-session -t ={session} 2>/dev/null || say gone
cat >"$s/stop" <<'{end}'
s=$1
pid=$(cat "$s/pid")
over() {{
    n=0
    while [ "$n" -lt "$1" ]; do
        [ -f "$s/status" ] && exit
        n=$((n + 1))
        sleep 1
    done
    [ -f "$s/status" ] && exit
}}
{steps}[ -f "$s/status" ] || echo 137 >"$s/status"
tmux -u -L {socket} kill-session -t ={session}
{end}
nohup sh "$s/stop" "$s" </dev/null >/dev/null 2>&1 &
say told
"""

ATTACH: Final = """\
PATH=$PATH:/usr/local/bin:/opt/homebrew/bin; \
s=${{XDG_STATE_HOME:-$HOME/.local/state}}/kasmon-remote/{session}; \
if command -v infocmp >/dev/null 2>&1; then infocmp "$TERM" >/dev/null 2>&1 || export TERM=xterm-256color; fi; \
printf "\\n%s\\n" {marker}; \
tmux -u -L {socket} attach-session -d -t ={session} || {{ test -f "$s/screen" && cat "$s/screen"; }}"""


class RemoteStart(msgspec.Struct, frozen=True, kw_only=True):
    """The launch parameters of a remote session."""

    session: str
    argv: Sequence[str]
    """The program and its arguments; empty for the remote login shell."""
    folder: str
    """Its working directory: a remote path, relative to the home directory."""
    variables: Mapping[str, str]
    history_lines: int
    keeps_lines: int = 0
    """How many history lines are stored with its last screen; if any, as plain text."""


class RemoteOutcome(msgspec.Struct, frozen=True):
    state: Literal["runs", "ended", "gone"]
    """`gone`: it does not run, and its exit is unknown."""
    exit_code: int | None = None
    signal: int | None = None


def start(machine: RemoteMachine, remote_start: RemoteStart, variables: Mapping[str, str]) -> bool:
    """Start the agent on *machine*; return False, and do nothing, if it runs already. Blocks.

    *variables*: the environment of ssh.

    Raises:
        RemoteLaunchError: if the agent cannot be started there.
        ValueError: if a variable has an invalid name.
    """
    answer = run_script(machine, build_start_script(remote_start), variables).fields
    match answer[:2]:
        case ["started"]:
            return True
        case ["runs"]:
            return False
        case ["missing", "tmux"]:
            why = "there is no tmux"
        case ["missing", "folder"]:
            why = f"there is no folder {remote_start.folder!r}"
        case ["missing", "program"]:
            why = f"there is no program {remote_start.argv[0]!r} on the PATH of a login shell"
        case _:
            why = "its folder there is not writable" if answer[:1] == ["missing"] else "its tmux cannot start it"
    raise RemoteLaunchError(machine.host, why)


def state(machine: RemoteMachine, session: str, variables: Mapping[str, str], *, tidy: bool = False) -> RemoteOutcome:
    """Return the state of *session* on *machine*; with *tidy*, delete its files once it has ended. Blocks."""
    return outcome(machine, session, variables, tidy=tidy)[0]


def outcome(
    machine: RemoteMachine, session: str, variables: Mapping[str, str], *, tidy: bool
) -> tuple[RemoteOutcome, bytes]:
    """Return the state as `state` does, and the last screen of an ended session. Blocks."""
    name = own_name(session)
    script = _build_head(name) + STATE.format(session=name, tidy=TIDY.format(session=name) if tidy else ":")
    answer = run_script(machine, script, variables)
    match answer.fields:
        case ["runs"]:
            return RemoteOutcome("runs"), b""
        case ["ended", code] if code.isdecimal():
            status = int(code)  # a shell adds 128 to a signal; a program can exit with such a code, too
            ended = RemoteOutcome("ended", None, status - 128) if 128 < status < 160 else RemoteOutcome("ended", status)
            return ended, answer.shown
    return RemoteOutcome("gone"), b""


def stop(machine: RemoteMachine, session: str, grace_s: float, variables: Mapping[str, str]) -> None:
    """Stop the agent there with HUP, TERM, KILL, within *grace_s*; a remote script does so on its own. Blocks."""
    run_script(machine, build_stop_script(session, grace_s), variables)


def attach_argv(machine: RemoteMachine, session: str, nonce: str) -> list[str]:
    """Return the command that shows *session* in a pane; it prints the marker of *nonce* once connected."""
    script = ATTACH.format(session=own_name(session), marker=build_marker(nonce), socket=SOCKET)
    return [*machine.ssh, *OPTIONS, "-enone", "-tt", "--", machine.host, f"exec sh -c '{script}'"]


def build_start_script(remote_start: RemoteStart) -> str:
    end = f"KASMON_END_{os.urandom(8).hex()}"
    name, folder = own_name(remote_start.session), quote_folder(remote_start.folder)
    for variable in remote_start.variables:
        if not NAME.fullmatch(variable):
            raise ValueError(f"{variable!r} is not a valid shell variable name")
    exports = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in remote_start.variables.items())
    command = shlex.join(remote_start.argv) if remote_start.argv else '"${SHELL:-/bin/sh}" -l'
    kept = f"-J -S -{remote_start.keeps_lines:d}" if remote_start.keeps_lines else "-e"
    run = RUN.format(session=name, socket=SOCKET, exports=exports, folder=folder, command=command, kept=kept)
    return _build_head(name) + START.format(
        session=name,
        folder=folder,
        program=shlex.quote(remote_start.argv[0] if remote_start.argv else ""),
        end=end,
        conf=CONF,
        history_lines=int(remote_start.history_lines),
        run=run,
        columns=CELLS[0],
        rows=CELLS[1],
    )


def build_stop_script(session: str, grace_s: float) -> str:
    name, patience = own_name(session), max(1, round(grace_s / 2))
    steps = [("HUP", patience), ("TERM", patience), ("KILL", 2)]
    lines = [
        f'kill -{signal} "$pid" 2>/dev/null; kill -{signal} -- "-$pid" 2>/dev/null; over {seconds}\n'
        for signal, seconds in (steps if grace_s > 0 else steps[-1:])
    ]
    end = f"KASMON_END_{os.urandom(8).hex()}"
    return _build_head(name) + STOP.format(session=name, socket=SOCKET, steps="".join(lines), end=end)


def _build_head(session: str) -> str:
    return HEAD + OF_SESSION.format(session=session, socket=SOCKET)


def quote_folder(folder: str) -> str:
    """Quote *folder* for the remote shell: relative to the home directory, unless it is absolute."""
    if folder in ("", "~"):
        return '"$HOME"'
    if folder.startswith("/"):
        return shlex.quote(folder)
    return f'"$HOME"/{shlex.quote(folder.removeprefix("~/"))}'


def build_marker(nonce: str) -> str:
    """Return the marker of *nonce* (hex), for a program that prints it itself."""
    return f"KASMON_READY_{_check_hex(nonce)}"


def saw_marker(rows: Sequence[bytes], nonce: str) -> bool:
    """Return whether a captured screen shows the marker of *nonce* on a line of its own."""
    marker = build_marker(nonce).encode()
    return any(row.strip() == marker for row in rows)


def _check_hex(nonce: str) -> str:
    if not nonce or set(nonce) - set("0123456789abcdef"):
        raise ValueError(f"{nonce!r} is no hex nonce")
    return nonce
