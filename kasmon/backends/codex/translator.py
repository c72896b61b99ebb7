"""Translate codex's messages to events of one session. Sans-IO: the time is an argument.

One connection carries several threads: the main one, which the user talks to, and those of codex's sub-agents. The
turns of the main one are the session's turns; of the others, only messages, tool calls and requests are reported.
"""

import json
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from kasmon.backends.base import Chunk
from kasmon.backends.codex import items
from kasmon.backends.codex.item_tracker import ItemTracker
from kasmon.backends.codex.notices import CodexNotices, failure
from kasmon.backends.codex.pending_prompts import PendingPrompts
from kasmon.backends.codex.request import CodexRequestContext
from kasmon.backends.codex.request_registry import CallId, CodexRequests
from kasmon.backends.codex.settings import MODES, CodexSettings, settings
from kasmon.backends.codex.usage import CodexUsage, is_limit
from kasmon.backends.common.json_access import Table, number, rows, table, text
from kasmon.model.commands import Launch
from kasmon.model.events import (
    Event,
    PlanItem,
    PlanUpdated,
    RequestOpened,
    RequestWithdrawn,
    SettingsChanged,
    TurnEnded,
    TurnStarted,
)
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, sealed

Said: TypeAlias = Event | Chunk
GONE: Final = "codex ended"
NO_LONGER: Final = "codex no longer waits for it"
STEPS: Final[dict[str, Literal["open", "doing", "done"]]] = {"inProgress": "doing", "completed": "done"}
IDLE: Final = frozenset({"idle", "systemError", "notLoaded"})
"""The states of a thread without open requests."""
PLAN_CHOICES: Final = (Decision.ALLOW, Decision.DENY)


