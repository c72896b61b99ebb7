"""A service on loopback that answers the official SDK, built of that SDK's own server classes; its sandboxes are ours.

    python -m tests.support.e2b.service FOLDER [PLACE=PATH]...      prints its address, and serves until it is ended

Each sandbox is a bubblewrap with processes of its own that sees a folder's parts in their places: it confines nothing
well, and runs our tests' own code alone. Pausing stops its processes. It does not prove how the real service
behaves: `test_e2b_live.py` asks that.
"""

import asyncio
import contextlib
import datetime as dt
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import psutil
import uvicorn
from e2b.envd.process import process_pb as pb
from e2b.envd.process.process_connect import Process, ProcessASGIApplication
from protobuf import Oneof
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kasmon.sandbox.e2b.guest_setup import AGENT, KASMON, WORKSPACE
from kasmon.sandbox.shared.host_folders import jail_owner
from kasmon.sandbox.shared.processes import name_inside
from tests.support.wait import until

BOXES: dict[str, "Box"] = {}
LOG: list[tuple[str, Any]] = []
FAULTS: list[dict[str, Any]] = []
Stream = Literal["stdout", "stderr"]
ROOT = Path()
OWNER = jail_owner(ROOT)
SEES: dict[str, str] = {}
INIT = Path(__file__).with_name("init.py")
PARTS = {
    "/opt/kasmon": "opt", "/workspace": "workspace", "/home/user": "home", "/home/sandbox": "sandbox", "/run": "run",
}  # fmt: skip


class Command:
    """One that runs in a sandbox, by its id in there."""

    def __init__(self, pid: int, told: asyncio.StreamReader, link: asyncio.StreamWriter) -> None:
        self.pid, self.told, self.link = pid, told, link
        self.stdin: asyncio.StreamWriter | None = None


