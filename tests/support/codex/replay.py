"""A recording, played to the translator: codex's lines as they came, our answers as they were given."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kasmon.backends.base import AgentOutput
from kasmon.backends.codex.translator import CodexTranslator
from kasmon.backends.common.open_calls import Labels
from kasmon.model.commands import Answer, ConversationUsage, Launch, Mode, Prompt
from kasmon.model.permission import Decision, Request, SessionId

RECORDED = Path(__file__).parents[2] / "backends" / "codex" / "recorded"
WORKDIR = "/work/project"
DECISIONS = {"accept": Decision.ALLOW, "decline": Decision.DENY, "cancel": Decision.CANCEL}
Kind = TypeVar("Kind")


def launch(**more: Any) -> Launch:
    fields: dict[str, Any] = {"name": "x", "agent": "codex", "mode": Mode.SDK, "backend": "codex", "workdir": WORKDIR}
    return Launch(session=SessionId("abcdefgh"), **(fields | more))


NOTHING = ConversationUsage()


class Replay:
    """A translator, and all that it said."""

    def __init__(self, used: ConversationUsage = NOTHING) -> None:
        self.talk = CodexTranslator(msgspec.structs.replace(launch(), used=used))
        self.said: list[AgentOutput] = []
        self.answers: list[dict[str, Any]] = []
        """What codex is told for each of its calls, by the translator."""
        self.now = 1000.0

    @classmethod
    def of(cls, name: str) -> "Replay":
        replay = cls()
        opening = 0
        for line in (RECORDED / f"{name}.jsonl").read_bytes().splitlines():
            kept = msgspec.json.decode(line)
            sent, received = kept.get("kasmon"), kept.get("codex")
            if sent and sent.get("method") in ("thread/start", "thread/resume"):
                opening = sent["id"]
            if received and "method" not in received and received["id"] == opening:
                replay.begin(received["result"])
            elif received and "method" in received:
                replay.hear(received["method"], received["params"], received.get("id"))
            elif sent and sent.get("method") == "turn/start":
                replay.talk.given.expect(Prompt(text=sent["params"]["input"][0]["text"]))
            elif sent and sent.get("method") == "turn/steer":
                replay.talk.given.expect_in_turn(Prompt(text=sent["params"]["input"][0]["text"]))
            elif sent and "result" in sent:
                replay.answer(sent["id"], sent["result"])
        return replay

    def begin(self, opened: dict[str, Any]) -> None:
        self.said += self.talk.begin(opened["thread"]["id"], opened, self.now)

    def hear(self, method: str, params: dict[str, Any], call: int | None = None) -> list[AgentOutput]:
        self.now += 1.0
        if call is None:
            events = self.talk.handle_notification(method, params, self.now)
        else:
            events = self.talk.open_call(call, method, params, self.now) or []
        self.said += events
        return events

    def answer(self, call: int, result: dict[str, Any]) -> None:
        """Decide on what waits as *result* does, and see what codex is told then."""
        waiting = [request for request in self.talk.requests.waiting() if request.id.startswith(f"1.{call}.")]
        for request, labels in zip(waiting, _labels(result, waiting), strict=True):
            decision = DECISIONS.get(result.get("decision") or result.get("action", ""), Decision.DENY)
            if labels:
                decision = Decision.CHOOSE
            outcome = self.talk.requests.answer(
                Answer(request=request.id, digest=request.digest, decision=decision, labels=labels), self.now
            )
            if outcome.call is not None:
                self.answers.append(outcome.result)
                if outcome.allowed:
                    self.talk.allowed[outcome.call] = outcome.item

    def of_kind(self, kind: type[Kind]) -> list[Kind]:
        return [events for events in self.said if isinstance(events, kind)]

    @property
    def kinds(self) -> list[str]:
        return [type(events).__name__ for events in self.said]


def _labels(result: dict[str, Any], waiting: list[Request]) -> list[Labels]:
    """The labels in *result*, one for each request that waits; empty for what is no question."""
    if answers := result.get("answers"):
        return [tuple(answer["answers"]) for answer in answers.values()]
    if content := result.get("content"):
        labels = {True: "yes", False: "no"}
        return [(str(labels.get(value, value) if isinstance(value, bool) else value),) for value in content.values()]
    return [() for _ in waiting]
