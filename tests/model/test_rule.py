"""A standing rule says exactly what it covers, covers no more than it says, and one that denies wins."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kasmon.model.permission import Request, RequestId, RequestKind, SessionId
from kasmon.model.rule import RequestSource, Rule, RuleEffect, Scope, covers, decide, describe, draft_rule

HERE = "/home/me/app"
WHERE = RequestSource(session="abcdefgh", plan="p1", project="/home/me", workdir=HERE)


def asked(tool_input: dict[str, Any], tool: str = "Bash", **more: Any) -> Request:
    return Request(id=RequestId("abcdefgh-1"), session=SessionId("abcdefgh"), tool=tool, input=tool_input, **more)


def command(text: str, **more: Any) -> Request:
    return asked({"command": text, **more})


def rule_of(
    request: Request, effect: RuleEffect = RuleEffect.ALLOW, scope: Scope = "session", of: str = "abcdefgh"
) -> Rule:
    says = draft_rule(request, HERE)
    assert says is not None
    return Rule(id="k1", effect=effect, scope=scope, of=of, tool=request.tool, match=says.match, text=says.text)


def in_words(request: Request) -> str:
    says = draft_rule(request, HERE)
    return describe(request.tool, says.match, says.text) if says else ""


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        (command("git push origin main"), "Bash(git push:*)"),
        (command("npm test"), "Bash(npm test:*)"),
        (command("rm -rf build"), "Bash(rm -rf build)"),
        (command("make test"), "Bash(make test)"),
        (command("git -C /etc push"), "Bash(git -C /etc push)"),
        (command("git rebase -x 'rm -rf /' main"), "Bash(git rebase -x 'rm -rf /' main)"),
        (command("uv run app.py"), "Bash(uv run app.py)"),
        (command("sudo git push"), "Bash(sudo git push)"),
        (command("git push && rm -rf /"), "Bash(git push && rm -rf /)"),
        (command("git push", description="Push it", timeout=1000), "Bash(git push:*)"),
        (command("git push", cwd=HERE), "Bash(git push:*)"),
        (asked({"argv": ["rm", "a b"]}), "Bash(rm 'a b')"),
        (asked({"file_path": "src/app.py"}, "Edit", is_diff=True, shown="@@"), "Edit(src/app.py)"),
        (asked({"url": "https://example.org/"}, "WebFetch"), 'WebFetch({"url":"https://example.org/"})'),
    ],
)
def test_a_rule_matches_exactly_the_request(request_: Request, rule: str) -> None:
    assert rule == in_words(request_)
    assert covers(rule_of(request_), request_, HERE)


@pytest.mark.parametrize(
    "request_",
    [
        command("echo a\nrm -rf /"),
        command("echo :*"),
        command("x" * 600),
        asked({"file_path": "../../etc/passwd"}, "Edit", is_diff=True),
        asked({"changes": ["a", "b"]}, "Edit", is_diff=True),
        asked({}, "Bash"),
        asked({"command": "ls"}, ""),
        asked({"command": "ls"}, kind=RequestKind.PLAN),
        asked({"command": "ls"}, kind=RequestKind.QUESTION),
    ],
)
def test_a_request_that_no_rule_can_match_exactly_gets_none(request_: Request) -> None:
    assert draft_rule(request_, HERE) is None


@pytest.mark.parametrize(
    "more", [{"cwd": "/etc"}, {"run_in_background": True}, {"dangerouslyDisableSandbox": True}, {"sandbox": "off"}]
)
def test_a_command_with_effects_beyond_its_text_is_not_matched_by_its_text(more: dict[str, Any]) -> None:
    assert not covers(rule_of(command("git push")), command("git push", **more), HERE)
    assert "words" != (draft_rule(command("git push", **more), HERE) or ("", ""))[0]


@pytest.mark.parametrize(
    "other",
    [
        "git pushy",
        "git",
        "git pull",
        "Git push",
        "git push; rm -rf /",
        "git push $(rm x)",
        "git push > /etc/x",
        "echo git push",
        "git push `id`",
        "git push & rm x",
        "git push\nrm x",
        "git push | sh",
        " xgit push",
    ],
)
def test_a_prefix_matches_only_plain_commands_that_start_with_it(other: str) -> None:
    assert not covers(rule_of(command("git push")), command(other), HERE)


@pytest.mark.parametrize("same", ["git push", "git push origin main", "git push --force"])
def test_a_prefix_matches_every_plain_command_that_starts_with_it(same: str) -> None:
    assert covers(rule_of(command("git push")), command(same), HERE)


def test_a_rule_is_for_one_tool() -> None:
    assert not covers(rule_of(command("git push")), asked({"command": "git push"}, "Shell"), HERE)


@given(
    st.text(max_size=60),
    st.text(min_size=1, max_size=60),
    st.sampled_from(["{1}", "{0}{1}", "{0} {1}", "{1} {0}", "{0}; {1}", "{1}; run {0}", "{0}\n{1}"]),
)
def test_a_rule_for_one_command_covers_no_other(one: str, more: str, shape: str) -> None:
    other = shape.format(one, more)
    assume(draft_rule(command(f"run {one}"), HERE) is not None and one.strip() != other.strip())

    assert not covers(rule_of(command(f"run {one}")), command(f"run {other}"), HERE)


def test_a_denying_rule_has_priority() -> None:
    push = command("git push origin main")
    allows = rule_of(push, scope="project", of="/home/me")
    denies = rule_of(push, RuleEffect.DENY)

    assert denies == decide(push, [allows, denies], WHERE)
    assert denies == decide(push, [denies, allows], WHERE)
    assert allows == decide(push, [allows], WHERE)


@pytest.mark.parametrize(
    ("scope", "of", "holds"),
    [
        ("session", "abcdefgh", True),
        ("session", "other", False),
        ("plan", "p1", True),
        ("plan", "p2", False),
        ("project", "/home/me", True),
        ("project", "/home", False),
        ("project", "", False),
    ],
)
def test_a_rule_applies_within_its_scope(scope: Scope, of: str, holds: bool) -> None:
    push = command("git push")

    assert holds == (decide(push, [rule_of(push, scope=scope, of=of)], WHERE) is not None)


def test_a_session_without_a_plan_is_in_none() -> None:
    push = command("git push")

    assert decide(push, [rule_of(push, scope="plan", of="")], WHERE._replace(plan=None)) is None


@pytest.mark.parametrize("kind", [RequestKind.QUESTION, RequestKind.PLAN, RequestKind.AUTH])
def test_no_rule_answers_a_request_that_is_no_permission(kind: RequestKind) -> None:
    push = command("git push")

    assert decide(asked({"command": "git push"}, kind=kind), [rule_of(push)], WHERE) is None
