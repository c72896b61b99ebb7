"""What a session keeps secret is not written down, whoever says it; nothing else is changed."""

import json
import logging
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from kasmon.host.journal import known_secrets, process_log
from kasmon.host.journal.redaction import WORDS, Redactor
from kasmon.host.journal.session_log import SessionLog
from kasmon.model import events
from kasmon.model.commands import Receipt, ReceiptId, ReceiptState
from kasmon.model.permission import Decision, Request, RequestId, SessionId, seal
from kasmon.paths import user_paths, write_private
from kasmon.sanitize import redact

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
        events.MessageWritten(at=1.0, text=f"it is {SECRET}, {SECRET}."),
        events.CommentWritten(
            at=1.0,
            comment=events.ReviewComment(
                id="c", file="f", line=1, last_line=1, lines=(SECRET,), hunk=f"@@ {SECRET}", text=SECRET
            ),
        ),
        events.ToolFinished(at=1.0, call="c", output=f"{SECRET}\n", diff=f"+{SECRET}"),
        events.ToolStarted(
            at=1.0, call="c", tool="Bash", title=SECRET, input=json.dumps({"command": f"echo {SECRET}"})
        ),
        events.SubtaskChanged(at=1.0, id="t", title=SECRET, text=SECRET, output=SECRET),
        events.TurnEnded(at=1.0, reason="interrupted", dropped=("first", f"then {SECRET}")),
        events.ContextReported(at=1.0, waiting=f"for {SECRET}"),
        events.SessionEnded(at=1.0, why=f"it said {SECRET}", last_words=SECRET),
        events.PlanUpdated(at=1.0, items=(events.PlanItem(text=SECRET), events.PlanItem(text="other"))),
        events.RequestOpened(at=1.0, request=ASKED),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_a_secret_is_hidden_in_each_text_field_of_an_event(fact: events.Event) -> None:
    hidden = Redactor([SECRET]).fact(fact)

    assert "horse" in events.encode(fact).decode()
    assert "horse" not in events.encode(hidden).decode()
    assert MARK in events.encode(hidden).decode()
    assert type(hidden) is type(fact)


KNOWN_BY = (
    "abilities account added agent backend base base_name blob boot branch brought by call checkpoint command comment "
    "comments commit conversation counters digest fallback file id kasmon key login path receipt session_folder source "
    "starter "
    "machine media_type model models name pane permission_mode permission_modes pid_boot plan program public_variables "
    "remembers remote removed required resume resume_id server_started signal snapshot socket tags target to "
    "tool tools value via who window within workdir workspace"
)
"""Texts in facts by which something is known: ids, places, names that kasmon, a person or a protocol gave."""


