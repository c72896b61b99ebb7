"""Measures how long a real agent takes to open a conversation over a pipe: the limit for its host.

Only the necessary protocol messages are sent: `initialize`, and the start of a conversation where there is one.
The program runs as installed. For codex that is a script; kasmon itself starts the native program instead.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from kasmon.errors import LaunchError

Message = dict[str, Any]
ACP: Final[Mapping[str, Message]] = {
    "initialize": {"protocolVersion": 1, "clientCapabilities": {}},
    "session/new": {"mcpServers": []},
}
FLAGS: Final[Mapping[str, Sequence[str]]] = {
    "claude": (
        *("--output-format", "stream-json", "--input-format", "stream-json", "--verbose"),
        *("--include-partial-messages", "--permission-prompt-tool", "stdio"),
    ),
    "codex": ("app-server",),
    "opencode": ("acp",),
    "gemini": ("--acp",),
}
"""The arguments that make each agent speak its protocol."""
CALLS: Final[Mapping[str, Mapping[str, Message]]] = {
    "claude": {"initialize": {"subtype": "initialize", "hooks": None}},
    "codex": {"initialize": {"clientInfo": {"name": "bench", "title": "bench", "version": "0"}}, "thread/start": {}},
    "opencode": ACP,
    "gemini": ACP,
}
"""The calls that open a conversation with each agent; each is sent after the answer to the previous one."""
LAST_S: Final = 5.0
"""How long it may take to exit after its stdin is closed, before it is killed."""
LOOK_S: Final = 0.005


def measure_opening_ms(agent: str, program: Path, workdir: Path, variables: Mapping[str, str]) -> float:
    """Return the time from the start of *program* to its last answer.

    Raises:
        LaunchError: if it does not answer, or answers with an error.
    """
    began = time.perf_counter()
    process = subprocess.Popen(
        [program, *FLAGS[agent]],
        cwd=workdir,
        env=dict(variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for number, (method, params) in enumerate(CALLS[agent].items()):
            _call(agent, process, number, method, params | ({"cwd": str(workdir)} if number else {}))
        return 1000 * (time.perf_counter() - began)
    finally:
        _end(process)


def _call(agent: str, process: subprocess.Popen[bytes], number: int, method: str, params: Message) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    if agent == "claude":
        asked: Message = {"type": "control_request", "request_id": str(number), "request": params}
    else:
        asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    with contextlib.suppress(BrokenPipeError):  # it has ended; the end of its output shows that
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.flush()
    for line in process.stdout:
        if (answer := _answer(line, number)) is not None:
            if "error" in answer:
                raise LaunchError(f"{agent!r} does not open a conversation: {answer['error']}.")
            return
    raise LaunchError(f"{agent!r} ended before it had answered {method!r}.")


def _answer(line: bytes, number: int) -> Message | None:
    """Return the answer to call *number* on *line*, in either protocol; None if it is none."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    if not isinstance(message, dict) or "method" in message:
        return None
    response = message.get("response")
    if isinstance(response, dict) and response.get("request_id") == str(number):
        return response
    return message if message.get("id") == number else None


def _end(process: subprocess.Popen[bytes]) -> None:
    with process:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(LAST_S)
        except subprocess.TimeoutExpired:
            process.kill()
        for child in family:
            with contextlib.suppress(psutil.Error):
                child.kill()
        until = time.monotonic() + LAST_S
        while any(_runs(child) for child in family) and time.monotonic() < until:
            time.sleep(LOOK_S)


def _runs(child: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(child.status() != psutil.STATUS_ZOMBIE)
    return False
