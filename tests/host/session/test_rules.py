"""Standing rules answer for the person who made them: only what they say, only where they hold, and until revoked."""

from pathlib import Path
from typing import Any

import pytest

from kasmon.errors import KasmonError, RefusedError, UnableError
from kasmon.host.rpc.connect import HostLink
from kasmon.host.session.rules import project_of
from kasmon.model.commands import AgentCommand, Answer
from kasmon.model.events import NoticeRaised, RequestAnswered, RequestOpened
from kasmon.model.permission import Decision, RequestKind
from kasmon.model.rule import Rule, RuleEffect
from kasmon.store.rules import RuleBook
from tests.host.house import House, do, prompt
from tests.host.puppet import Puppet, asked
from tests.host.session.test_requests import answer, answers, asking
from tests.waiting import auntil


def rules(house: House) -> tuple[Rule, ...]:
    return RuleBook(house.places.rules).read()


def keep(house: House, text: str, effect: RuleEffect = RuleEffect.ALLOW, **more: Any) -> Rule:
    said: dict[str, Any] = {"scope": "project", "of": "/", "tool": "Bash", "match": "words", "text": text} | more
    return RuleBook(house.places.rules).add(Rule(id="", effect=effect, **said))


async def again(house: House, puppet: Puppet, text: str, count: int, call: str = "tool-9") -> None:
    puppet.say(asked(text, call))
    await auntil(lambda: len(house.only(RequestOpened)) == count)


