"""Client of the guest program in a sandbox: code runs, interpreters, and requests for healing and checkpoints.

A broken connection is retried a few times, for two seconds in all. No code runs twice by that: each run has a key, and
the guest program answers a known key with the first run's result. If another instance answers than the one that got
the run, nothing is sent again.
"""

import base64
import contextlib
import itertools
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from kasmon.errors import AgentLostError, SandboxError, UsageError
from kasmon.model.sandbox.policy import Interpreter, RunResult, ServiceSpec
from kasmon.sandbox.guest_client.connection import (
    AgentConnection,
    AgentConnectionError,
    ConnectionPool,
    Shape,
    pack_request,
)
from kasmon.sandbox.guest_client.protocol import (
    ConfinementReport,
    GuestReply,
    GuestStatus,
    InterruptResult,
    Output,
    RunReply,
    SavedInterpreters,
)

LIMIT_S: Final = 10.0
"""How long the guest program may take for a request that runs no code."""
LOOK_S: Final = 10.0
"""While a run waits for others, its client pings the guest program at this interval."""
EXTRA_S: Final = 15.0
"""How long a run may exceed its time limit: to be interrupted, ended and reported."""
LEVEL_S: Final = 60.0
STATE_S: Final = 90.0
PART_BYTES: Final = 4 * 1024 * 1024
STATE_BYTES: Final = 64 * 1024 * 1024

REACTIONS: Final = frozenset(InterruptResult)

ChannelMessage: TypeAlias = dict[str, Any]


