"""Runs kasmon's commands on a registered machine, and reads files there, through the link to it.

The link (`kasmon.bus.link`) listens at `Paths.machine_socket`. A connection carries one request and one reply, each a
frame of `kasmon.sandbox.guest.frames` with a MessagePack value.
"""

import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from kasmon.errors import KasmonError, RemoteUnreachableError, UnavailableError
from kasmon.host.rpc.codec import rebuilt
from kasmon.host.rpc.frames import FailureReply
from kasmon.model.commands import Receipt
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sandbox.guest.frames import FrameReader, pack
from kasmon.sanitize import clean_lines
from kasmon.store.machines import read_presence

Value = TypeVar("Value")

MARKS_COMMAND: Final = ("ls", "--json", "--marks")
"""Prints what sessions are marked with (`kasmon.supervisor.machines.marks`); viewers of a cluster have it too."""
COMMAND_S: Final = 600.0
"""How long a command may take on another machine, in seconds."""
FILE_S: Final = 30.0
MOST_BYTES: Final = 64 << 20
"""A longer file of another machine is not read."""


class CommandOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a command printed, and its exit code."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class QueuedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Names a command in the machine's work queue, where it has one: that is carried out once, also after a restart."""

    plan: str
    task: str
    attempt: int
    """Once a machine has an order for an attempt at a task, it refuses those for earlier ones."""
    is_withdrawn: bool = False
    """Whether that command must not be carried out any more; the one that is run does not wait in the queue."""


class RunCommand(msgspec.Struct, frozen=True, tag="run", tag_field="t"):
    n: int
    arguments: tuple[str, ...]
    stdin: bytes = b""
    order: QueuedOrder | None = None


class ReadFile(msgspec.Struct, frozen=True, tag="read", tag_field="t"):
    n: int
    session: SessionId
    name: str
    offset: int = 0


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True, tag="agent", tag_field="t"):
    """What an agent asks for: the link decides by its process, and by the config (`agent_requests.command_for`)."""

    n: int
    act: Literal["start", "prompt", "message", "read", "diff", "finish"]
    session: SessionId = SessionId("")
    """One that it started, or that `message` reaches; empty for a start."""
    text: str = ""
    """The prompt, message or proposal."""
    lines: int = 0
    """For `read`: how many of the last ones."""
    name: str = ""
    agent: str = ""
    """The profile there; empty for that of the agent's own session."""
    folder: str = ""
    """The folder there; empty for the home folder. These and the next ones are for a start."""
    worktree: bool | None = None
    sandbox: str | None = None


class CommandReply(msgspec.Struct, frozen=True, tag="output", tag_field="t"):
    n: int
    output: CommandOutput


class FileReply(msgspec.Struct, frozen=True, tag="file", tag_field="t"):
    n: int
    content: bytes


LinkReply = CommandReply | FileReply | FailureReply

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[LinkReply] = msgspec.msgpack.Decoder(LinkReply)


def run(
    paths: Paths,
    machine: str,
    arguments: Sequence[str],
    stdin: bytes = b"",
    limit_s: float = COMMAND_S,
    order: QueuedOrder | None = None,
) -> CommandOutput:
    """Run `kasmon` on *machine* with *arguments*, and return its output; it may take *limit_s* seconds. Blocks.

    A command with an *order* has the same effect when it is repeated.

    Raises:
        RemoteUnreachableError: if it is not connected, or the connection ends before the reply: whether the command was
            carried out is unknown then.
        RefusedError: if the machine's owner does not allow it.
    """
    return _request(paths, machine, RunCommand(1, tuple(arguments), stdin, order), limit_s, CommandReply).output


def ask_for_agent(paths: Paths, machine: str, request: AgentRequest) -> CommandOutput:
    """Have *request* of this process's agent done on *machine*, and return the output of the command there. Blocks.

    Raises:
        RefusedError: if the person did not allow it, or the machine's owner.
        RemoteUnreachableError: as `run`.
        KasmonError: why it was not done, as the command reports it there.
    """
    output = _request(paths, machine, request, COMMAND_S, CommandReply).output
    is_sent = request.act in ("prompt", "message") and b'"receipt":' in output.stdout  # its state may be a failure
    if output.exit_code and not is_sent:
        raise error_of(machine, output)
    return output


