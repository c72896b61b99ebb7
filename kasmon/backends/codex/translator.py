"""Translate codex's messages to events of one session. Sans-IO: the time is an argument.

One connection carries several threads: the main one, which the user talks to, and those of codex's sub-agents. The
turns of the main one are the session's turns; of the others, only messages, tool calls and requests are reported.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Literal

from kasmon.backends.base import AgentOutput
from kasmon.backends.codex import items
from kasmon.backends.codex.item_tracker import ItemTracker
from kasmon.backends.codex.notices import CodexNotices, failure
from kasmon.backends.codex.request import CodexRequestContext
from kasmon.backends.codex.request_registry import NO_LONGER, CodexRequests
from kasmon.backends.codex.settings import MODES, CodexSettings, settings
from kasmon.backends.codex.usage import CodexUsage, is_limit
from kasmon.backends.common.json_access import Table, number, rows, table, text
from kasmon.backends.common.open_calls import CallId
from kasmon.model import events
from kasmon.model.commands import Launch, Prompt
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, seal

GONE: Final = "codex ended"
STEPS: Final[dict[str, Literal["open", "doing", "done"]]] = {"inProgress": "doing", "completed": "done"}
IDLE: Final = frozenset({"idle", "systemError", "notLoaded"})
"""The states of a thread without open requests."""
PLAN_CHOICES: Final = (Decision.ALLOW, Decision.DENY)


KEPT: Final = 100
"""How many unconfirmed prompts are remembered."""
BEGINNING: Final = 1000
"""How much of a dropped prompt is reported, in characters."""


class PendingPrompts:
    """The prompts sent to the main thread."""

    def __init__(self, is_shared: bool) -> None:
        """*is_shared*: another client may prompt the thread too."""
        self.is_shared = is_shared
        self._to_begin: deque[Prompt] = deque(maxlen=KEPT)
        self._to_include: deque[Prompt] = deque(maxlen=KEPT)
        self._own: Prompt | None = None
        """The prompt of the running turn, until codex has echoed it."""
        self._reasons: deque[str] = deque(maxlen=KEPT)
        """The reasons of denials that were sent as messages: no prompts."""

    def expect(self, prompt: Prompt) -> None:
        self._to_begin.append(prompt)

    def expect_in_turn(self, prompt: Prompt) -> None:
        """Expect the running turn to include *prompt*."""
        self._to_include.append(prompt)

    def expect_reason(self, text: str) -> None:
        """Expect the running turn to include *text*, the reason of a denial."""
        self._reasons.append(text)

    def forget(self, prompt: Prompt) -> None:
        for waiting in (self._to_include, self._to_begin):
            if prompt in waiting:
                waiting.remove(prompt)
                return

    def begin_turn(self) -> Prompt | None:
        """Return the prompt of the turn that begins; None if codex began it by itself."""
        self._own = self._to_begin.popleft() if self._to_begin else None
        return self._own

    def begin_foreign(self, text: str) -> None:
        """Record that the turn that begins is that of the prompt *text* of another client."""
        self._own = Prompt(text=text)

    def pop_echoed(self, text: str) -> Prompt | None:
        """Return the prompt that the running turn now includes, from *text* that codex echoed.

        None for the turn's own prompt, also for a command, which codex words itself; and for the reason of a denial.
        Other text was typed in codex's own screen, if that can show the thread.
        """
        if self._own is not None and (_is_same(self._own, text) or self._own.text.startswith("/")):
            self._own = None
            return None
        if text in self._reasons:
            self._reasons.remove(text)
            return None
        for waiting in (self._to_include, self._to_begin):
            taken = next((prompt for prompt in waiting if _is_same(prompt, text)), None)
            if taken is not None:
                waiting.remove(taken)
                return taken
        return Prompt(text=text) if self.is_shared and text.strip() else None

    def pop_dropped(self) -> tuple[str, ...]:
        """Return the beginnings of the prompts that an interrupted turn did not include; codex forgets them."""
        gone = tuple(prompt.text.strip()[:BEGINNING] for prompt in self._to_include)
        self._to_include.clear()
        return gone


def _is_same(prompt: Prompt, echo: str) -> bool:
    prompt_text = prompt.text.encode(
        "utf-8", "replace"
    ).decode()  # codex echoes a replacement for half a surrogate pair
    return prompt_text.strip() == echo.strip()


class CodexTranslator:
    """Translates the messages of one codex, once its thread is open."""

    def __init__(self, launch: Launch, is_shared: bool = False) -> None:
        """*is_shared*: codex's own screen may show the same thread."""
        self.main = ""
        """The main thread's id; empty until `begin`."""
        self.requests = CodexRequests()
        self.given = PendingPrompts(is_shared)
        self.notices = CodexNotices()
        self.settings = CodexSettings()
        self.turns: dict[str, str] = {}
        self.plan: Request | None = None
        """The plan that waits for approval; codex itself does not wait for it."""
        self._launch = launch
        self.tracker = ItemTracker("", launch.workdir)
        self._usage = CodexUsage(launch.used)
        self.allowed: dict[CallId, str] = {}
        """The calls that were allowed, until codex confirms -> their items."""
        self._planned = ""
        self._is_unnamed = False
        """Whether a turn of another client has begun whose prompt is not known yet."""
        self._handlers: dict[str, Callable[[Table, str, float], list[AgentOutput]]] = {
            "error": self._on_error,
            "turn/started": self._turn_started,
            "turn/completed": self._turn_completed,
            "turn/plan/updated": self._on_plan,
            "item/started": self._item_started,
            "item/completed": self._item_completed,
            "item/agentMessage/delta": self._on_text,
            "item/plan/delta": self._on_plan_text,
            "item/reasoning/summaryPartAdded": self._on_thought_part,
            "item/reasoning/summaryTextDelta": self._on_thought,
            "item/reasoning/textDelta": self._on_thought,
            "item/commandExecution/outputDelta": self._on_output,
            "item/commandExecution/terminalInteraction": self._on_input,
            "item/fileChange/patchUpdated": self._on_patch,
            "serverRequest/resolved": self._on_resolved,
            "thread/status/changed": self._on_status,
            "thread/settings/updated": self._on_settings,
            "thread/tokenUsage/updated": self._on_usage,
            "account/rateLimits/updated": self._on_limits,
        }

    def begin(self, main: str, opened: Table, now: float) -> list[AgentOutput]:
        """Record that the thread *main* is open, according to the response *opened*."""
        self.main = main
        self.tracker = ItemTracker(main, self._launch.workdir)
        self._usage.main = main
        self.settings = settings(opened)
        return [self._settings_now(now, offers=True)]

    def handle_notification(self, method: str, params: Table, now: float) -> list[AgentOutput]:
        handler, thread = self._handlers.get(method), text(params, "threadId")
        if handler is None:
            return [*self.notices.message(method, params, now)]
        named = self._name_turn(method, params, now) if self._is_unnamed and thread == self.main else []
        return [*named, *handler(params, thread, now)]

    def open_call(self, call: CallId, method: str, params: Table, now: float) -> list[AgentOutput] | None:
        """Return the events in a call that waits for the user; None if the call is unknown."""
        item = text(params, "itemId")
        setting = self._context(f"{self._launch.generation}.{call}", item, now)
        return [*self.requests.open(call, method, params, setting)] or None

    def lifted(self, now: float) -> list[AgentOutput]:
        """Return the end of a limit whose time is over."""
        return _as_list(self._usage.end_limit(now))

    def ended(self, now: float) -> list[AgentOutput]:
        """Return the last events: unfinished messages, and the withdrawal of open requests."""
        reported: list[AgentOutput] = [*self.tracker.pop_unfinished(self.main, now)]
        reported += self.requests.withdraw_all(GONE, now)
        if self.plan is not None:
            reported.append(events.RequestWithdrawn(at=now, request=self.plan.id, why=GONE))
        return reported

    # turns

    def _turn_started(self, params: Table, thread: str, now: float) -> list[AgentOutput]:
        before = self.turns.get(thread)
        self.turns[thread] = text(params, "turn", "id")
        if thread != self.main:
            return []
        reported: list[AgentOutput] = (
            [] if before is None else self._end_turn(now, "error", "codex started another turn")
        )
        if self.plan is not None:
            reported.append(events.RequestWithdrawn(at=now, request=self.plan.id, why="the conversation continued"))
            self.plan = None
        self._planned = ""
        self._usage.is_limited = False
        self.notices.reset()
        prompt = self.given.begin_turn()
        if prompt is None and self.given.is_shared:
            self._is_unnamed = True
            return reported
        if prompt is None:
            return [*reported, events.TurnStarted(at=now, by="agent")]
        return [*reported, events.TurnStarted(at=now, prompt=prompt.text, by=prompt.by)]

    def _name_turn(self, method: str, params: Table, now: float) -> list[AgentOutput]:
        """Return the start of a turn that kasmon did not begin, once its first item shows its prompt, or has none."""
        if not method.startswith(("item/", "turn/")):
            return []
        self._is_unnamed = False
        prompt_text = items.words(table(params, "item")) if method == "item/started" else ""
        if not prompt_text.strip():
            return [events.TurnStarted(at=now, by="agent")]
        self.given.begin_foreign(prompt_text)
        return [events.TurnStarted(at=now, prompt=prompt_text)]

    def _turn_completed(self, params: Table, thread: str, now: float) -> list[AgentOutput]:
        if self.turns.pop(thread, None) is None:
            return []
        if thread != self.main:
            return [*self.tracker.end_turn(thread, now), *self.requests.close_thread(thread, now)]
        status, error = text(params, "turn", "status"), table(params, "turn", "error")
        if status == "failed":
            limited = self._usage.record_failure(error, now)
            return [*_as_list(limited), *self._end_turn(now, "limit" if is_limit(error) else "error", failure(error))]
        if status == "interrupted":
            return self._end_turn(now, "interrupted")
        return [
            *_as_list(self._usage.end_limit(now)),
            *self._end_turn(now, "done"),
            *self._plan_to_approve(params, now),
        ]

    def _end_turn(
        self, now: float, reason: Literal["done", "interrupted", "limit", "error"], error: str = ""
    ) -> list[AgentOutput]:
        """End the main thread's turn. It voids all requests, so those of sub-agents are opened again."""
        reported: list[AgentOutput] = [*self.tracker.end_turn(self.main, now)]
        reported += self.requests.close_thread(self.main, now)
        dropped = self.given.pop_dropped() if reason == "interrupted" else ()
        reported.append(events.TurnEnded(at=now, reason=reason, error=error, dropped=dropped))
        return [*reported, *self.requests.reopen_all(now)]

    def _plan_to_approve(self, params: Table, now: float) -> list[AgentOutput]:
        """Open a request to approve the plan with which codex ended its turn."""
        if not (self._planned and self.settings.is_planning):
            return []
        self.plan = seal(
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
        return [events.RequestOpened(at=now, request=self.plan)]

    def _on_error(self, params: Table, thread: str, now: float) -> list[AgentOutput]:
        """Report an error of the provider; one that ends the turn is reported with the turn's end."""
        if params.get("willRetry") is not True and thread in self.turns:
            return []
        self.tracker.forget_unfinished(thread)
        return [*self.notices.once(failure(table(params, "error")), now)]

    def _on_status(self, params: Table, thread: str, now: float) -> list[AgentOutput]:
        is_idle = text(params, "status", "type") in IDLE
        return [*self.requests.close_thread(thread, now)] if is_idle else []

    # items

    def _item_started(self, params: Table, thread: str, now: float) -> list[AgentOutput]:
        item = table(params, "item")
        kind = text(item, "type")
        if not items.is_supported(kind):
            return [*self.notices.unknown.report(f"item {kind}", item, now)]
        reported: list[AgentOutput] = [*self.tracker.record_start(item, thread, now)]
        if kind == items.PERSONS and thread == self.main:
            prompt = self.given.pop_echoed(items.words(item))
            reported += [events.TurnStarted(at=now, prompt=prompt.text, by=prompt.by)] if prompt is not None else []
        return reported

    def _item_completed(self, params: Table, thread: str, now: float) -> list[AgentOutput]:
        item = table(params, "item")
        if text(item, "type") == "plan" and thread == self.main:
            self._planned = text(item, "text")
        return [*self.tracker.record_end(item, thread, now)]

    def _on_text(self, params: Table, thread: str, _now: float) -> list[AgentOutput]:
        return [*self.tracker.record_text(text(params, "itemId"), thread, text(params, "delta"))]

    def _on_plan_text(self, params: Table, thread: str, _now: float) -> list[AgentOutput]:
        return [*self.tracker.shown(thread, text(params, "delta"))]

    def _on_thought(self, params: Table, thread: str, _now: float) -> list[AgentOutput]:
        return [*self.tracker.shown(thread, text(params, "delta"), thinking=True)]

    def _on_thought_part(self, params: Table, thread: str, _now: float) -> list[AgentOutput]:
        return [*self.tracker.shown(thread, "\n\n", thinking=True)] if number(params, "summaryIndex") else []

    def _on_output(self, params: Table, _thread: str, now: float) -> list[AgentOutput]:
        return [*self.tracker.record_output(text(params, "itemId"), now)]

    def _on_input(self, params: Table, _thread: str, _now: float) -> list[AgentOutput]:
        self.tracker.move_to_background(text(params, "itemId"))
        return []

    def _on_patch(self, params: Table, _thread: str, now: float) -> list[AgentOutput]:
        item = text(params, "itemId")
        self.tracker.changes[item] = rows(params, "changes")
        return [*self.requests.update(item, lambda begins: self._context(begins, item, now), now)]

    def _on_plan(self, params: Table, thread: str, now: float) -> list[AgentOutput]:
        steps = rows(params, "plan")
        listed = [
            events.PlanItem(text=text(step, "step"), state=STEPS.get(text(step, "status"), "open")) for step in steps
        ]
        return [events.PlanUpdated(at=now, items=tuple(listed))] if thread == self.main else []

    # requests, usage, settings

    def _on_resolved(self, params: Table, _thread: str, now: float) -> list[AgentOutput]:
        call = params.get("requestId")
        if not isinstance(call, int | str):
            return []
        if call in self.allowed:
            return [*self.tracker.record_approval(self.allowed.pop(call), now)]
        return [*self.requests.withdraw(call, NO_LONGER, now)]

    def _on_settings(self, params: Table, thread: str, now: float) -> list[AgentOutput]:
        changed_settings = settings(table(params, "threadSettings"))
        if thread != self.main or changed_settings == self.settings:
            return []
        self.settings = changed_settings
        return [self._settings_now(now)]

    def _on_usage(self, params: Table, thread: str, now: float) -> list[AgentOutput]:
        reported = _as_list(self._usage.record_usage(params, now, in_turn=thread in self.turns))
        reported += self.tracker.record_usage(thread, number(params, "tokenUsage", "total", "totalTokens") or 0, now)
        return reported if self.main else []

    def _on_limits(self, params: Table, _thread: str, now: float) -> list[AgentOutput]:
        return [*self._usage.limits(params, now)]

    def _settings_now(self, now: float, *, offers: bool = False) -> events.SettingsChanged:
        return events.SettingsChanged(
            at=now,
            model=self.settings.model,
            permission_mode=self.settings.permission_mode,
            permission_modes=MODES if offers else (),
        )

    def _context(self, begins: str, item: str, now: float) -> CodexRequestContext:
        return CodexRequestContext(
            session=self._launch.session,
            id=begins,
            workdir=self._launch.workdir,
            now=now,
            changes=self.tracker.changes.get(item, ()),
        )


def _as_list(reported: events.Event | None) -> list[AgentOutput]:
    return [] if reported is None else [reported]
