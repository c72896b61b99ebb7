"""What a session keeps secret is not written down, whoever says it; nothing else is changed."""

import json
import logging
from pathlib import Path

import msgspec
import pytest

from kasmon.host.book import Book
from kasmon.host.hiding import Hiding, HidingFormatter
from kasmon.model.command import Receipt, ReceiptId, ReceiptState
from kasmon.model.event import (
    Event,
    MessageSaid,
    PlanItem,
    PlanUpdated,
    ReceiptMoved,
    RequestOpened,
    SessionEnded,
    ToolFinished,
    ToolStarted,
    encode,
)
from kasmon.model.permission import Decision, Request, RequestId, SessionId, sealed
from kasmon.paths import places, write_private

SECRET = 'correct "horse" battery\\staple'
MARK = f"⟨hidden: {len(SECRET)} characters⟩"
S = SessionId("aaaaaaaa")
CHOICES = (Decision.ALLOW, Decision.EDIT, Decision.DENY)
ASKED = Request(
    id=RequestId("aaaaaaaa-1"),
    session=S,
    tool="Bash",
    title=f"echo {SECRET}",
    input={"command": f"echo {SECRET}", "more": [SECRET, 1, None]},
    shown=f"echo {SECRET}",
    choices=CHOICES,
)


@pytest.mark.parametrize(
    "fact",
    [
        MessageSaid(at=1.0, text=f"it is {SECRET}, {SECRET}."),
        ToolFinished(at=1.0, call="c", output=f"{SECRET}\n", diff=f"+{SECRET}"),
        ToolStarted(at=1.0, call="c", tool="Bash", title=SECRET, input=json.dumps({"command": f"echo {SECRET}"})),
        SessionEnded(at=1.0, why=f"it said {SECRET}", last_words=SECRET),
        PlanUpdated(at=1.0, items=(PlanItem(text=SECRET), PlanItem(text="other"))),
        RequestOpened(at=1.0, request=ASKED),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_it_is_hidden_wherever_a_fact_holds_words(fact: Event) -> None:
    hidden = Hiding([SECRET]).fact(fact)

    assert "horse" in encode(fact).decode()
    assert "horse" not in encode(hidden).decode()
    assert MARK in encode(hidden).decode()
    assert type(hidden) is type(fact)


def test_a_request_keeps_its_digest_and_cannot_be_edited() -> None:
    opened = RequestOpened(at=1.0, request=sealed(ASKED))
    hidden = Hiding([SECRET]).fact(opened).request

    assert (opened.request.digest, (Decision.ALLOW, Decision.DENY)) == (hidden.digest, hidden.choices)
    assert {"command": f"echo {MARK}", "more": [MARK, 1, None]} == hidden.input


def test_what_holds_no_secret_is_the_same_fact() -> None:
    fact = RequestOpened(at=1.0, request=msgspec.structs.replace(ASKED, title="ls", input={}, shown="ls"))

    assert fact is Hiding([SECRET]).fact(fact)
    assert CHOICES == fact.request.choices


def test_what_a_fact_is_known_by_is_never_changed() -> None:
    receipt = Receipt(id=ReceiptId("aaaaaaaa-r1"), session=S, state=ReceiptState.SUBMITTED, text="submitted", at=1.0)
    hidden = Hiding(["submitted", "aaaaaaaa", "receipt.moved"]).fact(ReceiptMoved(at=1.0, receipt=receipt))

    assert (receipt.id, S, ReceiptState.SUBMITTED) == (hidden.receipt.id, hidden.receipt.session, hidden.receipt.state)
    assert "⟨hidden: 9 characters⟩" == hidden.receipt.text


@pytest.mark.parametrize("value", ["", "1", "false", "/", "/tmp"])
def test_what_is_short_or_a_path_is_no_secret(value: str) -> None:
    fact = MessageSaid(at=1.0, text=f"it is {value} and /tmp")

    assert fact is Hiding([value]).fact(fact)


def test_a_secret_in_another_is_hidden_with_it() -> None:
    assert "⟨hidden: 13 characters⟩ ⟨hidden: 6 characters⟩" == Hiding(["secret", "secret-longer"]).line(
        "secret-longer secret"
    )


def test_the_end_of_a_secrets_line_does_not_count() -> None:
    assert "key ⟨hidden: 8 characters⟩!" == Hiding(["a-secret\n"]).line("key a-secret!")


def test_the_log_holds_none_and_the_host_goes_on_with_what_it_heard() -> None:
    where = places()
    where.folder(S).mkdir(mode=0o700, parents=True)
    write_private(where.environment(S), f"KEY={SECRET}\0".encode())
    book = Book(where, S)
    queued = Receipt(id=ReceiptId(f"{S}-r1"), session=S, state=ReceiptState.QUEUED, text="use it", at=1.0)
    book.append(ReceiptMoved(at=1.0, receipt=queued, prompt=f"use {SECRET}"))

    assert b"horse" not in where.log(S).read_bytes()
    assert f"use {SECRET}" == book.prompts[queued.id].prompt


def test_a_traceback_in_a_log_is_hidden(tmp_path: Path) -> None:
    try:
        raise ValueError(f"bad key {SECRET}")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed: %s", (SECRET,), (ValueError, error, None))
    line = HidingFormatter("%(message)s", Hiding([SECRET])).format(record)

    assert "horse" not in line
    assert 2 == line.count(MARK)
