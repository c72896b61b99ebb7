"""The python interpreter: one namespace for all turns, on the process's real stdin, stdout and stderr.

It blocks until the next request. Once code has awaited something, an event loop exists and runs between turns.
"""

import __future__

import ast
import builtins
import contextlib
import json
import linecache
import os
import signal
import socket
import sys
import types
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from kasmon.sandbox.guest.frames import LIMIT_BYTES, FrameReader, pack_json
from kasmon.sandbox.guest.python_state import holds, wipe

if TYPE_CHECKING:
    import asyncio

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH120, PTH100
INTERRUPTED = 130
BLOCK_BYTES = 1 << 18
UNHEARD = 113
"""Its exit code when its control channel is closed."""

_exit, _getpid, _environ = os._exit, os.getpid, os.environ
_loads, _getcwd = json.loads, os.getcwd

JsonObject = dict[str, object]


def work() -> None:
    """Serve requests on the socket that the environment names, until that ends."""
    stream = socket.socket(fileno=int(os.environ.pop("KASMON_CONTROL")))
    os.set_inheritable(stream.fileno(), False)
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    for name in [name for name in sys.modules if name.partition(".")[0] == "kasmon"]:
        del sys.modules[name]  # code that imports kasmon must not get these modules
    sys.argv, sys.path[0] = [""], ""
    PythonWorker(stream, main).serve()