class GuestChannel:
    """Calls may come from any thread, and block only on their own answer. They raise `AgentLostError` without one.

    Text from a sandbox is passed on unchanged: it is not sanitized and may be false; only its shape is checked.
    """

    def __init__(self, path: str, *, name: str = "") -> None:
        """
        Args:
            path: the guest program's socket.
            name: of the session, for messages.
        """
        self._name = name
        self.is_asleep = False
        """Set by the caller that pauses the sandbox: a waiting run then does not time out."""
        self._pool = ConnectionPool(path)
        self._ids = itertools.count(1)

    def run(
        self,
        interpreter: Interpreter,
        code: str,
        *,
        timeout_s: float,
        variables: Mapping[str, str] = {},
        on_output: Output | None = None,
        cap: int | None = None,
        run: str = "",
    ) -> RunResult:
        """Run *code* when the interpreter is free, and return its result; an error in the code raises nothing here.

        Args:
            timeout_s: how long it may run; then it is interrupted, and ended where that has no effect.
            variables: environment variables, for this run alone.
            on_output: called in this thread with output as it arrives; a broken connection may have lost some. If it
                raises, the exception propagates from here, and the run continues without a reader.
            cap: how many bytes of each stream are returned; None is the guest program's default.
            run: the run's key, if the caller may request the same run again; the guest knows the last 4096.

        Raises:
            UsageError: if *code* is no text that can be sent.
            AgentLostError: if the guest program does not answer; `may_have_run` says whether the code may have started.
        """
        request: ChannelMessage = {
            "id": str(next(self._ids)), "type": "execute", "interpreter": interpreter, "code": code,
            "timeout_s": timeout_s, "variables": dict(variables), "session": self._name,
            "once": run or secrets.token_hex(8), "began": True, "stream": on_output is not None,
        }  # fmt: skip
        if cap is not None:
            request["cap"] = cap
        reply = self._pool.ask(_frame(request), lambda conn: self._receive_result(conn, timeout_s, on_output))
        return _run_result(reply)

    def recall(self, run: str, *, timeout_s: float, on_output: Output | None = None) -> RunResult | None:
        """Return the result of the run with the key *run*, which is not run again; None if the guest does not know it.
        Waits for the run's end. Output from before the call is not repeated to *on_output*.
        """
        request = {"id": "", "type": "recall", "once": run, "began": True, "stream": on_output is not None}
        reply = self._pool.ask(_frame(request), lambda conn: self._receive_result(conn, timeout_s, on_output))
        return None if reply.type == "answer" else _run_result(reply)

    def _receive_result(self, conn: AgentConnection, timeout_s: float, on_output: Output | None) -> RunReply:
        has_begun = False
        was_paused = self.is_asleep
        deadline = time.monotonic() + LOOK_S
        while True:
            try:
                reply = conn.receive(RunReply, deadline)
            except TimeoutError:
                if self.is_asleep or was_paused:
                    was_paused = self.is_asleep
                    deadline = time.monotonic() + (LOOK_S if was_paused or not has_begun else timeout_s + EXTRA_S)
                    continue
                if has_begun:
                    raise AgentLostError(
                        "it does not report a run whose time limit expired", may_have_run=True
                    ) from None
                self._check_alive()
                deadline = time.monotonic() + LOOK_S
                continue
            if reply.type == "began":
                has_begun, deadline = True, time.monotonic() + timeout_s + EXTRA_S
            elif reply.type != "stream":
                return reply
            elif on_output:
                on_output("stderr" if reply.name == "stderr" else "stdout", reply.data)

    def _check_alive(self) -> None:
        try:
            self.ping(secrets.token_hex(8))
        except AgentLostError as error:
            raise AgentLostError("it does not respond while a run is waiting", may_have_run=True) from error

    def interrupt(self, interpreter: Interpreter, run: str = "") -> InterruptResult:
        """Interrupt the current run, or only that with the key *run*; return its reaction within two seconds."""
        reply = self._ask({"type": "interrupt", "interpreter": interpreter, "once": run or None}, again=False)
        return InterruptResult(reply.state) if reply.state in REACTIONS else InterruptResult.NONE

    def reset(self, interpreter: Interpreter) -> None:
        """End the interpreter and its child processes; the next run restarts it."""
        self._ask({"type": "reset", "interpreter": interpreter})

    def prewarm(self, interpreters: Sequence[Interpreter]) -> dict[str, str]:
        """Start these, so that no run waits for a start; return the reason for each that failed."""
        reply = self._ask({"type": "prewarm", "interpreters": list(interpreters)}, limit_s=40.0)
        return {name: str(part.lost) for name, part in reply.interpreters.items() if part.lost}

    def set_variables(self, variables: Mapping[str, str]) -> None:
        """Set *variables* in interpreters and later processes. Raises `SandboxError` if one does not take them."""
        reply = self._ask({"type": "surround", "variables": dict(variables)}, limit_s=40.0)
        for name, part in reply.interpreters.items():
            if part.lost:
                raise SandboxError(f"{name} does not have its variables", str(part.lost))

    def ping(self, nonce: str) -> GuestStatus:
        """Return the guest program's status. Raises `SandboxError` if the answer has another nonce than *nonce*."""
        status = self._request(GuestStatus, {"type": "ping", "nonce": nonce})
        if status.nonce != nonce:
            raise SandboxError("the sandbox cannot be trusted", "it answers with another nonce")
        return status

    def report_confinement(self) -> ConfinementReport | None:
        """Return the guest program's report of its confinement; None if its version cannot make one."""
        reply = self._request(ConfinementReport, {"type": "look"})
        return reply if reply.type == "answer" else None

    def level(self) -> None:
        """Return once the mirrored copy of its folders outside is up to date."""
        self._request(GuestReply, {"type": "level"}, limit_s=LEVEL_S)

    def set_clock(self, at: float) -> float:
        """Set its clock to *at*; return how many seconds it was behind. A jail shares this machine's: no effect."""
        return self._ask({"type": "set_clock", "now": at}).drift_s

    def write_volatile(self, path: str, content: bytes, mode: int) -> None:
        """Write a file inside, atomically. Raises `SandboxError` if it cannot be written."""
        data = base64.b64encode(content).decode("ascii")
        self._ask({"type": "write_volatile", "path": path, "data": data, "mode": mode})

    def listens(self, port: int, limit_s: float = 1.0) -> bool:
        """Whether a program inside accepts a connection at 127.0.0.1:*port*, within a second."""
        return self._ask({"type": "probe", "port": port}, limit_s=limit_s + LIMIT_S).listening

    def spawn(self, service: ServiceSpec, variables: Mapping[str, str] = {}) -> None:
        """Start *service*; a running one of the same name is ended first. Raises `SandboxError` if it cannot start."""
        request = {"type": "spawn", "name": service.name, "start": service.start, "variables": dict(variables)}
        self._ask({**request, "again": True})

    def forget(self, variables: Sequence[str], values: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
        """Remove *variables* from every interpreter's environment, and the names whose values contain one of *values*.

        Returns the removed names of each interpreter: top-level names that hold such a text, up to some levels deep.
        The guest program's own copies in stored answers and output of background jobs are deleted too. Freed memory is
        not overwritten.
        """
        reply = self._ask({"type": "forget", "names": list(variables), "values": list(values)}, limit_s=STATE_S)
        for name, part in reply.interpreters.items():
            if part.lost:
                raise SandboxError(f"{name} cannot delete the values of credentials", str(part.lost))
        return {name: part.purged for name, part in reply.interpreters.items()}

    def save_state(self, secrets: Sequence[str] = ()) -> SavedInterpreters:
        """Return what the interpreters hold, name by name, for `load_state` of another sandbox; parsed only in there.

        A name that contains one of *secrets* is lost; so is an interpreter that cannot be saved name by name.
        """
        frame = _frame({"id": str(next(self._ids)), "type": "save_state", "secrets": list(secrets)})
        parts, reply = self._pool.ask(frame, _receive_parts)
        return _saved_interpreters(b"".join(parts), _check_reply(reply, "save_state"))

    def load_state(self, content: bytes) -> SavedInterpreters:
        """Load *content* into the interpreters; return the restored names. Raises `SandboxError` if it is no state."""
        pieces = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)]
        frames = [_frame({"type": "load_part", "data": base64.b64encode(piece).decode("ascii")}) for piece in pieces]
        whole = b"".join([*frames, _frame({"id": "", "type": "load_state"})])
        reply = self._pool.ask(whole, lambda conn: conn.receive(GuestReply, time.monotonic() + STATE_S))
        return _saved_interpreters(content, _check_reply(reply, "load_state"))

    def shutdown(self) -> None:
        """End the guest program and all its child processes; no error where it is gone already."""
        with contextlib.suppress(AgentLostError):
            self._ask({"type": "shutdown"}, again=False)
        self.close()

    def close(self) -> None:
        """Close the connections; the guest program continues. Waiting calls raise `AgentLostError`."""
        self._pool.close()

    def _ask(self, request: ChannelMessage, *, limit_s: float = LIMIT_S, again: bool = True) -> GuestReply:
        return _check_reply(self._request(GuestReply, request, limit_s=limit_s, again=again), request["type"])

    def _request(
        self, shape: type[Shape], request: ChannelMessage, *, limit_s: float = LIMIT_S, again: bool = True
    ) -> Shape:
        frame = _frame({"id": "", **request})
        return self._pool.ask(frame, lambda conn: conn.receive(shape, time.monotonic() + limit_s), again=again)