def run_for(paths: Paths, session: Session, *arguments: str, stdin: bytes = b"", shows: str = "") -> bytes:
    """Run a command with `--json` on the machine of *session*, and return its JSON. Blocks.

    *shows*: the field that is printed once it was carried out, also with another exit code than 0. Raises the error
    that the command reported there, else as `run`.
    """
    output = run(paths, session.via, [*arguments, "--json"], stdin)
    if output.exit_code and not (shows and f'"{shows}":'.encode() in output.stdout):
        raise error_of(session.via, output)
    return output.stdout


def parse_reply(machine: str, output: bytes, kind: type[Value]) -> Value:
    """Return the JSON that a command printed on *machine* as a *kind*; all its texts are cleaned.

    Raises `UnavailableError` if it is none, as another version of kasmon may print it.
    """
    try:
        return msgspec.convert(_clean(msgspec.json.decode(output)), kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnavailableError(
            f"the answer of {machine!r} cannot be read: {error}.",
            hint=f"`kasmon machines show {machine}` shows its version.",
        ) from error


class _Receipt(msgspec.Struct, frozen=True):
    receipt: dict[str, Any] | None = None


def parse_receipt(machine: str, output: bytes) -> Receipt:
    """Return the receipt of the prompt that a command sent on *machine*. Raises as `parse_reply`."""
    fields = parse_reply(machine, output, _Receipt).receipt or {}
    known = msgspec.json.encode({name: value for name, value in fields.items() if value is not None})
    return parse_reply(machine, known, Receipt)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_lines(value)
    if isinstance(value, dict):
        return {name: _clean(each) for name, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list) else value


class _ErrorFields(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""
    hint: str = ""


class _ErrorObject(msgspec.Struct, frozen=True):
    error: _ErrorFields = _ErrorFields()


def error_of(machine: str, output: CommandOutput) -> KasmonError:
    """Return the error of a command that failed on *machine*: of the class that its code and exit code name."""
    fields = _ErrorFields()
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        fields = msgspec.json.decode(output.stdout, type=_ErrorObject).error
    message = fields.message or (output.stderr.decode("utf-8", "replace").strip().splitlines() or ["it failed"])[-1]
    message = f"{machine}: {message}"
    return rebuilt(FailureReply(n=0, error=fields.code, exit_code=output.exit_code, message=message, hint=fields.hint))


def read_file(paths: Paths, session: Session, name: str) -> bytes:
    """Return the file *name* of the session's folder on its machine. Blocks.

    Raises:
        NotFoundError: if there is none.
        RemoteUnreachableError: if the machine is not connected.
        UnavailableError: if it is too long.
    """
    content = b""
    while True:
        part = _request(paths, session.via, ReadFile(1, session.id, name, len(content)), FILE_S, FileReply).content
        if not part:
            return content
        content += part
        if len(content) > MOST_BYTES:
            raise UnavailableError(f"the file {name!r} on {session.via!r} is longer than {MOST_BYTES >> 20} MB.")


def _request(
    paths: Paths, machine: str, request: RunCommand | ReadFile | AgentRequest, limit_s: float, kind: type[Value]
) -> Value:
    try:
        with socket.socket(socket.AF_UNIX) as connected:
            connected.settimeout(limit_s)
            connected.connect(str(paths.machine_socket(machine)))
            connected.sendall(pack(_encode(request)))
            reply = _decoder.decode(_receive(connected.recv))
    except TimeoutError as error:
        raise RemoteUnreachableError(machine, f"it did not answer within {limit_s:g} s", is_registered=True) from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        why = read_presence(paths, machine).why or "the link to it does not run"
        raise RemoteUnreachableError(machine, why, is_registered=True) from error
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise RemoteUnreachableError(
            machine, "the connection ended; it is unknown whether this was done", is_registered=True
        ) from error
    if isinstance(reply, FailureReply):
        raise rebuilt(reply)
    assert isinstance(reply, kind)
    return reply


def _receive(read: Callable[[int], bytes]) -> bytes:
    reader = FrameReader()
    while data := read(1 << 16):
        for frame in reader.feed(data):
            return frame
    raise EOFError