class PythonWorker:
    def __init__(self, stream: socket.socket, main: types.ModuleType) -> None:
        self._stream, self._main = stream, main
        self._frames = FrameReader(8 * LIMIT_BYTES)
        self._pid = _getpid()
        self._code = PythonCode(main)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_running = self._is_wanted_out = False
        """Running: a turn has begun and not ended. Wanted out: it was interrupted before its code ran."""
        self._streams = PythonStreams()
        self._begun_with = (dict(_environ), list(sys.path))
        self._acts: dict[object, Callable[[JsonObject], JsonObject]] = {
            "run": self._run,
            "nothing": lambda _: {},
            "forget": self._forget,
            "surround": self._set_variables,
            "save": self._save,
            "load": self._load,
        }
        signal.signal(signal.SIGINT, self._handle_interrupt)

    def serve(self) -> None:
        while frame := self._next():
            request = _loads(frame)
            answer = self._acts[request["do"]](request)
            if _getpid() != self._pid:  # code forked: its child must not serve
                self._streams.flush()
                _exit(0)
            try:
                self._stream.sendall(pack_json({**answer, "nonce": request["nonce"]}))
            except OSError:
                _exit(UNHEARD)
            frame, request, answer = b"", {}, {}  # they may contain a secret
        _exit(0)

    def _next(self) -> bytes | None:
        try:
            if self._loop and not self._loop.is_closed():
                self._go_on(self._loop)
            frames: list[bytes] = []
            while not frames:  # one request at a time: none follows before its answer
                if not (data := self._stream.recv(BLOCK_BYTES)):
                    return None
                frames = self._frames.feed(data)
            return frames[0]
        except OSError:
            _exit(UNHEARD)

    def _go_on(self, loop: "asyncio.AbstractEventLoop") -> None:
        """Run background tasks until there is a request."""
        came = loop.create_future()

        def arrive() -> None:
            if not came.done():
                came.set_result(None)

        loop.add_reader(self._stream.fileno(), arrive)
        while not came.done():
            try:
                loop.run_until_complete(came)
            except BaseException:  # noqa: BLE001 - a background task must not end the interpreter
                self._show()
        loop.remove_reader(self._stream.fileno())

    # A turn.

    def _run(self, request: JsonObject) -> JsonObject:
        self._restore_process()
        variables = request["variables"]
        assert isinstance(variables, dict)
        before = {name: _environ.get(name) for name in variables}
        try:
            try:
                _environ.update(variables)
                self._is_running, self._is_wanted_out = True, False
                code = self._all_of(str(request["code"]), request["turn"])
            finally:
                self._is_running = False
        except SystemExit as end:
            code = self._exit_code(end)
        except BaseException as error:  # noqa: BLE001 - any exception of the code is reported
            code = INTERRUPTED if type(error).__name__ in ("KeyboardInterrupt", "CancelledError") else 1
            self._show()
        for name, value in before.items():
            if value is None:
                _environ.pop(name, None)
            else:
                _environ[name] = value
        self._streams.flush()
        return {"rc": code, "cwd": self._folder()}

    def _all_of(self, code: str, turn: object) -> int:
        calls = [
            (types.FunctionType(part, self._main.__dict__), awaits) for part, awaits in self._code.parts(code, turn)
        ]
        if self._is_wanted_out:
            raise KeyboardInterrupt
        if any(awaits for _, awaits in calls):
            self._await(_run_in_order(calls))
        else:
            for call, _ in calls:
                call()
        return 0

    def _await(self, awaited: Coroutine[object, object, None]) -> None:
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(awaited)
        if self._is_wanted_out:
            self._task.cancel()
        try:
            self._loop.run_until_complete(self._task)
        finally:
            self._task = None

    def _handle_interrupt(self, number: int, frame: types.FrameType | None) -> None:
        """Raise in running code; cancel awaiting code; before either, cancel the turn; between turns, do nothing."""
        if not self._is_running:
            return
        while frame is not None:
            if frame.f_code.co_filename.startswith(FILE):
                raise KeyboardInterrupt
            frame = frame.f_back
        if self._task and self._loop:
            self._loop.call_soon_threadsafe(self._task.cancel)
        else:
            self._is_wanted_out = True

    def _exit_code(self, end: SystemExit) -> int:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        with contextlib.suppress(Exception):
            print(end.code, file=sys.stderr)  # noqa: T201
        return 1

    def _show(self) -> None:
        """Print the traceback of the current exception, without kasmon's own frames."""
        kind, error, trace = sys.exc_info()
        while trace and trace.tb_frame.f_code.co_filename.startswith((HERE, _ASYNCIO)):
            trace = trace.tb_next
        step = trace
        while step and step.tb_next:
            if step.tb_next.tb_frame.f_code.co_filename.startswith(HERE):  # where an interrupt was raised
                step.tb_next = None
            step = step.tb_next
        try:
            import traceback

            traceback.print_exception(kind, error, trace)
        except BaseException:  # noqa: BLE001 - code may have replaced stderr
            with contextlib.suppress(OSError):
                self._streams.write_stderr(
                    f"{kind.__name__ if kind else ''}: {error!s:.2000}\n".encode(errors="replace")
                )

    def _restore_process(self) -> None:
        """Restore stdin, stdout and stderr if the turn before closed them, and the SIGINT handler."""
        if signal.getsignal(signal.SIGINT) != self._handle_interrupt:
            signal.signal(signal.SIGINT, self._handle_interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self._streams.restore()

    def _folder(self) -> str:
        try:
            return _getcwd()
        except OSError:
            return ""

    def _set_variables(self, request: JsonObject) -> JsonObject:
        variables = request["variables"]
        assert isinstance(variables, dict)
        for known in (_environ, self._begun_with[0]):
            known.update(variables)
        return {}

    # State to save, and secrets to delete.

    def _forget(self, request: JsonObject) -> JsonObject:
        names, values = request["names"], request["values"]
        assert isinstance(names, list)
        assert isinstance(values, list)
        for name in names:
            _environ.pop(name, None)
        purged = [name for name, value in _environ.items() if any(each in value for each in values)]
        for name in purged:
            del _environ[name]
        wipe([name for name in [*names, *purged] if name not in _environ], values)
        held = self._main.__dict__
        for name in [name for name in held if not name.startswith("__")]:
            if holds(held[name], values):
                del held[name]
                purged.append(name)
        return {"purged": purged}

    def _save(self, request: JsonObject) -> JsonObject:
        return self._state("save", request)

    def _load(self, request: JsonObject) -> JsonObject:
        return self._state("load", request)

    def _state(self, act: str, request: JsonObject) -> JsonObject:
        import importlib.util

        spec = importlib.util.spec_from_file_location("_kasmon_state", f"{HERE}/python_state.py")
        assert spec
        assert spec.loader
        module = sys.modules["_kasmon_state"] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
            answer: JsonObject = getattr(module, act)(self._main, self._begun_with, request)
        except BaseException as error:  # noqa: BLE001 - a failed save is reported, and ends nothing
            return {"lost": f"{type(error).__name__}: {error}"}
        finally:
            del sys.modules["_kasmon_state"]
        return answer


async def _run_in_order(calls: Sequence[tuple[Callable[[], Any], bool]]) -> None:
    for call, awaits in calls:
        if awaits:
            await call()
        else:
            call()


_ASYNCIO = os.path.dirname(os.__file__) + "/asyncio/"  # noqa: PTH120


CO_COROUTINE = 0x80  # `inspect` is slow to import
FILE = "<python #"
LINES_KEPT = 4 * 1024 * 1024
"""How many characters of earlier turns are kept for tracebacks; the oldest are dropped first."""
_compile = compile  # bound here, as elsewhere: code may replace a builtin
AWAITS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class PythonCode:
    """Compiles turn after turn; `from __future__` imports stay in effect."""

    def __init__(self, main: types.ModuleType) -> None:
        self._flags = 0
        self._held: dict[str, int] = {}
        main.__dict__["__builtins__"] = builtins

    def parts(self, code: str, turn: object) -> list[tuple[types.CodeType, bool]]:
        """Return the code objects to run, in order, each with whether its result must be awaited.

        Raises:
            SyntaxError: before anything was run.
        """
        name = f"{FILE}{turn}>"
        self._hold(name, code)
        tree = _compile(code, name, "exec", ast.PyCF_ONLY_AST | AWAITS | self._flags, dont_inherit=True)
        assert isinstance(tree, ast.Module)
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        wholes: list[tuple[ast.AST, str]] = [(tree, "exec")] if tree.body else []
        wholes += [(ast.Interactive(body=list[ast.stmt](last)), "single")] if last else []
        compiled: list[types.CodeType] = []
        for whole, mode in wholes:
            flags = AWAITS | self._flags
            compiled.append(_compile(whole, name, mode, flags, dont_inherit=True))  # type: ignore[call-overload]
            self._flags |= compiled[-1].co_flags & __future__.annotations.compiler_flag
        return [(part, bool(part.co_flags & CO_COROUTINE)) for part in compiled]

    def _hold(self, name: str, code: str) -> None:
        """Make the lines of *code* available to tracebacks."""
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        self._held[name] = len(code)
        while len(self._held) > 1 and sum(self._held.values()) > LINES_KEPT:
            oldest = next(iter(self._held))
            del self._held[oldest]
            linecache.cache.pop(oldest, None)


_fstat, _write = os.fstat, os.write
NAMES = ("stdout", "stderr")


class PythonStreams:
    """Holds a duplicate of each output stream, which no child inherits."""

    def __init__(self) -> None:
        self._kept = [os.dup(1), os.dup(2)]
        for out in (sys.stdout, sys.stderr):
            out.reconfigure(errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]

    def restore(self) -> None:
        """Reopen streams that are closed or replaced; an open object that code assigned to `sys.stdout` stays."""
        if getattr(sys.stdin, "closed", True):  # `exit()` closes it
            if (nothing := os.open("/dev/null", os.O_RDONLY)) != 0:
                os.dup2(nothing, 0)
                os.close(nothing)
            sys.stdin = open(0, closefd=False)  # noqa: SIM115
        for number, (name, kept) in enumerate(zip(NAMES, self._kept, strict=True), 1):
            try:
                is_ours = os.path.samestat(_fstat(number), _fstat(kept))
            except OSError:
                is_ours = False
            if not is_ours:
                with contextlib.suppress(OSError):
                    os.dup2(kept, number)
            if getattr(getattr(sys, name, None), "closed", True):
                setattr(sys, name, self._text(number))

    def flush(self) -> None:
        """Flush stdout and stderr."""
        for out in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                out.flush()

    def write_stderr(self, data: bytes) -> None:
        """Write *data* to the original stderr, whatever code replaced it by."""
        with contextlib.suppress(OSError):
            _write(self._kept[1], data)

    def _text(self, number: int) -> TextIO:
        return open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