async def test_always_allows_this_one_and_the_like_from_then_on(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link, (request,) = await asking(house, puppet, asked("git push"))
        assert ("Bash(git push:*)", True) == (request.rule, Decision.ALWAYS in request.choices)
        await do(link, answer(request, Decision.ALWAYS))
        await again(house, puppet, "git push --force", 2)
        await auntil(lambda: len(answers(puppet)) == 2)

    assert [Decision.ALLOW, Decision.ALLOW] == [told.decision for told in answers(puppet)]
    (rule,) = rules(house)
    facts = house.only(RequestAnswered)
    assert [("user", rule.id), ("policy", rule.id)] == [(fact.by, fact.rule) for fact in facts]
    assert [Decision.ALWAYS, Decision.ALLOW] == [fact.decision for fact in facts]
    assert () == house.session().asks


async def test_never_denies_this_one_and_the_like_from_then_on(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link, (request,) = await asking(house, puppet, asked("git push"))
        await do(link, answer(request, Decision.NEVER, reason="not from here"))
        await again(house, puppet, "git push origin", 2)
        await auntil(lambda: len(answers(puppet)) == 2)

    assert [Decision.DENY, Decision.DENY] == [told.decision for told in answers(puppet)]
    assert ["not from here", "A standing rule denies Bash(git push:*)."] == [told.reason for told in answers(puppet)]


async def test_what_no_rule_covers_waits(house: House, puppet: Puppet) -> None:
    keep(house, "git push")
    async with house.hosting(puppet):
        _, requests = await asking(house, puppet, asked("git push && rm -rf /"), asked("git pull", "tool-8"))

        assert ["git push && rm -rf /", "git pull"] == [request.input["command"] for request in requests]
    assert [] == answers(puppet)


async def test_a_rule_that_denies_wins(house: House, puppet: Puppet) -> None:
    keep(house, "git push")
    denies = keep(house, "git push", RuleEffect.DENY)
    async with house.hosting(puppet):
        await asking(house, puppet, asked("git push"))
        await auntil(lambda: answers(puppet))

    assert [(Decision.DENY, denies.id)] == [(fact.decision, fact.rule) for fact in house.only(RequestAnswered)]


async def test_a_revoked_rule_answers_nothing_more(house: House, puppet: Puppet) -> None:
    rule = keep(house, "git push")
    async with house.hosting(puppet):
        await asking(house, puppet, asked("git push"))
        await auntil(lambda: answers(puppet))
        RuleBook(house.places.rules).remove(rule.id)
        await again(house, puppet, "git push", 2)

        assert 1 == len(house.session().asks)
    assert 1 == len(answers(puppet))


async def test_rules_that_cannot_be_read_allow_nothing_and_that_is_said_once(house: House, puppet: Puppet) -> None:
    keep(house, "git push")
    house.places.rules.write_text("[[rule")
    async with house.hosting(puppet):
        _, requests = await asking(house, puppet, asked("git push"), asked("git push", "tool-8"))

    assert 2 == len(requests)
    assert [] == answers(puppet)
    assert 1 == sum("No standing rule applies" in notice.text for notice in house.only(NoticeRaised))


@pytest.mark.parametrize(
    ("scope", "of"), [("session", "abcdefgh"), ("plan", "p1"), ("project", "/")], ids=["session", "plan", "project"]
)
async def test_a_rule_reaches_as_far_as_it_was_given(house: House, puppet: Puppet, scope: str, of: str) -> None:
    async with house.hosting(puppet, house.wants(backend="puppet", plan="p1")):
        link, (request,) = await asking(house, puppet, asked("git push"))
        await do(link, answer(request, Decision.ALWAYS, scope=scope))

    assert [(scope, of)] == [(rule.scope, rule.of) for rule in rules(house)]


async def test_without_a_plan_there_is_no_rule_for_one(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link, (request,) = await asking(house, puppet, asked("git push"))
        with pytest.raises(UnableError, match="does not belong to a plan"):
            await do(link, answer(request, Decision.ALWAYS, scope="plan"))

        assert (request,) == house.session().asks
    assert () == rules(house)


async def test_what_holds_a_secret_or_hidden_characters_gets_no_rule(house: House, puppet: Puppet) -> None:
    launch = house.wants(backend="puppet")
    house.places.environment("abcdefgh").write_bytes(b"TOKEN=very-secret-value\0")
    async with house.hosting(puppet, launch):
        _, requests = await asking(
            house, puppet, asked("curl -H very-secret-value x"), asked("git push \u202e", "tool-8")
        )

    assert ["", ""] == [request.rule for request in requests]
    assert not {Decision.ALWAYS, Decision.NEVER} & {choice for request in requests for choice in request.choices}


async def test_questions_and_plans_get_no_rule(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        _, (request,) = await asking(
            house, puppet, asked("the plan", kind=RequestKind.PLAN, choices=(Decision.ALLOW, Decision.DENY))
        )

    assert ("", (Decision.ALLOW, Decision.DENY)) == (request.rule, request.choices)


async def test_an_answer_that_lost_leaves_no_rule(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link, (request,) = await asking(house, puppet, asked("git push"))
        await do(link, answer(request))
        with pytest.raises(KasmonError):
            await do(link, answer(request, Decision.ALWAYS))

    assert () == rules(house)


async def test_an_agent_that_does_not_take_the_answer_of_a_rule_is_asked_about(house: House, puppet: Puppet) -> None:
    async def refuses(wish: AgentCommand) -> None:
        if isinstance(wish, Answer):
            raise RefusedError("not like this")
        puppet.obey(wish)

    keep(house, "git push")
    puppet.on_wish = refuses
    async with house.hosting(puppet):
        link: HostLink = await house.linked()
        await prompt(link, "tidy up")
        puppet.say(asked("git push"))
        await auntil(lambda: any("did not accept the answer of rule" in n.text for n in house.only(NoticeRaised)))

        await auntil(lambda: house.session().asks)

        assert [("abcdefgh-2", "git push")] == [(ask.id, ask.input["command"]) for ask in house.session().asks]


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
def test_what_cannot_be_a_folder_has_a_project_all_the_same(folder: str) -> None:
    assert isinstance(project_of(folder), str)


def test_links_in_a_circle_have_a_project_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")

    assert project_of(str(tmp_path / "a"))
