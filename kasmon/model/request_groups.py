"""Groups of requests that one answer may settle together. Pure.

A group consists of permission requests of one tool with the same content, or under the same rule.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from kasmon.model.permission import Decision, Request, RequestId, RequestKind
from kasmon.sanitize import has_hidden


def find_group(request: Request, waiting: Sequence[Request]) -> tuple[Request, ...]:
    """Return *request* and those of *waiting* with the same content or the same rule, in their order.

    Empty if there is no other one. Requests that were set aside, contain hidden characters, or are no permissions are
    answered individually.
    """
    if not _can_be_listed(request):
        return ()
    others = [ask for ask in waiting if ask.id == request.id or (not ask.later and _is_like(request, ask))]
    return tuple(others) if len(others) > 1 else ()


def group_sizes(waiting: Sequence[Request]) -> dict[RequestId, int]:
    """Return the group size of each of *waiting*; requests without a group are left out."""
    import json  # not before the first frame

    groups: defaultdict[Hashable, set[RequestId]] = defaultdict(set)
    keys: dict[RequestId, list[Hashable]] = {}
    for ask in filter(_can_be_listed, waiting):
        content: Hashable = (ask.tool, json.dumps(_content_of(ask), sort_keys=True))
        keys[ask.id] = [content, *([(ask.tool, ask.rule, "rule")] if ask.rule else [])]
        for key in keys[ask.id] if not ask.later else ():
            groups[key].add(ask.id)
    counts = {ask: len(set().union({ask}, *(groups[key] for key in of))) for ask, of in keys.items()}
    return {ask: count for ask, count in counts.items() if count > 1}


def texts(request: Request) -> Iterator[str]:
    """Yield every text in *request* that matters for a decision."""
    yield from strings(request.input)
    yield from (request.tool, request.title, request.shown, request.rule, request.why)
    yield from request.options
    yield from request.option_notes


def strings(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield str(key)
            yield from strings(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from strings(member)


def _can_be_listed(request: Request) -> bool:
    is_permission = request.kind is RequestKind.PERMISSION and request.answerable and bool(request.tool)
    return is_permission and Decision.ALLOW in request.choices and not any(map(has_hidden, texts(request)))


def _is_like(one: Request, other: Request) -> bool:
    if one.tool != other.tool:
        return False
    same_rule = bool(one.rule) and one.rule == other.rule
    return (same_rule or _content_of(one) == _content_of(other)) and _can_be_listed(other)


def _content_of(request: Request) -> tuple[object, ...]:
    return request.title, request.input, request.shown, request.is_diff