class Box:
    def __init__(self, body: dict[str, Any]) -> None:
        self.id, self.body, self.state = f"sb{uuid.uuid4().hex[:14]}", body, "running"
        self.began = dt.datetime.now(dt.UTC)
        self.ends = self.began + dt.timedelta(seconds=body.get("timeout", 300))
        self.folder = ROOT / self.id
        self.environment = dict(body.get("envVars") or {})
        self.commands: dict[int, Command] = {}
        self.outside: asyncio.subprocess.Process
        for part in (self.folder, *(self.folder / name for name in PARTS.values())):
            part.mkdir(mode=0o755)
            os.chown(part, *OWNER)

    def told(self) -> dict[str, Any]:
        known = {"templateID": self.body["templateID"], "sandboxID": self.id, "clientID": "local"}
        times = {"startedAt": self.began.isoformat(), "endAt": self.ends.isoformat()}
        size = {"cpuCount": 1, "memoryMB": 512, "diskSizeMB": 1024, "envdVersion": "0.6.0", "envdAccessToken": "token"}
        meta = self.body.get("metadata") or {}
        return {**known, **times, **size, "state": self.state, "metadata": meta}

    def place(self, path: str) -> Path:
        """Where what it sees at *path* lies."""
        above = next(above for above in PARTS if path == above or path.startswith(f"{above}/"))
        return self.folder / PARTS[above] / path.removeprefix(above).lstrip("/")

    async def begin(self) -> None:
        """Start its first process."""
        seen = [word for target, name in PARTS.items() for word in ("--bind", str(self.folder / name), target)]
        (self.folder / "passwd").write_text("user:x:1000:1000::/home/user:/bin/bash\n")
        init = self.folder / "init.py"
        init.write_bytes(INIT.read_bytes())
        files = ["--ro-bind", str(self.folder / "passwd"), "/etc/passwd", "--ro-bind", str(init), "/init.py"]
        files += [word for place, path in SEES.items() for word in ("--ro-bind", path, place)]
        links = [word for name in ("bin", "sbin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
        ours = ["--unshare-user", "--unshare-pid", "--as-pid-1", "--die-with-parent", "--uid", "1000", "--gid", "1000"]
        whole = [*ours, "--proc", "/proc", "--dev", "/dev", "--ro-bind", "/usr", "/usr", *links, *files]
        command = ["--", "/usr/bin/python3", "-I", "-S", "/init.py", "/run/init.sock"]
        self.outside = await asyncio.create_subprocess_exec(
            *("bwrap", *whole, "--tmpfs", "/tmp", *seen, *command),
            stdin=asyncio.subprocess.DEVNULL,
            env={},
            user=OWNER[0] if os.geteuid() == 0 else None,
            start_new_session=True,
        )
        await asyncio.to_thread(until, (self.folder / "run" / "init.sock").exists)

    async def like(self, kept: Path) -> None:
        """Have the files of *kept*, and the agent that ran there; what memory it had, nothing here can copy."""
        for name in ("opt", "workspace", "home", "sandbox"):
            subprocess.run(["cp", "-a", f"{kept / name}/.", str(self.folder / name)], check=True)
        nothing = os.open(os.devnull, os.O_RDWR)
        agent = ["/bin/bash", "-c", f"cd {WORKSPACE} && exec python3 -I -S {KASMON}/standalone.py {AGENT}"]
        begun = await self.run(agent, {"PATH": "/usr/bin:/bin", "HOME": "/home/user"}, [nothing] * 3)
        os.close(nothing)
        assert b"0\n" == await begun.told.readline()

    async def run(self, argv: list[str], environment: dict[str, str], handles: list[int]) -> Command:
        """Start *argv* in it with *handles* as its stdin, stdout and stderr."""
        link = socket.socket(socket.AF_UNIX)
        link.connect(os.fspath(self.folder / "run" / "init.sock"))
        asked = json.dumps({"argv": argv, "environment": environment}).encode()
        socket.send_fds(link, [asked], handles)
        reader, open_ = await asyncio.open_unix_connection(sock=link)
        return Command(int(await reader.readline()), reader, open_)

    def signal(self, number: signal.Signals) -> None:
        """To all that runs in it, and to its first process last."""
        with contextlib.suppress(psutil.Error):
            for process in reversed(psutil.Process(self.outside.pid).children(recursive=True)):
                with contextlib.suppress(OSError):
                    os.kill(process.pid, number)

    def kill(self, pid: int) -> None:
        """The group of a command, by its id in there."""
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.outside.pid).children(recursive=True):
                with contextlib.suppress(OSError, psutil.Error):
                    if name_inside(process.pid) == str(pid):
                        os.killpg(process.pid, signal.SIGKILL)


class Commands(Process):
    """envd: starts commands and carries what they read and say."""

    async def start(self, request: Any, ctx: Any) -> AsyncIterator[Any]:
        box, asked = _of(ctx), request.process
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", **box.environment, **dict(asked.envs)}
        LOG.append(("start", {"cmd": list(asked.args)[-1:], "envs": dict(asked.envs)}))
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        command = await box.run([asked.cmd, *asked.args], environment, theirs)
        for handle in theirs:
            os.close(handle)
        if request.stdin:
            command.stdin = await _writer(pipes[0][1])
        else:
            os.close(pipes[0][1])
        box.commands[command.pid] = command
        yield _event("start", pb.ProcessEvent.StartEvent(pid=command.pid))
        queue: asyncio.Queue[tuple[Stream, bytes]] = asyncio.Queue()

        async def pump(name: Stream, handle: int) -> None:
            stream = await _reader(handle)
            while data := await stream.read(1 << 16):
                await queue.put((name, data))
            await queue.put((name, b""))

        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(pump("stdout", pipes[1][0]))
            pumps.create_task(pump("stderr", pipes[2][0]))
            left = 2
            while left:
                name, data = await queue.get()
                left -= not data
                if data:
                    output: Any = Oneof(name, data)
                    yield _event("data", pb.ProcessEvent.DataEvent(output=output))
        code = int(await command.told.readline() or b"-9")
        box.commands.pop(command.pid, None)
        yield _event("end", pb.ProcessEvent.EndEvent(exit_code=code, exited=True, status=f"exit status {code}"))

    async def send_input(self, request: Any, ctx: Any) -> Any:
        command = _of(ctx).commands[request.process.selector.value]
        assert command.stdin is not None
        command.stdin.write(request.input.input.value)
        await command.stdin.drain()
        return pb.SendInputResponse()

    async def send_signal(self, request: Any, ctx: Any) -> Any:
        _of(ctx).kill(request.process.selector.value)
        return pb.SendSignalResponse()


async def _reader(handle: int) -> asyncio.StreamReader:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(handle, "rb", 0))
    return reader


async def _writer(handle: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(handle, "wb", 0)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _event(kind: str, value: Any) -> Any:
    return pb.StartResponse(event=pb.ProcessEvent(event=Oneof(kind, value)))  # type: ignore[arg-type]


def _of(ctx: Any) -> Box:
    return BOXES[dict(ctx.request_headers.items())["e2b-sandbox-id"]]


Answer = Callable[[Request, Box], Awaitable[Response]]


def _of_one(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def found(request: Request) -> Response:
        box = BOXES.get(request.path_params["id"])
        if box is None:
            return JSONResponse({"code": 404, "message": "sandbox not found"}, status_code=404)
        return await answer(request, box)

    return found


async def create(request: Request) -> Response:
    body = await request.json()
    LOG.append(("create", body))
    box = Box(body)
    await box.begin()
    BOXES[box.id] = box
    if (kept := ROOT / body["templateID"]).is_dir():
        await box.like(kept)
    return JSONResponse(box.told(), status_code=201)


async def info(request: Request, box: Box) -> Response:
    return JSONResponse(box.told())


async def pause(request: Request, box: Box) -> Response:
    LOG.append(("pause", box.id))
    if box.state == "paused":
        return JSONResponse({"code": 409, "message": "paused already"}, status_code=409)
    box.state, box.environment = "paused", {}
    box.signal(signal.SIGSTOP)
    return Response(status_code=204)


async def connect(request: Request, box: Box) -> Response:
    body = await request.json()
    LOG.append(("connect", body))
    was, box.state = box.state, "running"
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=body["timeout"])
    box.ends = max(ends, box.ends)
    box.signal(signal.SIGCONT)
    return JSONResponse(box.told(), status_code=201 if was == "paused" else 200)


async def timeout(request: Request, box: Box) -> Response:
    body = await request.json()
    LOG.append(("timeout", body))
    box.ends = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=body["timeout"])
    return Response(status_code=204)


