"""What an editor offers for a request: only what a person can judge there. What was not offered is no answer."""

from typing import Any

import msgspec
import pytest

from kasmon.acp.permissions import answer_of, contents_of, options_of
from kasmon.model.permission import Decision, Request
from kasmon.model.transcript.request_text import sheet
from tests.support.sample_fleet import change, command, question

SECRET = "hunter2hunter2"
DENIALS = {"deny": "reject_once", "never": "reject_always"}
ALL = {"allow": "allow_once", "always": "allow_always", **DENIALS}


def offered(request: Request, **fields: Any) -> dict[str, str]:
    """The options of *request*, with these *fields* changed: id -> kind."""
    options = options_of(sheet(msgspec.structs.replace(request, **fields), [SECRET]))
    return {option["optionId"]: option["kind"] for option in options}


def test_a_command_is_allowed_or_denied_once_or_always() -> None:
    assert ALL == offered(command("api", "make"))


@pytest.mark.parametrize("unclear", [{"may_be_cut": True}, {"shown": "rm x\u202etxt"}])
def test_a_request_that_is_not_shown_whole_can_only_be_denied(unclear: dict[str, Any]) -> None:
    assert DENIALS == offered(command("api", "make"), **unclear)
    assert {} == offered(question("api"), **unclear)


def test_a_request_with_a_secret_makes_no_rule_and_one_of_a_terminal_is_not_answered_here() -> None:
    assert {"allow": "allow_once", "deny": "reject_once"} == offered(command("api", f"login {SECRET}"))
    assert {} == offered(command("api", "make"), answerable=False)
    assert {} == offered(question("api"), answerable=False)


def test_a_question_is_answered_by_one_of_its_labels_or_not_in_the_editor() -> None:
    one = question("api")

    assert {f"choose-{number}": "allow_once" for number in range(len(one.options))}.items() <= offered(one).items()
    assert {} == offered(one, many=True)
    assert {} == offered(one, options=(), free_text=True, choices=(Decision.CHOOSE, Decision.DENY))
    assert {} == offered(one, many=True, choices=(Decision.CHOOSE, Decision.DENY))


def test_an_answer_applies_to_the_text_that_was_shown_and_to_that_editor() -> None:
    one, make = question("api"), command("api", "make")
    chosen, allowed = answer_of(one, "choose-1", "Zed"), answer_of(make, "allow", "Zed")
    assert chosen is not None
    assert allowed is not None

    assert (one.id, one.digest, Decision.CHOOSE, (one.options[1],), "Zed") == (
        chosen.request,
        chosen.digest,
        chosen.decision,
        chosen.labels,
        chosen.editor,
    )
    assert (make.id, make.digest, Decision.ALLOW, "Zed") == (
        allowed.request,
        allowed.digest,
        allowed.decision,
        allowed.editor,
    )


@pytest.mark.parametrize(
    "option", ["", "edit", "cancel", "choose", "later", "choose-", "choose--1", "choose-²", "Allow"]
)
def test_an_unknown_option_id_is_no_answer(option: str) -> None:
    assert answer_of(question("api"), option, "Zed") is None


def test_a_label_behind_the_last_one_is_no_answer() -> None:
    one = question("api")

    assert answer_of(one, f"choose-{len(one.options)}", "Zed") is None


def test_a_diff_with_a_secret_is_shown_as_text_without_it() -> None:
    plain, secret = change("api"), change("api", shown=change("api").shown.replace("widest", SECRET))
    kinds = [[each["type"] for each in contents_of(sheet(one, [SECRET]), "/w", "x")] for one in (plain, secret)]

    assert [["diff", "content"], ["content"]] == kinds
    assert SECRET not in str(contents_of(sheet(secret, [SECRET]), "/w", "x"))
