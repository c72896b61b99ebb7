"""Lines that a real agent and kasmon said to each other, kept in a file, and what they mean when they are read again.

    python -m tests.support.acp.recording AGENT     record lines/AGENT-VERSION.jsonl anew, against the model stub

Each line is `{"to": "agent", "message": {...}}` or `{"to": "kasmon", ...}`; folders are `/project` and `/home/me`.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from kasmon.agents.catalog import find_other
from kasmon.backends.acp import backend, permission_requests, translator
from kasmon.backends.acp.settings import parse_offered
from kasmon.backends.acp.translator import AcpTranslator
from kasmon.backends.acp.transport import AcpTransport, IncomingCall
from kasmon.backends.base import Chunk
from kasmon.model.commands import Answer, Interrupt, Prompt, Stop
from kasmon.model.events import Event, RequestOpened, TurnEnded, TurnStarted
from kasmon.model.permission import Decision, RequestId, SessionId
from tests.support.agents.real_agent import FLAGS, RealAgent, agent_binary, pinned_version, settled
from tests.support.model_stub import ModelStub

LINES: Final = Path(__file__).parents[2] / "backends" / "acp" / "lines"
AT: Final = 1_000.0
PROMPTS: Final[tuple[tuple[str, Decision | None], ...]] = (
    ("one %% think hm %% say hello there %% bash echo hi >made.txt %% say done", Decision.ALLOW),
    ("two %% write new.txt|a\\nb\\nc %% say written", Decision.ALLOW),
    ("three %% edit new.txt|b|B %% say edited", Decision.ALLOW),
    ("four %% bash touch no.txt %% say after", Decision.DENY),
    ("five %% bash touch never.txt %% say after", None),
    ("six %% fail 400", None),
)
"""What is recorded: prompts, and the answer to what they make the agent ask; None interrupts it there."""


def heard_again(name: str) -> list[Event]:
    return [event for event in Reading(name).facts() if not isinstance(event, Chunk)]


class Reading:
    """One recording that is read through the translation, without a process."""

    def __init__(self, name: str) -> None:
        self._lines = (LINES / f"{name}.jsonl").read_text().splitlines()
        self.translation = AcpTranslator("/project")
        self._calls: dict[Any, str] = {}
        self._asked: dict[Any, permission_requests.AcpPermission] = {}

    def facts(self) -> Iterator[Event | Chunk]:
        for line in self._lines:
            message = json.loads(line)
            if message["to"] == "agent":
                yield from self._told(message["message"])
            else:
                yield from self._heard(message["message"])

    def _told(self, message: dict[str, Any]) -> Iterator[Event | Chunk]:
        if "method" in message:
            self._calls[message.get("id")] = message["method"]
        elif (ask := self._asked.get(message["id"])) is not None:
            chosen = message["result"]["outcome"].get("optionId")
            yield from self.translation.tools.apply_answer(ask.call, chosen is not None and chosen == ask.allow, AT)
        if message.get("method") == "session/prompt":
            yield from self.translation.begins(AT)
            yield TurnStarted(at=AT, prompt=message["params"]["prompt"][0]["text"])

    def _heard(self, message: dict[str, Any]) -> Iterator[Event | Chunk]:
        method = message.get("method")
        if method == "session/update":
            yield from self.translation.translate(message["params"], AT)
        elif method == "session/request_permission":
            yield from self.translation.speech.finish(AT)
            ask = self._asked[message["id"]] = self._ask(message)
            yield RequestOpened(at=AT, request=ask.request)
        elif method is None:
            yield from self._answered(self._calls[message["id"]], message)

    def _ask(self, message: dict[str, Any]) -> permission_requests.AcpPermission:
        request = permission_requests.understood(message["params"])
        tools = self.translation.tools
        tool = tools.record_request(request.tool_call)
        number, session = RequestId(f"r{message['id']}"), SessionId("recorded")
        return permission_requests.ask(request, tool, tools, number=number, session=session, workdir="/project")

    def _answered(self, method: str, message: dict[str, Any]) -> Iterator[Event | Chunk]:
        result = message.get("result", {})
        if method == "initialize":
            known = find_other(result["agentInfo"]["name"])
            assert known is not None
            self.translation.tools.habits = known.quirks
        elif method == "session/new":
            self.translation.session = result["sessionId"]
            yield from self.translation.now_set(parse_offered(result), AT)
        elif method == "session/prompt":
            yield from self.translation.ends(AT, result)
            yield translator.build_turn_end(result, AT) or TurnEnded(at=AT, reason="error")


class RecordingPipe(AcpTransport):
    """A pipe that writes down all that passes."""

    kept: list[str] = []  # noqa: RUF012 - one recording a process

    async def receive(self) -> dict[str, Any] | None:
        message = await super().receive()
        if message is not None:
            params = message.get("params")
            plain = {**message, "params": params.params} if isinstance(params, IncomingCall) else message
            self.kept.append(json.dumps({"to": "kasmon", "message": plain}))
        return message

    async def send(self, message: dict[str, Any]) -> None:
        self.kept.append(json.dumps({"to": "agent", "message": message}))
        await super().send(message)


async def record(name: str, root: Path) -> None:
    """Have the real agent *name* do all `PROMPTS`."""
    async with ModelStub(delay=0) as stub:
        own = settled(name, root / "home", root / "work", stub.url)
        agent = RealAgent(name, agent_binary(name), FLAGS[name], root / "home", root / "work", own)
        opened = await backend.open(agent.launch())
        waiting: list[tuple[str, Decision | None]] = list(PROMPTS)
        decision: Decision | None = None
        async for event in opened.events():
            if isinstance(event, RequestOpened) and decision is not None:
                request = event.request
                await opened.send(Answer(request=request.id, digest=request.digest, decision=decision))
            elif isinstance(event, RequestOpened):
                await opened.send(Interrupt())
            elif type(event).__name__ in ("SettingsChanged", "TurnEnded"):
                if not waiting:
                    await opened.send(Stop(grace_s=5.0))
                    continue
                text, decision = waiting.pop(0)
                await opened.send(Prompt(text=text))


def main(name: str) -> None:
    root = Path(tempfile.mkdtemp(prefix="kr-", dir="/tmp")).resolve()
    for variable in ("HOME", "TMPDIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        folder = root / ("home" if variable == "HOME" else variable.lower())
        folder.mkdir(mode=0o700)
        os.environ[variable] = str(folder)
    (root / "work").mkdir()
    vars(import_module("kasmon.backends.acp.agent"))["AcpTransport"] = RecordingPipe
    asyncio.run(record(name, root))
    text = "\n".join(RecordingPipe.kept) + "\n"
    for folder, instead in ((root / "work", "/project"), (root / "home", "/home/me"), (root, "/tmp/scratch")):
        text = text.replace(str(folder), instead).replace(str(folder).lstrip("/"), instead.lstrip("/"))
    (LINES / f"{name}-{pinned_version(name)}.jsonl").write_text(text)
    shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
