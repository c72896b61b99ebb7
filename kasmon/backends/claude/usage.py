"""Tokens and costs of a conversation, from figures of three kinds.

| figure | covers |
|---|---|
| `usage` of a message | that one request to the model: what fills the context window now |
| `modelUsage` and `total_cost_usd` of a result | everything since the process started, sub-agents too |
| the same after a resume | continues from what the last cleanly ended process stored, else from 0 |
| the same after `/clear` | starts at 0 |
"""

from typing import Final, NamedTuple

import msgspec

from kasmon.backends.common.json_access import Table, amount, count, rows, table, text
from kasmon.model.commands import ContextPart, ConversationUsage
from kasmon.model.events import UsageReported
from kasmon.sanitize import clean_line

PARTS: Final = 8
"""Most parts of the context that are reported: the largest ones."""
PART: Final = 60
"""The most characters of a part's name."""
EMPTY: Final = frozenset({"Free space", "Autocompact buffer"})
"""Parts of the agent's account that hold nothing."""


class _Total(NamedTuple):
    input: int = 0
    output: int = 0
    cost_usd: float = 0.0

    def plus(self, other: "_Total") -> "_Total":
        return _Total(self.input + other.input, self.output + other.output, self.cost_usd + other.cost_usd)

    def beyond(self, other: "_Total") -> "_Total":
        cost_usd = max(0.0, self.cost_usd - other.cost_usd)
        return _Total(max(0, self.input - other.input), max(0, self.output - other.output), cost_usd)


class ClaudeUsage:
    """What the session has used so far; each report is a total, never an increment."""

    def __init__(self, used: ConversationUsage, carried: ConversationUsage) -> None:
        """*used*: by the session, in earlier processes; *carried*: how much of that the agent itself counts on from."""
        self._reported = _total(carried)
        """The total in the last result, or the minimum that the next one will report."""
        self._before = _total(used).beyond(self._reported)
        """Used by processes that the agent no longer counts, and by cleared conversations."""
        self._since = _Total()
        """Used by the requests since the last result, the agent's own only."""
        self._context = self._limit = 0
        self._model = ""

    def record_input(self, message: Table) -> None:
        """Record the input of a model's answer: *message* is that of a `message_start`."""
        usage = table(message, "usage")
        self._model = text(message, "model") or self._model
        self._context = _input(usage)
        self._since = self._since.plus(_Total(input=_input(usage)))

    def record_output(self, event: Table, at: float) -> UsageReported:
        """Record the output of a model's answer, from a `message_delta`."""
        output = count(table(event, "usage"), "output_tokens")
        self._context += output
        self._since = self._since.plus(_Total(output=output))
        return self._report(at, with_cost=False)

    def result(self, result: Table, at: float) -> UsageReported | None:
        """Record the result of a turn; None if it has no figures."""
        models = {name: table(table(result, "modelUsage"), name) for name in table(result, "modelUsage")}
        cost = amount(result, "total_cost_usd")
        if not models and not cost:
            return None
        self._reported = _total(of_models(models, cost))
        self._since = _Total()
        windows = {name: count(used, "contextWindow") for name, used in models.items()}
        self._limit = windows.get(self._model) or max(windows.values(), default=0) or self._limit
        return self._report(at, with_cost=True)

    def fill(self, answer: Table, at: float) -> UsageReported | None:
        """Record what fills the context, by *answer*, the agent's own account of it; None if that names nothing."""
        parts = [
            ContextPart(name=clean_line(text(part, "name"))[:PART], tokens=count(part, "tokens"))
            for part in rows(answer, "categories")
            if count(part, "tokens") and part.get("isDeferred") is not True and text(part, "name") not in EMPTY
        ]
        if not parts:
            return None
        self._context = count(answer, "totalTokens") or self._context
        self._limit = count(answer, "rawMaxTokens") or self._limit
        largest = sorted(parts, key=lambda part: -part.tokens)[:PARTS]
        return msgspec.structs.replace(self._report(at, with_cost=False), filled_by=tuple(largest))

    def record_compaction(self, tokens: int) -> None:
        self._context = tokens

    def begin_conversation(self) -> None:
        """Begin a new conversation, for which the agent counts from 0."""
        self._before = self._before.plus(self._reported).plus(self._since)
        self._reported = self._since = _Total()
        self._context = 0

    def _report(self, at: float, *, with_cost: bool) -> UsageReported:
        total = self._before.plus(self._reported).plus(self._since)
        return UsageReported(
            at=at,
            input=total.input,
            output=total.output,
            context=self._context,
            limit=self._limit,
            cost_usd=total.cost_usd if with_cost else None,
        )


def of_models(models: Table, cost_usd: float | None) -> ConversationUsage:
    """Return the sum of the agent's own figures for each model."""
    figures = [table(models, name) for name in models]
    inputs = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    return ConversationUsage(
        input=sum(count(used, name) for used in figures for name in inputs),
        output=sum(count(used, "outputTokens") for used in figures),
        cost_usd=cost_usd,
    )


def _total(used: ConversationUsage) -> _Total:
    return _Total(used.input, used.output, used.cost_usd or 0.0)


def _input(usage: Table) -> int:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(count(usage, name) for name in names)
