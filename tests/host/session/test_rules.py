"""Standing rules answer for the person who made them: only what they say, only where they hold, and until revoked."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from kasmon.errors import KasmonError, RefusedError, RequestClosedError, UnableError
from kasmon.host.rpc.client import HostLink
from kasmon.host.session.rules import project_of
from kasmon.model.commands import AgentCommand, Answer
from kasmon.model.events import NoticeRaised, RequestAnswered, RequestOpened, RequestWithdrawn
from kasmon.model.permission import Decision, RequestId, RequestKind
from kasmon.model.rule import Rule, RuleEffect
from kasmon.store.file_lock import lock
from kasmon.store.rules import RuleBook
from tests.host.session.test_request_registry import answer, answers, asking
from tests.support.agents.fake_agent import FakeAgent, asked
from tests.support.host.env import Env, do, prompt
from tests.support.wait import auntil


def rules(env: Env) -> tuple[Rule, ...]:
    return RuleBook(env.paths.rules).read()


def keep(env: Env, text: str, effect: RuleEffect = RuleEffect.ALLOW, **more: Any) -> Rule:
    said: dict[str, Any] = {"scope": "project", "of": "/", "tool": "Bash", "match": "words", "text": text} | more
    return RuleBook(env.paths.rules).add(Rule(id="", effect=effect, **said))


async def again(env: Env, fake: FakeAgent, text: str, count: int, call: str = "tool-9") -> None:
    fake.say(asked(text, call))
    await auntil(lambda: len(env.only(RequestOpened)) == count)


async def test_always_allows_this_request_and_equal_ones_from_then_on(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked("git push"))
        assert ("Bash(git push:*)", True) == (request.rule, Decision.ALWAYS in request.choices)
        await do(link, answer(request, Decision.ALWAYS))
        await again(env, fake, "git push --force", 2)
        await auntil(lambda: len(answers(fake)) == 2)

    assert [Decision.ALLOW, Decision.ALLOW] == [told.decision for told in answers(fake)]
    (rule,) = rules(env)
    facts = env.only(RequestAnswered)
    assert [("user", rule.id), ("policy", rule.id)] == [(fact.by, fact.rule) for fact in facts]
    assert [Decision.ALWAYS, Decision.ALLOW] == [fact.decision for fact in facts]
    assert () == env.session().requests


async def test_never_denies_this_request_and_equal_ones_from_then_on(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked("git push"))
        await do(link, answer(request, Decision.NEVER, reason="not from here"))
        await again(env, fake, "git push origin", 2)
        await auntil(lambda: len(answers(fake)) == 2)

    assert [Decision.DENY, Decision.DENY] == [told.decision for told in answers(fake)]
    assert ["not from here", "A standing rule denies Bash(git push:*)."] == [told.reason for told in answers(fake)]


async def test_a_request_without_a_rule_waits(env: Env, fake: FakeAgent) -> None:
    keep(env, "git push")
    async with env.hosting(fake):
        _, requests = await asking(env, fake, asked("git push && rm -rf /"), asked("git pull", "tool-8"))

        assert ["git push && rm -rf /", "git pull"] == [request.input["command"] for request in requests]
    assert [] == answers(fake)


async def test_a_denying_rule_has_priority(env: Env, fake: FakeAgent) -> None:
    keep(env, "git push")
    denies = keep(env, "git push", RuleEffect.DENY)
    async with env.hosting(fake):
        await asking(env, fake, asked("git push"))
        await auntil(lambda: answers(fake))

    assert [(Decision.DENY, denies.id)] == [(fact.decision, fact.rule) for fact in env.only(RequestAnswered)]


async def test_a_revoked_rule_answers_no_more_requests(env: Env, fake: FakeAgent) -> None:
    rule = keep(env, "git push")
    async with env.hosting(fake):
        await asking(env, fake, asked("git push"))
        await auntil(lambda: answers(fake))
        RuleBook(env.paths.rules).remove(rule.id)
        await again(env, fake, "git push", 2)

        assert 1 == len(env.session().requests)
    assert 1 == len(answers(fake))


async def test_unreadable_rules_allow_nothing_and_are_reported_once(env: Env, fake: FakeAgent) -> None:
    keep(env, "git push")
    env.paths.rules.write_text("[[rule")
    async with env.hosting(fake):
        _, requests = await asking(env, fake, asked("git push"), asked("git push", "tool-8"))

    assert 2 == len(requests)
    assert [] == answers(fake)
    assert 1 == sum("No standing rule applies" in notice.text for notice in env.only(NoticeRaised))


@pytest.mark.parametrize(
    ("scope", "of"), [("session", "abcdefgh"), ("plan", "p1"), ("project", "/")], ids=["session", "plan", "project"]
)
async def test_a_rule_applies_within_its_scope(env: Env, fake: FakeAgent, scope: str, of: str) -> None:
    async with env.hosting(fake, env.wants(backend="fake", plan="p1")):
        link, (request,) = await asking(env, fake, asked("git push"))
        await do(link, answer(request, Decision.ALWAYS, scope=scope))

    assert [(scope, of)] == [(rule.scope, rule.of) for rule in rules(env)]


async def test_without_a_plan_there_is_no_rule_for_one(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked("git push"))
        with pytest.raises(UnableError, match="does not belong to a plan"):
            await do(link, answer(request, Decision.ALWAYS, scope="plan"))

        assert (request,) == env.session().requests
    assert () == rules(env)


async def test_a_request_with_a_secret_or_hidden_characters_gets_no_rule(env: Env, fake: FakeAgent) -> None:
    launch = env.wants(backend="fake")
    env.paths.environment("abcdefgh").write_bytes(b"TOKEN=very-secret-value\0")
    async with env.hosting(fake, launch):
        _, requests = await asking(env, fake, asked("curl -H very-secret-value x"), asked("git push \u202e", "tool-8"))

    assert ["", ""] == [request.rule for request in requests]
    assert not {Decision.ALWAYS, Decision.NEVER} & {choice for request in requests for choice in request.choices}


async def test_questions_and_plans_get_no_rule(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        _, (request,) = await asking(
            env, fake, asked("the plan", kind=RequestKind.PLAN, choices=(Decision.ALLOW, Decision.DENY))
        )

    assert ("", (Decision.ALLOW, Decision.DENY)) == (request.rule, request.choices)


async def test_an_answer_that_came_second_makes_no_rule(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link, (request,) = await asking(env, fake, asked("git push"))
        await do(link, answer(request))
        with pytest.raises(KasmonError):
            await do(link, answer(request, Decision.ALWAYS))

    assert () == rules(env)


async def test_a_rule_is_removed_if_its_request_is_withdrawn_while_it_is_stored(env: Env, fake: FakeAgent) -> None:
    kept = keep(env, "make")
    async with env.hosting(fake) as host:
        link, (request,) = await asking(env, fake, asked("git push"))
        with lock(env.paths.rules):
            answering = asyncio.create_task(do(link, answer(request, Decision.ALWAYS)))
            await auntil(host._agent.services._answering.locked)
            fake.say(RequestWithdrawn(at=time.time(), request=RequestId("tool-7"), why="not needed"))
            await auntil(lambda: not env.session().requests)
        with pytest.raises(RequestClosedError, match="not needed"):
            await answering

    assert (kept,) == rules(env)
    assert [] == answers(fake)


async def test_a_request_whose_rule_the_agent_refuses_is_shown_to_the_user(env: Env, fake: FakeAgent) -> None:
    async def refuses(wish: AgentCommand) -> None:
        if isinstance(wish, Answer):
            raise RefusedError("not like this")
        fake.obey(wish)

    keep(env, "git push")
    fake.on_wish = refuses
    async with env.hosting(fake):
        link: HostLink = await env.linked()
        await prompt(link, "tidy up")
        fake.say(asked("git push"))
        await auntil(lambda: any("did not accept the answer of rule" in n.text for n in env.only(NoticeRaised)))

        await auntil(lambda: env.session().requests)

        assert [("abcdefgh-2", "git push")] == [(ask.id, ask.input["command"]) for ask in env.session().requests]


def test_a_project_is_the_nearest_folder_under_git_or_the_folder_itself(tmp_path: Path) -> None:
    inner = tmp_path / "app" / "src"
    inner.mkdir(parents=True)
    (tmp_path / "app" / ".git").mkdir()
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / ".git").mkdir()

    assert [str(tmp_path / "app"), str(alone)] == [project_of(str(inner)), project_of(str(alone))]


def test_a_folder_of_another_machine_is_its_own_project_wherever_this_process_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)

    assert "box:~/app" == project_of("box:~/app")


@pytest.mark.parametrize("folder", ["/tmp/a\0b", "/" + "x" * 5000, "/no/such/\udcff", ""])
def test_a_path_that_cannot_be_a_folder_has_a_project(folder: str) -> None:
    assert isinstance(project_of(folder), str)


def test_links_that_form_a_loop_have_a_project(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")

    assert project_of(str(tmp_path / "a"))
