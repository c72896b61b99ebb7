"""Record what codex says: run by hand with `python -P -m tests.support.codex.record`, when codex has a new version.

The real codex talks to the model stub, and each line of both sides goes to `recorded/NAME.jsonl`: `codex` or `kasmon`
and the message, without what belongs to this machine. tests/backends/codex/test_translator.py reads them.
"""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.support.agents import mcp_server
from tests.support.agents.real_agent import native_codex, settled
from tests.support.model_stub import ModelStub, responses
from tests.support.model_stub.model_request import Asked, Tool


def options(**described: str) -> list[dict[str, str]]:
    return [{"label": label, "description": description} for label, description in described.items()]


FOLDER: Final = Path(__file__).parents[2] / "backends" / "codex" / "recorded"
WORKDIR: Final = "/work/project"
LONGEST: Final = 400
"""A longer text is cut: codex sends its own instructions along."""
PRIVATE: Final = {"sessionId": {"path", "cliVersion"}, "installationId": {"installationId", "serverName"}}
"""What belongs to this machine, in messages that have a field of that name."""
ANYWHERE: Final = ("-c", "features.default_mode_request_user_input=true")
SERVER: Final = ("-c", f"mcp_servers.demo={{command={sys.executable!r},args=[{str(Path(mcp_server.__file__))!r}]}}")
QUESTIONS: Final = {
    "questions": [
        {"id": "c", "header": "Colour", "question": "Which one?", "options": options(red="warm", blue="cold")},
        {"id": "s", "header": "Size", "question": "How big?", "options": options(S="small", L="large")},
    ]
}
Message = dict[str, Any]


