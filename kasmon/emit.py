"""`kasmon-emit FILE`: write an agent's hook call as a note for its host. Standard library only; never blocks the agent.

The note is one line of JSON in FILE, the session's `hooks.jsonl`: a few short fields of the hook's input, the
generation and the nonce from its environment, and the ids of its ancestor processes. The program exits with 0 in
every case, within a second, and prints nothing: an agent may take output or another code for an answer.
"""

import contextlib
import os
import sys
import time

INPUT_BYTES = 1 << 20
FILE_BYTES = 1 << 20
"""A file that no host reads does not grow beyond this."""
FIELD = 300
"""At most this many characters of a field are kept."""
CALL_BYTES = 1 << 17
"""The note omits a tool call's input that would make it longer; the host then reads the call from the screen only."""
INPUT_S = 0.5
PROC = "/proc"
ANCESTORS = 12
KEPT = {
    "hook_event_name": "event",
    "event": "event",
    "type": "event",
    "notification_type": "what",
    "tool_name": "tool",
    "message": "text",
    "error": "text",
    "reason": "text",
    "tool_use_id": "call",
    "session_id": "thread",
    "thread-id": "thread",
}
"""Fields of a hook's input that the note contains -> their names in the note."""


def main() -> int:
    """Write the note; always return 0."""
    with contextlib.suppress(BaseException):  # a failure here must not affect the agent
        _leave(sys.argv[1:])
    return 0


def _leave(arguments: list[str]) -> None:
    import json

    path = arguments[0]
    given = arguments[-1].encode() if len(arguments) > 1 and arguments[-1].lstrip().startswith("{") else _input()
    report = json.loads(given) if given.strip() else {}
    note: dict[str, object] = {
        "at": time.time(),
        "generation": os.environ.get("KASMON_GENERATION", ""),
        "nonce": os.environ.get("KASMON_NONCE", ""),
        "pids": _ancestors(),
    }
    for name, kept in KEPT.items():
        value = report.get(name) if isinstance(report, dict) else None
        if isinstance(value, str) and kept not in note:
            note[kept] = value[:FIELD]
    prompt = report.get("prompt") if isinstance(report, dict) else None
    if isinstance(prompt, str) and note.get("event") == "UserPromptSubmit":
        note["prompt"] = _digest(prompt)
    failure = report.get("last_assistant_message") if isinstance(report, dict) else None
    if isinstance(failure, str) and failure and note.get("event") == "StopFailure":
        note["text"] = failure[:FIELD]
    line = json.dumps(note, separators=(",", ":")).encode() + b"\n"
    if isinstance(report, dict) and report.get("hook_event_name") == "PreToolUse":
        called = json.dumps({**note, "input": report.get("tool_input")}, separators=(",", ":")).encode() + b"\n"
        line = called if len(called) <= CALL_BYTES else line
    _append(path, line)


def _digest(prompt: str) -> str:
    """Return a hash that identifies *prompt* without its text; the same as `kasmon.model.commands.prompt_digest`."""
    import hashlib
    import re

    bare = re.sub(r'</?pasted_content id="[^"]*">', "", prompt)
    return hashlib.sha256("".join(bare.split()).encode("utf-8", "replace")).hexdigest()[:32]


def _input() -> bytes:
    """Return what arrives on standard input within `INPUT_S`."""
    import select

    read, until = bytearray(), time.monotonic() + INPUT_S
    while len(read) < INPUT_BYTES:
        ready, _, _ = select.select([0], [], [], max(0.0, until - time.monotonic()))
        piece = os.read(0, 65536) if ready else b""
        if not piece:
            break
        read += piece
    return bytes(read)


def _ancestors() -> list[int]:
    """Return the ids of this process's ancestors, nearest first, as far as the system reports them."""
    found = [os.getppid()]
    with contextlib.suppress(OSError, ValueError, IndexError):
        while found[-1] > 1 and len(found) < ANCESTORS:
            with open(f"{PROC}/{found[-1]}/stat", "rb") as file:
                found.append(int(file.read().rpartition(b")")[2].split()[1]))
    if len(found) == 1 and not os.path.exists(f"{PROC}/self/stat"):
        parents = _read_parents()
        while (above := parents.get(found[-1], 0)) > 0 and len(found) < ANCESTORS:
            found.append(above)
    return found


def _read_parents() -> dict[int, int]:
    """Return the parent of each process where there is no /proc (macOS)."""
    import subprocess

    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        argv = ["ps", "-ax", "-o", "pid=", "-o", "ppid="]
        lines = subprocess.run(argv, capture_output=True, check=True, timeout=2).stdout.splitlines()
        return {int(pid): int(parent) for pid, parent in map(bytes.split, lines)}
    return {}


def _append(path: str, line: bytes) -> None:
    import fcntl

    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    file = os.open(path, flags, 0o600)
    try:
        for _ in range(20):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.01)
        if os.fstat(file).st_size + len(line) <= FILE_BYTES:
            os.write(file, line)
    finally:
        os.close(file)


if __name__ == "__main__":
    sys.exit(main())
