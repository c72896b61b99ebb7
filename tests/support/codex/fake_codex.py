"""A codex that is the scripted agent: what it does stands in the prompt, what it says is codex's protocol."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from kasmon.model import events
from kasmon.model.commands import Answer, Launch, Mode, Prompt
from kasmon.model.permission import Decision, Request, RequestKind, SessionId
from kasmon.scripted_agent.agent import Actor
from kasmon.scripted_agent.player import Move, SpokenText
from kasmon.scripted_agent.script import is_script
from tests.support.codex.odd_codex import THREAD, notify, say

Params = dict[str, Any]


class Codex:
    """Codex's side of the line."""

    def __init__(self) -> None:
        launch = Launch(session=SessionId("fake"), name="", agent="", mode=Mode.SDK, backend="", speed=0.0)
        self.actor = Actor(launch)
        self.turns = self.calls = 0
        self.open: dict[int, tuple[Request, str]] = {}
        """The calls that wait: what the scripted agent asks, and the item it is about."""
        self.allowed: list[str] = []
        """The items that were allowed and have not begun."""
        self.items: dict[str, Params] = {}
        self.answers: dict[str, Callable[[Params], Params]] = {
            "initialize": lambda _: {"userAgent": "kasmon/0.169.0 (fake)"},
            "account/read": lambda _: {"account": None, "requiresOpenaiAuth": False},
            "model/list": lambda _: {"data": [{"model": "fake-1"}, {"model": "secret", "hidden": True}]},
            "thread/start": lambda _: self.thread(THREAD),
            "thread/resume": lambda params: self.thread(params["threadId"]),
            "thread/turns/list": lambda _: {"data": []},
            "thread/backgroundTerminals/list": lambda _: {"data": []},
            "turn/start": self.prompted,
            "turn/steer": self.steered,
            "turn/interrupt": self.interrupted,
        }

    def live(self) -> None:
        """Do what the script says, then what the other side says, in turns."""
        self.play()
        for line in sys.stdin:
            self.hear(json.loads(line))
            self.play()

    def hear(self, message: Params) -> None:
        if "method" not in message:
            self.answered(message["id"], message.get("result"))
        elif "id" in message:
            answer = self.answers.get(message["method"])
            if answer is None:
                say(id=message["id"], error={"code": -32600, "message": f"unknown variant `{message['method']}`"})
            else:
                say(id=message["id"], result=answer(message["params"]))

    def thread(self, name: str) -> Params:
        return {"thread": {"id": name, "status": {"type": "idle"}}, "model": "fake-1", "approvalPolicy": "untrusted"}

    def prompted(self, params: Params) -> Params:
        self.actor.prompt(Prompt(text=params["input"][0]["text"]), time.time())
        turn = params.get("expectedTurnId") or f"turn-{self.turns + 1}"
        return {"turn": {"id": turn}, "turnId": turn}

    def steered(self, params: Params) -> Params:
        """A script goes on behind the turn; what a person merely says is heard."""
        return self.prompted(params) if is_script(params["input"][0]["text"]) else {"turnId": params["expectedTurnId"]}

    def interrupted(self, _: Params) -> Params:
        self.actor.interrupt(time.time())
        return {}

    def answered(self, call: int, result: Params | None) -> None:
        request, item = self.open.pop(call)
        notify("serverRequest/resolved", requestId=call)
        result = result or {}
        if request.kind is RequestKind.QUESTION:
            labels = [label for answer in result.get("answers", {}).values() for label in answer["answers"]]
            decision = Decision.CHOOSE if labels else Decision.DENY
        else:
            labels = []
            decision = Decision.ALLOW if result.get("decision") == "accept" else Decision.DENY
            if decision is Decision.ALLOW:
                self.allowed.append(item)
            else:
                notify("item/completed", item={**self.items[item], "status": "declined"})
        self.actor.answer(Answer(request=request.id, digest=request.digest, decision=decision, labels=tuple(labels)))
        if result.get("decision") == "cancel":
            self.actor.interrupt(time.time())

    def play(self) -> None:
        while (move := self.actor.advance(time.time())) is not None:
            self.tell(move)

    def tell(self, move: Move) -> None:
        match move:
            case events.TurnStarted():
                self.turns += 1
                notify("turn/started", turn={"id": f"turn-{self.turns}"})
            case events.TurnEnded():
                status = {"done": "completed", "interrupted": "interrupted"}.get(move.reason, "failed")
                notify("thread/status/changed", status={"type": "idle"})
                error = {"message": move.error} if status == "failed" else None
                notify("turn/completed", turn={"id": f"turn-{self.turns}", "status": status, "error": error})
            case SpokenText(thinking=True):
                notify("item/reasoning/summaryTextDelta", itemId="r", delta=move.text)
            case SpokenText():
                notify("item/agentMessage/delta", itemId="m", delta=move.text)
            case events.MessageWritten():
                notify("item/completed", item={"type": "agentMessage", "id": "m", "text": move.text})
            case events.ThoughtWritten():
                notify("item/completed", item={"type": "reasoning", "id": "r", "summary": [move.text]})
            case events.RequestOpened():
                self.ask(move.request)
            case events.RequestWithdrawn():
                for call in [call for call, (request, _) in self.open.items() if request.id == move.request]:
                    del self.open[call]
                    notify("serverRequest/resolved", requestId=call)
            case events.ToolStarted() | events.ToolFinished():
                self.use(move)
            case events.PlanUpdated():
                notify("turn/plan/updated", plan=[{"step": item.text, "status": "pending"} for item in move.items])
            case events.UsageReported():
                total = {"inputTokens": move.input, "outputTokens": move.output}
                usage = {"total": total, "last": {"totalTokens": move.context}, "modelContextWindow": move.limit}
                notify("thread/tokenUsage/updated", tokenUsage=usage)
            case events.SessionEnded():
                end(move)

    def ask(self, request: Request) -> None:
        call, item = self.calls, f"item-{self.calls}"
        self.calls += 1
        self.open[call] = (request, item)
        if request.kind is RequestKind.QUESTION:
            options = [{"label": label, "description": ""} for label in request.options]
            question = {"id": "q", "header": "", "question": request.shown, "options": options}
            say(id=call, method="item/tool/requestUserInput", params={"threadId": THREAD, "questions": [question]})
            return
        command = str(request.input.get("command", request.title))
        self.items[item] = {"type": "commandExecution", "id": item, "command": command, "source": "agent"}
        notify("item/started", item={**self.items[item], "status": "inProgress", "processId": None})
        params = {"threadId": THREAD, "itemId": item, "command": command, "kind": "command"}
        say(id=call, method="item/commandExecution/requestApproval", params=params)

    def use(self, move: events.ToolStarted | events.ToolFinished) -> None:
        """A tool begins or ends; one that was allowed has begun as an item already."""
        if isinstance(move, events.ToolStarted):
            if self.allowed:
                self.items[move.call] = self.items[self.allowed.pop(0)]
                return
            self.items[move.call] = {
                "type": "commandExecution",
                "id": move.call,
                "command": move.title,
                "source": "unifiedExecStartup",
                "processId": "1",
            }
            notify("item/started", item=self.items[move.call])
            return
        done = {"status": "completed", "aggregatedOutput": move.output, "exitCode": 0 if move.ok else 1}
        notify("item/completed", item={**self.items.pop(move.call), **done})


def end(how: events.SessionEnded) -> None:
    sys.stdout.flush()
    if how.signal:
        os.kill(os.getpid(), signal.Signals[how.signal])
    os._exit(how.exit_code or 0)


def main() -> None:
    Codex().live()