class Line:
    """The line to one codex; everything on it is kept."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.kept: list[Message] = []
        self.calls: asyncio.Queue[Message] = asyncio.Queue()
        self.thread = ""
        self._process = process
        self._count = 0
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._moved = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout
        async for line in self._process.stdout:
            message = json.loads(line)
            self.kept.append({"codex": message})
            if "method" in message and "id" in message:
                self.calls.put_nowait(message)
            elif "id" in message:
                self._answers.pop(message["id"]).set_result(message)
            self._moved.set()

    def say(self, message: Message) -> None:
        assert self._process.stdin
        self.kept.append({"kasmon": message})
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def call(self, method: str, **params: Any) -> Message:
        self._count += 1
        self._answers[self._count] = waiting = asyncio.get_running_loop().create_future()
        self.say({"id": self._count, "method": method, "params": params})
        answer = await waiting
        return dict(answer.get("result", {}))

    async def open(self, **more: Any) -> None:
        info = {"name": "kasmon", "title": "kasmon", "version": "0"}
        await self.call("initialize", clientInfo=info, capabilities={"experimentalApi": True})
        self.say({"method": "initialized"})
        settings = {"approvalPolicy": "untrusted", "sandbox": "workspace-write"} | more
        method = "thread/resume" if "threadId" in more else "thread/start"
        self.thread = (await self.call(method, **settings))["thread"]["id"]

    async def prompt(self, text: str, **more: Any) -> str:
        prompt_input = [{"type": "text", "text": text, "text_elements": []}]
        answer = await self.call("turn/start", threadId=self.thread, input=prompt_input, **more)
        return str(answer["turn"]["id"])

    async def answer(self, result: Message) -> None:
        self.say({"id": (await self.calls.get())["id"], "result": result})

    async def heard(self, method: str, count: int = 1) -> None:
        """Wait until codex said *method* so often, of the main thread."""
        await self.until(lambda: sum(self._is(kept, method) for kept in self.kept) >= count)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._moved.clear()
            await self._moved.wait()

    def _is(self, kept: Message, method: str) -> bool:
        message = kept.get("codex", {})
        is_main: bool = (
            message.get("method") == method and message["params"].get("threadId", self.thread) == self.thread
        )
        return is_main

    async def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        await self._reading
        await self._process.wait()


Scenario = Callable[[Line], Coroutine[None, None, None]]
ACCEPT, DECLINE, CANCEL = ({"decision": word} for word in ("accept", "decline", "cancel"))


async def work(line: Line) -> None:
    """A turn with a thought, a message, a command and two changes of files."""
    await line.open()
    await line.prompt(
        "go %% think hmm %% say I begin %% bash echo made %% write a.txt|one %% edit a.txt|one|two %% say done"
    )
    for _ in range(3):
        await line.answer(ACCEPT)
    await line.heard("turn/completed")


async def denied(line: Line) -> None:
    """A command that is declined, a change that is declined, a command that is cancelled."""
    await line.open()
    await line.prompt("go %% bash touch a %% write b|x %% bash touch c %% say never")
    for result in (DECLINE, DECLINE, CANCEL):
        await line.answer(result)
    await line.heard("turn/completed")


async def interrupted(line: Line) -> None:
    """An interrupt while a person is asked, and one while text is written."""
    await line.open()
    turn = await line.prompt("go %% bash touch a %% say never")
    await line.calls.get()
    await line.call("turn/interrupt", threadId=line.thread, turnId=turn)
    await line.heard("serverRequest/resolved")
    turn = await line.prompt("then %% slow 20 w")
    await line.heard("item/agentMessage/delta")
    await line.call("turn/interrupt", threadId=line.thread, turnId=turn)
    await line.heard("turn/completed", 2)


async def steered(line: Line) -> None:
    """A prompt that goes into a running turn."""
    await line.open()
    turn = await line.prompt("go %% slow 20 w")
    await line.heard("item/agentMessage/delta")
    prompt_input = [{"type": "text", "text": "no, this %% say this", "text_elements": []}]
    await line.call("turn/steer", threadId=line.thread, expectedTurnId=turn, input=prompt_input)
    await line.heard("turn/completed")


async def questions(line: Line) -> None:
    """Two questions in one call."""
    await line.open()
    await line.prompt(f"go %% tool request_user_input {json.dumps(QUESTIONS)} %% say thanks")
    await line.answer({"answers": {"c": {"answers": ["blue"]}, "s": {"answers": ["L"]}}})
    await line.heard("turn/completed")


async def plan(line: Line) -> None:
    """A turn in plan mode."""
    await line.open()
    mode = {"mode": "plan", "settings": {"model": "gpt-5.5", "reasoning_effort": None, "developer_instructions": None}}
    await line.prompt("go %% plan # Plan\\n- first", collaborationMode=mode)
    await line.heard("turn/completed")


async def permissions(line: Line) -> None:
    """More permissions, for themselves and for one command."""
    await line.open(approvalPolicy="on-request")
    wanted = {"network": {"enabled": True}, "file_system": {"write": ["/opt/x"]}}
    command = {"cmd": "touch /opt/x/a", "justification": "to keep it", "additional_permissions": wanted}
    command["sandbox_permissions"] = "with_additional_permissions"
    asked = {"reason": "to fetch it", "permissions": wanted}
    await line.prompt(
        f"go %% tool request_permissions {json.dumps(asked)} %% tool exec_command {json.dumps(command)} %% say x"
    )
    await line.answer({"permissions": {}, "scope": "turn"})
    await line.answer(DECLINE)
    await line.heard("turn/completed")


async def server(line: Line) -> None:
    """A tool of an MCP server: may it be used, and what the server asks then."""
    await line.open()
    await line.prompt('go %% tool greet {"who": "me"} %% say greeted')
    await line.answer({"action": "accept", "content": {}, "_meta": None})
    await line.answer({"action": "accept", "content": {"colour": "blue", "count": 3, "sure": True}, "_meta": None})
    await line.heard("turn/completed")


async def agents(line: Line) -> None:
    """A sub-agent, which goes on with the same script."""
    await line.open(model="gpt-6.1-sol")
    task = {"task_name": "helper", "message": "help", "fork_turns": "all"}
    await line.prompt(f"go %% tool spawn_agent {json.dumps(task)} %% bash echo x %% say done")
    for _ in range(2):
        await line.answer(ACCEPT)
    await line.heard("turn/completed")
    ended = ("item/completed", "subagent-completed")
    await line.until(lambda: any(all(word in json.dumps(kept) for word in ended) for kept in line.kept))


async def failures(line: Line) -> None:
    """Errors of the provider: a retry that fails, too many requests, a wrong key."""
    await line.open()
    for n, step in enumerate(("drop", "fail 400", "fail 429", "fail 401"), 1):
        await line.prompt(f"go %% {step}")
        await line.heard("turn/completed", n)


SCENARIOS: Final[dict[Scenario, tuple[str, ...]]] = {
    work: (),
    denied: (),
    interrupted: (),
    steered: (),
    questions: ANYWHERE,
    plan: (),
    permissions: ("-c", "features.request_permissions_tool=true", "-c", "features.exec_permission_approvals=true"),
    server: SERVER,
    agents: (),
    failures: (),
}


@contextlib.asynccontextmanager
async def running(program: Path, flags: tuple[str, ...], root: Path, url: str) -> AsyncIterator[Line]:
    for name in ("home", "work", "tmp"):
        (root / name).mkdir()
    own = settled("codex", root / "home", root / "work", url)
    environment = {"PATH": os.environ["PATH"], "HOME": str(root / "home"), "TMPDIR": str(root / "tmp"), **own}
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        program, "app-server", *flags, cwd=root / "work", env=environment, stdin=pipe, stdout=pipe, stderr=nowhere
    )
    line = Line(process)
    try:
        yield line
    finally:
        await line.close()


def scrubbed(value: Any, root: str) -> Any:
    """*value* without what belongs to this machine."""
    if isinstance(value, dict):
        private = {name for mark, names in PRIVATE.items() if mark in value for name in names}
        return {key: scrubbed(member, root) for key, member in value.items() if key not in private}
    if isinstance(value, list):
        return [scrubbed(member, root) for member in value]
    if isinstance(value, str):
        value = value.replace(f"{root}/work", WORKDIR).replace(root, "/home/me")
        return value if len(value) <= LONGEST else f"{value[:LONGEST]}…"
    return value


def with_greet(body: Message) -> Asked:
    """Codex hides the tools of MCP servers behind a search; the stub knows this one without."""
    asked = read(body)
    return (
        asked
        if asked.is_aux
        else Asked(**{**vars(asked), "tools": {**asked.tools, "greet": Tool(namespace="mcp__demo")}})
    )


read = responses.read


async def main() -> None:
    program = native_codex(Path(sys.argv[1])) if len(sys.argv) > 1 else None
    assert program, "name the codex that npm installed"
    responses.read = with_greet
    for scenario, flags in SCENARIOS.items():
        with tempfile.TemporaryDirectory(prefix="kr-", dir="/tmp") as root:
            async with ModelStub(delay=0) as stub, running(program, flags, Path(root), stub.url) as line:
                async with asyncio.timeout(60):
                    await scenario(line)
            lines = [msgspec.json.encode(scrubbed(kept, root)) for kept in line.kept]
        name = scenario.__name__
        (FOLDER / f"{name}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        print(name, len(lines), "lines")


if __name__ == "__main__":
    asyncio.run(main())
