"""The scripted agent behind the Agent Client Protocol on its stdio: a program for the backend's tests.

    python scripted_agent.py [FOLDER]

With a FOLDER it keeps its conversations there and can go on with them.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from kasmon.model import events
from kasmon.model.commands import Answer, Launch, Mode, Prompt
from kasmon.model.permission import Decision, SessionId
from kasmon.scripted_agent.agent import Actor
from kasmon.scripted_agent.player import ScriptPause, SpokenText

OPTIONS = {
    Decision.ALLOW: {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
    Decision.ALWAYS: {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    Decision.DENY: {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
}
STATES = {"open": "pending", "doing": "in_progress", "done": "completed"}


class ScriptedAcp:
    def __init__(self, folder: Path | None) -> None:
        launch = Launch(
            session=SessionId("acp"), name="acp", agent="scripted", mode=Mode.SDK, backend="scripted", speed=0.0
        )
        self.actor = Actor(launch)
        self.folder = folder
        self.session = ""
        self.turn: Any = None
        """The id of the prompt that runs."""
        self.message = 0
        self.has_spoken = False
        self.asked: dict[int, Any] = {}
        self.stirred = asyncio.Event()

    async def run(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 26)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        playing = asyncio.create_task(self.play())
        while line := await reader.readline():
            self.hear(json.loads(line))
            self.stirred.set()
        playing.cancel()

    async def play(self) -> None:
        while True:
            match self.actor.advance(time.time()):
                case None:
                    self.stirred.clear()
                    await self.stirred.wait()
                case ScriptPause(seconds=seconds):
                    await asyncio.sleep(seconds)
                case SpokenText(text=text, thinking=thinking):
                    self.has_spoken = True
                    self.speak(text, thinking)
                case event:
                    self.tell(event)
            await asyncio.sleep(0)

    def hear(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                able = {"loadSession": self.folder is not None}
                self.answer(message, {"protocolVersion": 1, "agentCapabilities": able, "authMethods": []})
            case "session/new":
                self.session = f"talk-{os.getpid()}"
                self.answer(message, {"sessionId": self.session})
            case "session/load":
                self.session = params["sessionId"]
                for prompt in self.prompts():
                    self.update(sessionUpdate="user_message_chunk", content={"type": "text", "text": prompt})
                self.answer(message, {})
            case "session/prompt":
                self.turn = message["id"]
                text = "".join(block["text"] for block in params["prompt"])
                self.keep(text)
                self.actor.prompt(Prompt(text=text), time.time())
            case "session/cancel":
                self.actor.interrupt(time.time())
            case None:
                self.decided(message)

    def tell(self, event: events.Event) -> None:
        match event:
            case events.MessageWritten():
                if not self.has_spoken:
                    self.speak(event.text, False)
                self.message += 1
                self.has_spoken = False
            case events.ToolStarted():
                self.update(
                    sessionUpdate="tool_call",
                    toolCallId=event.call,
                    title=event.title or event.tool,
                    kind="execute" if event.tool == "Bash" else "other",
                    status="in_progress",
                    rawInput=json.loads(event.input or "{}"),
                )
            case events.ToolFinished():
                output = [{"type": "content", "content": {"type": "text", "text": event.output}}]
                status = "completed" if event.ok else "failed"
                self.update(sessionUpdate="tool_call_update", toolCallId=event.call, status=status, content=output)
            case events.PlanUpdated():
                entries = [{"content": i.text, "priority": "medium", "status": STATES[i.state]} for i in event.items]
                self.update(sessionUpdate="plan", entries=entries)
            case events.UsageReported():
                self.update(sessionUpdate="usage_update", used=event.context, size=event.limit)
            case events.RequestOpened():
                self.ask(event)
            case events.TurnEnded():
                self.end_turn(event)
            case events.SessionEnded():
                self.die(event)
            case _:
                pass

    def ask(self, event: events.RequestOpened) -> None:
        request = event.request
        number = len(self.asked) + 1000
        self.asked[number] = request
        options = [OPTIONS[choice] for choice in request.choices if choice in OPTIONS]
        if request.options:
            options = [{"optionId": label, "name": label, "kind": "allow_once"} for label in request.options]
            options.append(OPTIONS[Decision.DENY])
        call = {
            "toolCallId": f"ask-{number}",
            "title": request.title or request.shown,
            "kind": "execute" if "command" in request.input else "other",
            "status": "pending",
            "rawInput": request.input,
        }
        params = {"sessionId": self.session, "toolCall": call, "options": options}
        self.say({"id": number, "method": "session/request_permission", "params": params})

    def decided(self, message: dict[str, Any]) -> None:
        request = self.asked.get(message["id"])
        if request is None or request.id not in self.actor.open:
            return
        chosen = message["result"]["outcome"].get("optionId")
        decision, labels = (Decision.CHOOSE, (chosen,)) if chosen in request.options else (Decision.DENY, ())
        if chosen == "once":
            decision = Decision.ALLOW
        self.actor.answer(Answer(request=request.id, digest=request.digest, decision=decision, labels=labels))

    def end_turn(self, event: events.TurnEnded) -> None:
        if event.reason == "error":
            self.say({"id": self.turn, "error": {"code": -32603, "message": event.error}})
        else:
            stop = "cancelled" if event.reason == "interrupted" else "end_turn"
            self.say({"id": self.turn, "result": {"stopReason": stop}})

    def die(self, event: events.SessionEnded) -> None:
        if event.signal is not None:
            os.kill(os.getpid(), signal.Signals[event.signal])
        os._exit(event.exit_code or 0)

    def speak(self, text: str, thinking: bool) -> None:
        kind = "agent_thought_chunk" if thinking else "agent_message_chunk"
        self.update(sessionUpdate=kind, messageId=f"m{self.message}", content={"type": "text", "text": text})

    def update(self, **update: Any) -> None:
        self.say({"method": "session/update", "params": {"sessionId": self.session, "update": update}})

    def answer(self, message: dict[str, Any], result: dict[str, Any]) -> None:
        self.say({"id": message["id"], "result": result})

    def say(self, message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def kept(self) -> Path:
        assert self.folder is not None
        return self.folder / f"{self.session}.json"

    def keep(self, prompt: str) -> None:
        if self.folder is not None:
            self.kept().write_text(json.dumps([*self.prompts(), prompt]))

    def prompts(self) -> list[str]:
        """What it was told before."""
        prompts: list[str] = json.loads(self.kept().read_text()) if self.kept().exists() else []
        return prompts


if __name__ == "__main__":
    asyncio.run(ScriptedAcp(Path(sys.argv[1]) if len(sys.argv) > 1 else None).run())