def _run_result(reply: RunReply) -> RunResult:
    return RunResult(**{field: getattr(reply, field) for field in RunResult.__struct_fields__})


def _frame(request: ChannelMessage) -> bytes:
    try:
        return pack_request(request)
    except (ValueError, TypeError, OverflowError) as error:
        why = "it is not Unicode text" if isinstance(error, UnicodeError) else str(error)
        raise UsageError(f"the sandbox cannot accept this request: {why}.") from error


def _check_reply(reply: GuestReply, request_type: str) -> GuestReply:
    if reply.type != "answer":
        raise SandboxError(f"the sandbox refused {request_type!r}", reply.stderr.rstrip("."))
    return reply


def _receive_parts(conn: AgentConnection) -> tuple[list[bytes], GuestReply]:
    parts: list[bytes] = []
    deadline = time.monotonic() + STATE_S
    while True:
        reply = conn.receive(GuestReply, deadline)
        if reply.type != "part":
            return parts, reply
        try:
            parts.append(base64.b64decode(reply.data, validate=True))
        except ValueError as error:
            raise AgentConnectionError("its answer is not a state", is_sent=True, is_wrong=True) from error
        if sum(map(len, parts)) > STATE_BYTES:
            raise AgentConnectionError("its answer does not end", is_sent=True, is_wrong=True)


def _saved_interpreters(content: bytes, reply: GuestReply) -> SavedInterpreters:
    kept: list[str] = []
    lost: list[str] = []
    for interpreter, part in reply.interpreters.items():
        kept += [f"{interpreter}: {name}" for name in part.kept]
        reasons = part.lost if isinstance(part.lost, dict) else {interpreter: part.lost}
        lost += [f"{interpreter}: {name} ({why})" for name, why in reasons.items()]
    return SavedInterpreters(content=content, kept=tuple(kept), lost=tuple(lost))
