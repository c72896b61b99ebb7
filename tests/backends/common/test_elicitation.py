"""What is asked for in words of MCP becomes requests, and their answers one result."""

from typing import Any

import pytest

from kasmon.backends.common.elicitation import ElicitationRequest, ElicitationResult, Elicitations
from kasmon.errors import RequestClosedError, StaleRequestError, UnableError, UsageError
from kasmon.model.commands import Answer
from kasmon.model.events import RequestOpened, RequestWithdrawn
from kasmon.model.permission import Decision, Request, RequestKind, SessionId

AT = 7.0
FORM = {
    "colour": {"type": "string", "enum": ["red", "blue"], "title": "Colour", "description": "Of the wall."},
    "count": {"type": "integer", "default": 3},
    "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
}
ASKED = {"server": "Demo", "message": "Fill in."}


class Asking:
    def __init__(self) -> None:
        self.elicitations = Elicitations(SessionId("s"))

    def open(self, **more: Any) -> tuple[Request, ...]:
        said = self.elicitations.open("c", ElicitationRequest(**(ASKED | more)), AT)
        return tuple(event.request for event in said if isinstance(event, RequestOpened))

    def form(self, **more: Any) -> tuple[Request, ...]:
        schema = {"type": "object", "properties": FORM, "required": ["colour"]}
        return self.open(schema=schema, **more)

    def answer(self, request: Request, decision: Decision, **more: Any) -> ElicitationResult:
        answer = Answer(request=request.id, digest=more.pop("digest", request.digest), decision=decision, **more)
        return self.elicitations.answer(answer, AT)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_each_field_is_a_question(asking: Asking) -> None:
    colour, count, tags = asking.form()

    assert (RequestKind.QUESTION, "Demo: Colour", "Fill in.\n\nOf the wall.") == (
        colour.kind,
        colour.title,
        colour.shown,
    )
    assert (("red", "blue"), False, False) == (colour.options, colour.free_text, colour.many)
    assert (("3", "(leave out)"), True) == (count.options, count.free_text)
    assert (("a", "b", "(leave out)"), True) == (tags.options, tags.many)
    assert {(Decision.CHOOSE, Decision.DENY, Decision.CANCEL)} == {request.choices for request in (colour, count, tags)}


def test_the_server_is_answered_once_all_fields_are(asking: Asking) -> None:
    colour, count, tags = asking.form()

    assert None is asking.answer(tags, Decision.CHOOSE, labels=("a", "b")).result
    assert None is asking.answer(count, Decision.CHOOSE, labels=("(leave out)",)).result
    settled = asking.answer(colour, Decision.CHOOSE, labels=("blue",))

    assert {"action": "accept", "content": {"colour": "blue", "tags": ["a", "b"]}} == settled.result
    assert "c" not in asking.elicitations.calls


@pytest.mark.parametrize(
    ("decision", "action", "ends_turn"), [(Decision.DENY, "decline", False), (Decision.CANCEL, "cancel", True)]
)
def test_denying_one_field_declines_the_whole_form(
    asking: Asking, decision: Decision, action: str, ends_turn: bool
) -> None:
    colour, count, tags = asking.form()
    asking.answer(colour, Decision.CHOOSE, labels=("red",))
    settled = asking.answer(count, decision)

    assert ({"action": action}, ends_turn) == (settled.result, settled.ends_turn)
    assert [tags.id] == [event.request for event in settled.events if isinstance(event, RequestWithdrawn)]


def test_a_form_without_fields_is_a_yes_or_no_question(asking: Asking) -> None:
    (request,) = asking.open(schema={"type": "object"})

    assert (RequestKind.PERMISSION, "Demo", "Fill in.") == (request.kind, request.tool, request.shown)
    assert {"action": "accept", "content": {}} == asking.answer(request, Decision.ALLOW).result


def test_an_address_is_shown_whole(asking: Asking) -> None:
    (request,) = asking.open(mode="url", url="https://example.org/sign-in?of=demo")

    assert (RequestKind.AUTH, "Fill in.\n\nhttps://example.org/sign-in?of=demo") == (request.kind, request.shown)
    assert {"action": "decline"} == asking.answer(request, Decision.DENY).result


@pytest.mark.parametrize("asked", [{"mode": "telepathy"}, {"message": ""}], ids=repr)
def test_a_form_that_cannot_be_shown_makes_no_request(asking: Asking, asked: dict[str, Any]) -> None:
    assert () == asking.form(**asked)
    assert "c" not in asking.elicitations.calls


def test_a_refused_answer_leaves_the_form_open(asking: Asking) -> None:
    colour, count, _ = asking.form()
    with pytest.raises(StaleRequestError):
        asking.answer(colour, Decision.CHOOSE, labels=("red",), digest="0")
    with pytest.raises(UnableError):
        asking.answer(colour, Decision.ALLOW)
    with pytest.raises(UnableError, match="one answer, not 2"):
        asking.answer(colour, Decision.CHOOSE, labels=("red", "blue"))
    with pytest.raises(UsageError, match="'count' requires a number, and 'many' is not one"):
        asking.answer(count, Decision.CHOOSE, labels=("many",))

    assert 3 == len(asking.elicitations.reopen_all(AT))


def test_a_form_that_the_server_cancels_is_withdrawn(asking: Asking) -> None:
    colour, *others = asking.form()
    asking.answer(colour, Decision.CHOOSE, labels=("red",))
    withdrawn = asking.elicitations.withdraw("c", "gone", AT)

    assert [other.id for other in others] == [
        event.request for event in withdrawn if isinstance(event, RequestWithdrawn)
    ]
    with pytest.raises(RequestClosedError):
        asking.answer(others[0], Decision.DENY)
    assert () == asking.elicitations.withdraw_all("gone", AT)