def texts(kind: Any, found: dict[str, set[str]]) -> bool:
    """Whether *kind* may hold a text; the fields of structs in it that may come to *found*, by their names."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for name, field in get_type_hints(kind).items():
            if name in kind.__struct_fields__ and texts(field, found):
                found.setdefault(name, set()).add(kind.__name__)
        return False
    return kind in (str, Any) or sum(texts(each, found) for each in get_args(kind)) > 0


def test_each_text_field_of_an_event_is_classified_as_text_or_not() -> None:
    """What holds words is looked through; a new field has to be put into one of both lists."""
    found: dict[str, set[str]] = {}
    texts(events.Event, found)
    known_by = set(KNOWN_BY.split())

    assert {} == {name: kinds for name, kinds in found.items() if name not in WORDS | known_by}
    assert not WORDS & known_by


KEY = "sk-" + "ant-api03-abcdefghijklmnopqrst"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"use {KEY}.", f"use ⟨hidden: {len(KEY)} characters⟩."),
        ("-H 'Bearer abcdefghijklmnopqr'", "-H 'Bearer ⟨hidden: 18 characters⟩'"),
        (repr(SECRET), f"'{MARK}'"),
        ("https://h/?k=correct%20%22horse%22%20battery%5Cstaple&x", f"https://h/?k={MARK}&x"),
        ("the second line of it\n+and the third\n", "⟨hidden: 21 characters⟩\n+and the third\n"),
    ],
)
def test_a_secret_is_hidden_in_each_form_and_a_token_by_its_format(said: str, shown: str) -> None:
    assert shown == Redactor([SECRET, "first\nthe second line of it\nand the third"]).line(said)


def test_an_agent_cannot_imitate_a_redaction_in_a_request() -> None:
    asked = msgspec.structs.replace(ASKED, title="", input={}, shown=f"curl {MARK} {SECRET}")
    request = Redactor([SECRET]).fact(events.RequestOpened(at=1.0, request=asked)).request

    assert (f"curl ⟨U+27E8⟩{MARK[1:]} {MARK}", (Decision.ALLOW, Decision.DENY)) == (request.shown, request.choices)
    assert (f"curl ⟨U+27E8⟩U+27E8⟩{MARK[1:]} {MARK}", 1) == redact(request.shown)


def test_a_request_keeps_its_digest_and_choices_and_a_fact_what_it_is_known_by_and_all_without_secret() -> None:
    opened = events.RequestOpened(at=1.0, request=seal(ASKED))
    hidden = Redactor([SECRET]).fact(opened).request
    assert (opened.request.digest, CHOICES) == (hidden.digest, hidden.choices)
    assert {"command": f"echo {MARK}", "more": [MARK, 1, None]} == hidden.input

    fact = events.RequestOpened(at=1.0, request=msgspec.structs.replace(ASKED, title="ls", input={}, shown="ls"))
    assert fact is Redactor([SECRET]).fact(fact)
    assert CHOICES == fact.request.choices

    receipt = Receipt(id=ReceiptId("aaaaaaaa-r1"), session=S, state=ReceiptState.SUBMITTED, text="submitted", at=1.0)
    moved = Redactor(["submitted", "aaaaaaaa", "receipt.moved"]).fact(events.ReceiptChanged(at=1.0, receipt=receipt))
    assert (receipt.id, S, ReceiptState.SUBMITTED) == (moved.receipt.id, moved.receipt.session, moved.receipt.state)
    assert "⟨hidden: 9 characters⟩" == moved.receipt.text


@pytest.mark.parametrize("value", ["", "1", "false", "/", "/tmp"])
def test_a_short_value_or_a_path_is_no_secret(value: str) -> None:
    fact = events.MessageWritten(at=1.0, text=f"it is {value} and /tmp")

    assert fact is Redactor([value]).fact(fact)


def test_a_secret_in_another_is_hidden_with_it_and_the_end_of_its_line_does_not_count() -> None:
    assert "⟨hidden: 13 characters⟩ ⟨hidden: 6 characters⟩" == Redactor(["secret", "secret-longer"]).line(
        "secret-longer secret"
    )

    assert "key ⟨hidden: 8 characters⟩!" == Redactor(["a-secret\n"]).line("key a-secret!")


LONGER = f"{SECRET}, and more of it"
TOLD = f"It is {SECRET}; {LONGER}; {KEY} and Bearer abcdefghijklmnopqr, so go on."


def test_no_part_of_a_secret_is_shown_in_streamed_text() -> None:
    """However it is cut: what may become a secret is held back."""
    hiding = Redactor([SECRET, LONGER, "aabaabaab"])
    told = f"{TOLD} aabaabaabaab!"
    shown = [hiding.unfinished(told[:end]) for end in range(len(told) + 1)]
    secrets = (SECRET, LONGER, KEY, "abcdefghijklmnopqr", "aabaabaab")
    pieces = {text[at : at + 4] for text in secrets for at in range(len(text) - 3)}

    assert [] == [(text, piece) for text in shown for piece in pieces if piece in text.replace(" and", "")]
    assert hiding.line(told) == shown[-1]


@pytest.mark.parametrize("step", [1, 2, 3, 5, 8, 13, 40, 1000])
def test_no_secret_that_spans_two_parts_is_in_the_partial_texts(step: int) -> None:
    """Neither as it is nor a piece of it: the parts together are what the whole text is."""
    hiding = Redactor([SECRET, LONGER, "aabaabaab"])
    text = f"{TOLD} aabaabaabaab!"
    parts, logged = [], 0
    for end in [*range(step, len(text), step), len(text)]:
        part, logged = hiding.next_part(text[:end], logged)
        parts.append(part)

    assert hiding.line(text) == "".join(parts)


def test_a_private_key_is_not_shown_while_it_is_written() -> None:
    begun = "-----BEGIN " + "RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA" * 4

    assert "Look:\n" == Redactor().unfinished(f"Look:\n{begun}")


@pytest.mark.parametrize("text", ["", "plain", f"{MARK} alone", "x" * 100_000])
def test_text_without_a_secret_is_streamed_unchanged(text: str) -> None:
    assert text == Redactor([SECRET, LONGER]).unfinished(text)


def test_a_changed_text_gets_its_secrets_back_in_place() -> None:
    hiding = Redactor([SECRET])
    before = f"use {SECRET} and {KEY}"
    edited = hiding.line(before).replace("use", "take").replace("and", "or")

    assert f"take {SECRET} or {KEY}" == hiding.restored(edited, before)
    assert "something else" == hiding.restored("something else", before)
    assert f"only {KEY}" == hiding.restored(f"only ⟨hidden: {len(KEY)} characters⟩", before)
    assert f"{SECRET} {SECRET}" == hiding.restored(f"{MARK} {MARK}", before)
    assert f"what is {MARK}?" == hiding.restored(f"what is {MARK}?", "no secret")


@pytest.mark.parametrize("edited", [f"{MARK[:-1]} x", "⟨hidden: 9 characters⟩", f"{MARK}, ⟨hidden"])
def test_a_damaged_redaction_mark_is_not_sent(edited: str) -> None:
    with pytest.raises(ValueError, match="a redacted part"):
        Redactor([SECRET]).restored(edited, f"use {SECRET}")


def test_an_edited_input_gets_its_secrets_back_in_any_position() -> None:
    hiding = Redactor([SECRET, "other-" + SECRET[6:]])
    before = {"command": f"echo {SECRET}", "more": [1, {"k": f"{KEY}!"}]}
    edited = {"more": [1, 2, {"k": f"?⟨hidden: {len(KEY)} characters⟩"}], "command": MARK}

    assert {"more": [1, 2, {"k": f"?{KEY}"}], "command": SECRET} == hiding.restored(edited, before)


def test_two_secrets_of_one_length_keep_their_order_or_nothing_is_sent() -> None:
    other = SECRET[::-1]
    hiding = Redactor([SECRET, other])

    assert f"b {SECRET} a {other}" == hiding.restored(f"b {MARK} a {MARK}", f"a {SECRET} b {other}")
    with pytest.raises(ValueError, match="of one length"):
        hiding.restored(MARK, f"a {SECRET} b {other}")


def test_the_log_has_no_secret_and_the_host_continues_with_the_real_text() -> None:
    where = user_paths()
    where.folder(S).mkdir(mode=0o700, parents=True)
    write_private(where.environment(S), f"KEY={SECRET}\0".encode())
    book = SessionLog(where, S)
    queued = Receipt(id=ReceiptId(f"{S}-r1"), session=S, state=ReceiptState.QUEUED, text="use it", at=1.0)
    book.append(events.ReceiptChanged(at=1.0, receipt=queued, prompt=f"use {SECRET}"))

    assert b"horse" not in where.log(S).read_bytes()
    assert f"use {SECRET}" == book.prompts[queued.id].prompt


def test_a_traceback_in_a_log_is_hidden(tmp_path: Path) -> None:
    try:
        raise ValueError(f"bad key {SECRET}")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed: %s", (SECRET,), (ValueError, error, None))
    known_secrets.add_secrets([SECRET])
    line = process_log.RedactingFormatter("%(message)s").format(record)

    assert "horse" not in line
    assert 2 == line.count(MARK)