async def kill(request: Request, box: Box) -> Response:
    LOG.append(("kill", box.id))
    del BOXES[box.id]
    box.signal(signal.SIGKILL)
    await box.outside.wait()
    shutil.rmtree(box.folder, ignore_errors=True)
    return Response(status_code=204)


async def snapshot(request: Request, box: Box) -> Response:
    LOG.append(("snapshot", box.id))
    if box.state != "running":
        return JSONResponse({"code": 409, "message": "sandbox is not running"}, status_code=409)
    kept = ROOT / f"snap-{box.id}"
    subprocess.run(["cp", "-a", str(box.folder), str(kept)], check=True)
    return JSONResponse({"snapshotID": kept.name, "names": []}, status_code=201)


async def drop(request: Request) -> Response:
    LOG.append(("drop", request.path_params["id"]))
    kept = ROOT / request.path_params["id"]
    if not kept.is_dir():
        return JSONResponse({"code": 404, "message": "not found"}, status_code=404)
    shutil.rmtree(kept)
    return Response(status_code=204)


async def network(request: Request, box: Box) -> Response:
    LOG.append(("network", await request.json()))
    return Response(status_code=204)


async def fault(request: Request) -> Response:
    """What goes to a path that has `path` in it is answered so next: `times`, with that `status`, `half`, or late."""
    if request.method == "DELETE":
        FAULTS.clear()
    else:
        FAULTS.append(await request.json())
    return Response(status_code=204)


async def faulty(scope: Any, send: Any) -> bool:
    """Whether that was answered here."""
    found = next((each for each in FAULTS if each["path"] in scope["path"]), None)
    if found is None or scope["path"] == "/fault":
        return False
    found["times"] -= 1
    if found["times"] <= 0:
        FAULTS.remove(found)
    await asyncio.sleep(found.get("late_s", 0))
    if not (status := found.get("status")):
        return False
    content = json.dumps({"code": status, "message": f"fault {status}"}).encode()
    length = len(content) + (100 if found.get("half") else 0)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": bool(found.get("half"))})
    if found.get("half"):
        raise ConnectionAbortedError
    return True


async def listed(request: Request) -> Response:
    wanted = dict(request.query_params)
    LOG.append(("list", wanted))
    return JSONResponse([box.told() for box in BOXES.values()])


async def write(request: Request) -> Response:
    box = BOXES[request.headers["e2b-sandbox-id"]]
    path = box.place(request.query_params["path"])
    form = await request.form()
    (file,) = form.values()
    assert not isinstance(file, str)
    path.write_bytes(await file.read())
    os.chown(path, *OWNER)
    return JSONResponse([{"name": path.name, "type": "file", "path": request.query_params["path"]}])


async def log(request: Request) -> Response:
    return JSONResponse(json.loads(json.dumps(LOG, default=str)))


async def health(request: Request) -> Response:
    return Response(status_code=204)


def serve(root: str, *sees: str) -> None:
    global ROOT
    ROOT = Path(root)
    for each in sees:
        place, _, path = each.partition("=")
        SEES[place] = path
    routes = [
        *(Route(f"{of}/sandboxes", create, methods=["POST"]) for of in ("", "/v2", "/v3")),
        *(Route(f"{of}/sandboxes", listed) for of in ("", "/v2")),
        Route("/sandboxes/{id}", _of_one(kill), methods=["DELETE"]),
        Route("/sandboxes/{id}", _of_one(info)),
        Route("/sandboxes/{id}/pause", _of_one(pause), methods=["POST"]),
        *(Route(f"{of}/sandboxes/{{id}}/connect", _of_one(connect), methods=["POST"]) for of in ("", "/v2")),
        Route("/sandboxes/{id}/timeout", _of_one(timeout), methods=["POST"]),
        Route("/sandboxes/{id}/snapshots", _of_one(snapshot), methods=["POST"]),
        Route("/sandboxes/{id}/network", _of_one(network), methods=["PUT"]),
        Route("/templates/{id}", drop, methods=["DELETE"]),
        Route("/files", write, methods=["POST"]),
        Route("/fault", fault, methods=["POST", "DELETE"]),
        Route("/log", log),
        Route("/health", health),
    ]
    plain, remote = Starlette(routes=routes), ProcessASGIApplication(Commands())

    async def app(scope: Any, receive: Any, send: Any) -> None:
        is_remote = scope["type"] == "http" and scope["path"].startswith("/process.Process/")
        if scope["type"] == "http" and await faulty(scope, send):
            return
        await (remote if is_remote else plain)(scope, receive, send)

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)  # who comes before it serves waits
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        for box in BOXES.values():
            box.signal(signal.SIGKILL)


if __name__ == "__main__":
    serve(*sys.argv[1:])