class CodexTranslator:
    """Translates the messages of one codex, once its thread is open."""

    def __init__(self, launch: Launch) -> None:
        self.main = ""
        """The main thread's id; empty until `begin`."""
        self.asks = CodexRequests()
        self.given = PendingPrompts()
        self.notices = CodexNotices()
        self.settings = CodexSettings()
        self.turns: dict[str, str] = {}
        """The running turn of each thread."""
        self.plan: Request | None = None
        """The plan that waits for approval; codex itself does not wait for it."""
        self._launch = launch
        self._work = ItemTracker("", launch.workdir)
        self._meter = CodexUsage(launch.used)
        self._allowed: dict[CallId, str] = {}
        """The calls that were allowed, until codex confirms -> their items."""
        self._planned = ""
        self._handlers: dict[str, Callable[[Table, str, float], list[Said]]] = {
            "error": self._failed,
            "turn/started": self._turn_started,
            "turn/completed": self._turn_completed,
            "turn/plan/updated": self._to_do,
            "item/started": self._item_started,
            "item/completed": self._item_completed,
            "item/agentMessage/delta": self._written,
            "item/plan/delta": self._shown,
            "item/reasoning/summaryPartAdded": self._thought_on,
            "item/reasoning/summaryTextDelta": self._thought,
            "item/reasoning/textDelta": self._thought,
            "item/commandExecution/outputDelta": self._printed,
            "item/commandExecution/terminalInteraction": self._typed,
            "item/fileChange/patchUpdated": self._patched,
            "serverRequest/resolved": self._resolved,
            "thread/status/changed": self._status,
            "thread/settings/updated": self._set,
            "thread/tokenUsage/updated": self._used,
            "account/rateLimits/updated": self._limits,
        }

    def begin(self, main: str, opened: Table, now: float) -> list[Said]:
        """Record that the thread *main* is open, according to the response *opened*."""
        self.main = main
        self._work = ItemTracker(main, self._launch.workdir)
        self._meter.main = main
        self.settings = settings(opened)
        return [self._settings_now(now, offers=True)]

    def heard(self, method: str, params: Table, now: float) -> list[Said]:
        """Return the events in a notification."""
        handler = self._handlers.get(method)
        if handler is None:
            return [*self.notices.message(method, params, now)]
        return handler(params, text(params, "threadId"), now)

    def asked(self, call: CallId, method: str, params: Table, now: float) -> list[Said] | None:
        """Return the events in a call that waits for the user; None if the call is unknown."""
        item = text(params, "itemId")
        setting = self._setting(f"{self._launch.generation}.{call}", item, now)
        requests = self.asks.opened(call, method, params, setting)
        return [RequestOpened(at=now, request=request) for request in requests] or None

    def answered(self, call: CallId, item: str) -> None:
        """Record that the call *call*, about *item*, was allowed."""
        self._allowed[call] = item

    def foreground(self) -> dict[str, str]:
        """Return the commands that codex waits for, each with its thread."""
        return self._work.foreground()

    def given_up(self, command: str, now: float) -> list[Said]:
        """Report the *command* as finished, as codex will not."""
        return [*self._work.given_up(command, now)]

    def lifted(self, now: float) -> list[Said]:
        """Return the end of a limit whose time is over."""
        return _known(self._meter.lifted(now))

    def ended(self, now: float) -> list[Said]:
        """Return the last events: unfinished messages, and the withdrawal of open requests."""
        said: list[Said] = [*self._work.broken_off(self.main, now)]
        said += self._withdrawn(tuple(request.id for request in self.asks.waiting()), now, GONE)
        if self.plan is not None:
            said += self._withdrawn((self.plan.id,), now, GONE)
        return said

    # turns

    def _turn_started(self, params: Table, thread: str, now: float) -> list[Said]:
        before = self.turns.get(thread)
        self.turns[thread] = text(params, "turn", "id")
        if thread != self.main:
            return []
        said: list[Said] = [] if before is None else self._over(now, "error", "codex started another turn")
        if self.plan is not None:
            said.append(RequestWithdrawn(at=now, request=self.plan.id, why="the conversation continued"))
            self.plan = None
        self._planned = ""
        self._meter.is_limited = False
        self.notices.again()
        prompt = self.given.begun()
        if prompt is None:
            return [*said, TurnStarted(at=now, by="agent")]
        return [*said, TurnStarted(at=now, prompt=prompt.text, by=prompt.by)]

    def _turn_completed(self, params: Table, thread: str, now: float) -> list[Said]:
        if self.turns.pop(thread, None) is None:
            return []
        if thread != self.main:
            return [*self._work.turn_over(thread, now), *self._withdrawn(self.asks.of_thread(thread), now)]
        status, error = text(params, "turn", "status"), table(params, "turn", "error")
        if status == "failed":
            limited = self._meter.failed(error, now)
            return [*_known(limited), *self._over(now, "limit" if is_limit(error) else "error", failure(error))]
        if status == "interrupted":
            return self._over(now, "interrupted")
        return [*_known(self._meter.lifted(now)), *self._over(now, "done"), *self._plan_to_approve(params, now)]

    def _over(
        self, now: float, reason: Literal["done", "interrupted", "limit", "error"], error: str = ""
    ) -> list[Said]:
        """End the main thread's turn. It voids all requests, so those of sub-agents are opened again."""
        said: list[Said] = [*self._work.turn_over(self.main, now)]
        said += self._withdrawn(self.asks.of_thread(self.main), now)
        dropped = self.given.dropped() if reason == "interrupted" else ()
        said.append(TurnEnded(at=now, reason=reason, error=error, dropped=dropped))
        return said + [RequestOpened(at=now, request=request) for request in self.asks.waiting()]

    def _plan_to_approve(self, params: Table, now: float) -> list[Said]:
        """Open a request to approve the plan with which codex ended its turn."""
        if not (self._planned and self.settings.is_planning):
            return []
        self.plan = sealed(
            Request(
                id=RequestId(f"{self._launch.generation}.plan.{text(params, 'turn', 'id')}"),
                session=self._launch.session,
                kind=RequestKind.PLAN,
                title="Approve the plan",
                shown=self._planned,
                choices=PLAN_CHOICES,
                asked_at=now,
            )
        )
        return [RequestOpened(at=now, request=self.plan)]

    def _failed(self, params: Table, thread: str, now: float) -> list[Said]:
        """Report an error of the provider; one that ends the turn is reported with the turn's end."""
        if params.get("willRetry") is not True and thread in self.turns:
            return []
        self._work.again(thread)
        return [*self.notices.once(failure(table(params, "error")), now)]

    def _status(self, params: Table, thread: str, now: float) -> list[Said]:
        is_idle = text(params, "status", "type") in IDLE
        return self._withdrawn(self.asks.of_thread(thread), now) if is_idle else []

    # items

    def _item_started(self, params: Table, thread: str, now: float) -> list[Said]:
        item = table(params, "item")
        kind = text(item, "type")
        if not items.is_known(kind):
            return [*self.notices.unknown(f"item {kind}", json.dumps(item, ensure_ascii=False), now)]
        said: list[Said] = [*self._work.started(item, thread, now)]
        if kind == items.PERSONS and thread == self.main:
            prompt = self.given.said_back(items.words(item))
            said += [TurnStarted(at=now, prompt=prompt.text, by=prompt.by)] if prompt is not None else []
        return said

    def _item_completed(self, params: Table, thread: str, now: float) -> list[Said]:
        item = table(params, "item")
        if text(item, "type") == "plan" and thread == self.main:
            self._planned = text(item, "text")
        return [*self._work.completed(item, thread, now)]

    def _written(self, params: Table, thread: str, _now: float) -> list[Said]:
        return [*self._work.wrote(text(params, "itemId"), thread, text(params, "delta"))]

    def _shown(self, params: Table, thread: str, _now: float) -> list[Said]:
        return [*self._work.shown(thread, text(params, "delta"))]

    def _thought(self, params: Table, thread: str, _now: float) -> list[Said]:
        return [*self._work.shown(thread, text(params, "delta"), thinking=True)]

    def _thought_on(self, params: Table, thread: str, _now: float) -> list[Said]:
        return [*self._work.shown(thread, "\n\n", thinking=True)] if number(params, "summaryIndex") else []

    def _printed(self, params: Table, _thread: str, now: float) -> list[Said]:
        return [*self._work.printed(text(params, "itemId"), now)]

    def _typed(self, params: Table, _thread: str, _now: float) -> list[Said]:
        self._work.in_background(text(params, "itemId"))
        return []

    def _patched(self, params: Table, _thread: str, now: float) -> list[Said]:
        item = text(params, "itemId")
        self._work.changes[item] = rows(params, "changes")
        requests = self.asks.changed(item, lambda begins: self._setting(begins, item, now))
        return [RequestOpened(at=now, request=request) for request in requests]

    def _to_do(self, params: Table, thread: str, now: float) -> list[Said]:
        steps = rows(params, "plan")
        listed = [PlanItem(text=text(step, "step"), state=STEPS.get(text(step, "status"), "open")) for step in steps]
        return [PlanUpdated(at=now, items=tuple(listed))] if thread == self.main else []

    # requests, usage, settings

    def _resolved(self, params: Table, _thread: str, now: float) -> list[Said]:
        call = params.get("requestId")
        if not isinstance(call, int | str):
            return []
        if call in self._allowed:
            return [*self._work.allowed(self._allowed.pop(call), now)]
        return self._withdrawn(self.asks.resolved(call), now)

    def _set(self, params: Table, thread: str, now: float) -> list[Said]:
        told = settings(table(params, "threadSettings"))
        if thread != self.main or told == self.settings:
            return []
        self.settings = told
        return [self._settings_now(now)]

    def _used(self, params: Table, thread: str, now: float) -> list[Said]:
        reported = _known(self._meter.used(params, now, in_turn=thread in self.turns))
        return reported if self.main else []

    def _limits(self, params: Table, _thread: str, now: float) -> list[Said]:
        return _known(self._meter.limits(params, now))

    def _settings_now(self, now: float, *, offers: bool = False) -> SettingsChanged:
        return SettingsChanged(
            at=now,
            model=self.settings.model,
            permission_mode=self.settings.permission_mode,
            permission_modes=MODES if offers else (),
        )

    def _setting(self, begins: str, item: str, now: float) -> CodexRequestContext:
        return CodexRequestContext(
            session=self._launch.session,
            id=begins,
            workdir=self._launch.workdir,
            now=now,
            changes=self._work.changes.get(item, ()),
        )

    def _withdrawn(self, requests: tuple[RequestId, ...], now: float, why: str = NO_LONGER) -> list[Said]:
        return [RequestWithdrawn(at=now, request=request, why=why) for request in requests]


def _known(said: Event | None) -> list[Said]:
    return [] if said is None else [said]
