"""What real agents ask on their screens is answered from kasmon: a yes runs the command, and a no does not."""

import asyncio
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kasmon.backends.tmux.input import answer_delivery
from kasmon.errors import RequestClosedError, StaleRequestError
from kasmon.host.rpc.frames import ExecuteCommand
from kasmon.model.commands import AgentCommand, Answer, Prompt
from kasmon.model.events import RequestAnswered, RequestWithdrawn
from kasmon.model.permission import Decision, Request
from kasmon.model.session_state import SessionState
from tests.backends.tmux.input import test_answer_delivery
from tests.backends.tmux.input.test_answer_delivery import Room, last_moments
from tests.support.agents.full_stack import Stack, beside, stacked
from tests.support.agents.real_agent import RealAgent
from tests.support.agents.watched_agent import LIMIT_S, ME, Watched, watched
from tests.support.detection.scenes.studio import steps
from tests.support.model_stub import ModelStub
from tests.support.wait import until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(240)]
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)
room = test_answer_delivery.room
BEGUN_S: Final = 90.0
"""A net under an agent that hangs at its start, no expectation."""
ALLOW, ALWAYS, DENY, CHOOSE = Decision.ALLOW, Decision.ALWAYS, Decision.DENY, Decision.CHOOSE
CODEX = ("-c", "features.daemon_auto_start=false", "-a", "on-request", "--sandbox", "workspace-write")


def begun(it: Watched, pattern: str) -> None:
    """Wait until it takes prompts: opencode takes half a minute for that on a machine with other work."""
    until(lambda: re.search(pattern, it.screen(), re.MULTILINE), BEGUN_S, pattern)


def asked(it: Watched, text: str) -> Request:
    """The request about *text*, once it can be answered."""

    def there() -> Request | None:
        return next((one for one in it.tmux_env.session(ME).requests if text in one.shown and one.answerable), None)

    try:
        return until(there, LIMIT_S, text)
    except TimeoutError:
        print(it.screen(), it.tmux_env.session(ME).requests, sep="\n")
        raise


def answer(it: Watched, request: Request, decision: Decision, **more: Any) -> None:
    """Answer *request* through the host."""

    wished(it, Answer(request=request.id, digest=request.digest, decision=decision, **more))


def prompt(it: Watched, text: str) -> None:
    """Paste a prompt: gemini eats a question mark that is typed."""
    wished(it, Prompt(text=text))


def wished(it: Watched, wish: AgentCommand) -> None:
    async def carry() -> None:
        async with it.tmux_env.client() as link:
            await link.ask(ExecuteCommand(n=0, session=ME, command=wish), limit_s=40)

    try:
        asyncio.run(carry())
    except BaseException:
        print(it.screen())
        raise


def decided(it: Watched) -> list[Decision]:
    return [fact.decision for fact in it.tmux_env.only(RequestAnswered, ME)]


def yes_and_no(it: Watched, ask: Callable[[str], str], folder: Path, *, composer: str) -> None:
    """A yes lets the command run, a no does not, and each stands in the log once."""
    yes, no = folder / "yes.txt", folder / "no.txt"
    begun(it, composer)
    it.is_judged("idle", SessionState.IDLE)
    it.say(ask("yes.txt"))
    answer(it, asked(it, "touch"), ALLOW)
    until(yes.exists, LIMIT_S, "the command ran")
    it.is_judged("allowed", SessionState.IDLE)
    it.say(ask("no.txt"))
    request = asked(it, "no.txt")
    answer(it, request, DENY)
    it.is_judged("denied", SessionState.IDLE)
    with pytest.raises(RequestClosedError, match="deny"):
        answer(it, request, ALLOW)
    assert [ALLOW, DENY] == decided(it)
    answered = {fact.request for fact in it.tmux_env.only(RequestAnswered, ME)}
    assert answered.isdisjoint(fact.request for fact in it.tmux_env.only(RequestWithdrawn, ME))
    assert not no.exists()


def bash(name: str) -> str:
    return f"go %% bash touch {name} %% say done"


@pytest.mark.short
def test_claude(claude: RealAgent, stub: ModelStub, scratch: Path) -> None:
    """It ignores digits that come right after its dialog: these are given as soon as the dialog is seen."""
    with watched(claude, stub, scratch, "--permission-mode", "default") as it:
        yes_and_no(it, bash, claude.workdir, composer="^❯")
        it.key("C-u")
        it.say("go %% ask Which colour?|red|blue %% say done")
        answer(it, asked(it, "Which colour?"), CHOOSE, labels=("blue",))
        it.shows("blue")
        it.is_judged("chosen", SessionState.IDLE)
        assert "blue" in json.dumps(stub.turns[-1]["results"][-1])
        it.say("go %% ask Which colour?|red|blue %% say done")
        answer(it, asked(it, "Which colour?"), CHOOSE, text="green, 1 of 2")
        it.is_judged("answered in own words", SessionState.IDLE)
        assert "green, 1 of 2" in json.dumps(stub.turns[-1]["results"][-1])


@pytest.mark.short
def test_codex(codex: RealAgent, stub: ModelStub, scratch: Path) -> None:
    def escalated(name: str) -> str:
        command = {
            "cmd": f"touch {codex.workdir}/{name}",
            "sandbox_permissions": "require_escalated",
            "justification": "needs to",
        }
        return f"go %% tool exec_command {json.dumps(command)} %% say done"

    with watched(codex, stub, scratch, *CODEX) as it:
        yes_and_no(it, escalated, codex.workdir, composer="Ask Codex")


@pytest.mark.short
def test_gemini(gemini: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(gemini, stub, scratch) as it:
        yes_and_no(it, bash, gemini.workdir, composer="Type your message")
        prompt(it, "go %% ask Which colour?|red|blue %% say done")
        answer(it, asked(it, "Which colour?"), CHOOSE, labels=("blue",))
        it.is_judged("chosen", SessionState.IDLE)
        assert "blue" in json.dumps(stub.turns[-1]["results"][-1])
        prompt(it, "go %% ask Which shape?|round|square %% say done")
        answer(it, asked(it, "Which shape?"), CHOOSE, text="flat, 1 of 2")
        it.is_judged("answered in own words", SessionState.IDLE)
        assert "flat, 1 of 2" in json.dumps(stub.turns[-1]["results"][-1])


def test_gemini_gets_free_text_when_its_field_is_empty_and_not_after_a_draft(
    gemini: RealAgent, stub: ModelStub, scratch: Path
) -> None:
    """Its hint and a draft differ in their colours alone; the words that are told read like the hint."""
    wanted = {"question": "Name of the branch?", "header": "Branch", "type": "text", "placeholder": "like main"}
    call = json.dumps({"questions": [wanted]}).replace("?", r"\u003f")  # it eats a question mark in its first prompt
    say = f"go %% tool ask_user {call} %% say done"
    with watched(gemini, stub, scratch) as it:
        begun(it, "Type your message")
        it.is_judged("idle", SessionState.IDLE)
        prompt(it, say)
        answer(it, asked(it, "Name of the branch?"), CHOOSE, text="like main")
        it.is_judged("answered in own words", SessionState.IDLE)
        assert "like main" in json.dumps(stub.turns[-1]["results"][-1])
        prompt(it, say)
        assert CHOOSE in asked(it, "Name of the branch?").choices
        it.type("a draft")
        until(
            lambda: any(
                "a draft" in one.shown and CHOOSE not in one.choices for one in it.tmux_env.session(ME).requests
            ),
            LIMIT_S,
        )


@pytest.mark.short
def test_opencode(opencode: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(opencode, stub, scratch) as it:
        yes_and_no(it, bash, opencode.workdir, composer="Ask anything")


SEVERAL: Final = {
    "question": "Which parts?",
    "header": "Parts",
    "multiSelect": True,
    "multiple": True,
    "options": [{"label": label, "description": f"the {label}"} for label in ("core", "docs", "tools")],
}
ONE: Final = {
    "question": "Which shell?",
    "header": "Shell",
    "multiSelect": False,
    "options": [{"label": label, "description": f"the {label}"} for label in ("bash", "fish")],
}


def several_and_one(it: Watched, tool: str, submit: str) -> str:
    """Answer two questions, the first with two of its three choices; what the model was told of that."""
    prompt(it, f"go %% tool {tool} {json.dumps({'questions': [SEVERAL, ONE]})} %% say done")
    several = asked(it, "Which parts?")
    assert (True, ("core", "docs", "tools")) == (several.many, several.options)
    answer(it, several, CHOOSE, labels=("tools", "core"))
    answer(it, asked(it, "Which shell?"), CHOOSE, labels=("fish",))
    review = asked(it, "Review")
    assert "fish" in review.shown
    answer(it, review, CHOOSE, labels=(submit,))
    it.is_judged("chose several", SessionState.IDLE)
    return json.dumps(it.stub.turns[-1]["results"][-1])


def test_claude_gets_several_choices_and_the_reason_of_a_denial(
    claude: RealAgent, stub: ModelStub, scratch: Path
) -> None:
    with watched(claude, stub, scratch, "--permission-mode", "default") as it:
        begun(it, "^❯")
        told = several_and_one(it, "AskUserQuestion", "Submit answers")
        assert ("tools" in told, "core" in told, "docs" in told, "fish" in told) == (True, True, False, True), told
        it.say(bash("a.txt"))
        request = asked(it, "a.txt")
        assert request.takes_reason
        answer(it, request, DENY, reason="take b.txt, and 2 of it")
        it.is_judged("denied with a reason", SessionState.IDLE)
        assert "take b.txt, and 2 of it" in json.dumps(stub.turns[-1]["results"][-1])
        assert not (claude.workdir / "a.txt").exists()


def test_opencode_gets_several_choices_and_free_text(opencode: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(opencode, stub, scratch) as it:
        begun(it, "Ask anything")
        told = several_and_one(it, "question", "submit")
        assert ("tools" in told, "core" in told, "docs" in told, "fish" in told) == (True, True, False, True), told
        it.say("go %% ask Which shape?|round|square %% say done")
        answer(it, asked(it, "Which shape?"), CHOOSE, text="flat, 1 of 2")
        it.is_judged("answered in own words", SessionState.IDLE)
        assert "flat, 1 of 2" in json.dumps(stub.turns[-1]["results"][-1])


def test_claude_is_trusted_and_starts_its_plan(claude: RealAgent, stub: ModelStub, scratch: Path) -> None:
    """The mark stands on "No, exit", and on "Yes, and use auto mode": it is no answer that anybody gave."""
    known = claude.home / ".claude.json"
    known.write_text(json.dumps({**json.loads(known.read_text()), "projects": {}}))
    with watched(claude, stub, scratch, "--permission-mode", "plan") as it:
        answer(it, asked(it, "Yes, I trust this folder"), ALLOW)
        it.is_judged("trusted", SessionState.IDLE)
        it.say("go %% plan 1. first step\\n2. second step %% say done")
        answer(it, asked(it, "Ready to code?"), ALLOW)
        it.shows("manual mode on")
        it.is_judged("begun", SessionState.IDLE)


def test_codex_gets_the_chosen_option(codex: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(codex, stub, scratch, *CODEX) as it:
        begun(it, "Ask Codex")
        it.press("BTab", r"Plan mode \(shift")
        it.say("go %% ask Which colour?|red|blue %% say done")
        answer(it, asked(it, "Which colour?"), CHOOSE, labels=("blue",))
        it.shows("answer: blue")
        it.is_judged("chosen", SessionState.IDLE)
        it.say("go %% ask Which shape?|round|square %% say done")
        answer(it, asked(it, "Which shape?"), CHOOSE, text="flat, 1 of 2")
        it.shows("note: flat, 1 of 2")
        it.is_judged("answered in own words", SessionState.IDLE)


def test_codex_that_offers_a_newer_model_gets_the_choice_to_keep_its_own(
    codex: RealAgent, stub: ModelStub, scratch: Path
) -> None:
    """The mark stands on the newer one, which nobody chose."""
    config = codex.home / ".codex" / "config.toml"
    known = config.read_text()
    config.write_text(re.sub(r"(?m)^\[notice\.model_migrations\]\n.*\n", "", known))
    assert known != config.read_text()
    with watched(codex, stub, scratch, *CODEX) as it:
        answer(it, asked(it, "Try new model"), CHOOSE, labels=("Use existing model",))
        begun(it, "Ask Codex")
        it.is_judged("kept its model", SessionState.IDLE)
        assert "gpt-6-sol" not in config.read_text().partition("model_provider")[0]


def test_opencode_shows_what_always_covers_before_it_is_confirmed(
    opencode: RealAgent, stub: ModelStub, scratch: Path
) -> None:
    with watched(opencode, stub, scratch) as it:
        begun(it, "Ask anything")
        it.say(bash("one.txt"))
        answer(it, asked(it, "one.txt"), ALWAYS)
        request = asked(it, "touch *")
        assert "touch *" in request.rule
        assert not (opencode.workdir / "one.txt").exists()
        answer(it, request, ALWAYS)
        until((opencode.workdir / "one.txt").exists, LIMIT_S, "the command ran")
        it.is_judged("always", SessionState.IDLE)
        it.say(bash("two.txt"))
        until((opencode.workdir / "two.txt").exists, LIMIT_S, "the next runs by itself")
        it.is_judged("done", SessionState.IDLE)
        it.say("go %% ask Which colour?|red|blue %% say done")
        answer(it, asked(it, "Which colour?"), CHOOSE, labels=("blue",))
        it.is_judged("chosen", SessionState.IDLE)
        assert "blue" in json.dumps(stub.turns[-1]["results"][-1])


async def test_dialogs_that_change_at_the_last_moment_among_two_hundred_get_no_key(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_delivery, "YOUNG_S", 0.0)
    chance = random.Random(11)
    await last_moments(room, [chance.choice(("swap", "draw", "nothing")) for _ in range(200)])


@pytest.mark.parametrize("name", ["claude"])
def test_an_answer_from_the_command_line_reaches_the_screen(stack: Stack) -> None:
    stack.configure("--permission-mode default")
    session = stack.new("worker", bash("line.txt"), mode="tmux")
    request = until(lambda: next(iter(stack.json("inbox")["requests"]), None), BEGUN_S, "a request")
    stale = stack("answer", request["id"], "allow", "--digest", "of another")
    assert (4, True) == (stale.code, "digest" in stale.err), stale.err
    assert not (stack.agent.workdir / "line.txt").exists()
    done = stack.answer(request, "allow")
    assert 0 == done.code, done.err
    until((stack.agent.workdir / "line.txt").exists, LIMIT_S, "the command ran")
    stack.until_state(session, SessionState.IDLE)
    late = stack.answer(request, "deny")
    assert (4, True) == (late.code, "closed" in late.err), late.err


def long_command(folder: Path, end: str, *, count: int = 40) -> str:
    """A command of *count* steps; what makes *end* stands at its very end."""
    return f"{steps(count, end='nothing')} ; touch {folder}/{end}"


def asked_in_full(it: Watched, end: str) -> Request:
    """The request about the command that makes *end*, all of which is known."""
    request = asked(it, end)
    assert not request.may_be_cut
    assert {ALLOW, DENY} <= set(request.choices)
    return request


def two_that_differ_at_their_end(it: Watched, ask: Callable[[str], str], folder: Path) -> None:
    """Two commands that look the same in the agent's dialog: the one is denied, and its digest allows not the other."""
    prompt(it, ask(long_command(folder, "one.txt")))
    one = asked_in_full(it, "one.txt")
    answer(it, one, DENY)
    it.is_judged("denied a long one", SessionState.IDLE)
    prompt(it, ask(long_command(folder, "two.txt")))
    two = asked_in_full(it, "two.txt")
    assert one.digest != two.digest
    with pytest.raises((StaleRequestError, RequestClosedError)):
        wished(it, Answer(request=two.id, digest=one.digest, decision=ALLOW))
    answer(it, two, ALLOW)
    until((folder / "two.txt").exists, LIMIT_S, "the command ran")
    assert not (folder / "one.txt").exists()


def test_opencode_is_allowed_a_whole_command_that_its_dialog_cuts(
    opencode: RealAgent, stub: ModelStub, scratch: Path
) -> None:
    """By its own record; where that is not to be had, by its view."""
    with watched(opencode, stub, scratch) as it:
        begun(it, "Ask anything")
        two_that_differ_at_their_end(
            it,
            lambda text: f"go %% tool bash {json.dumps({'command': text, 'description': 'x'})} %% say done",
            opencode.workdir,
        )


def test_codex_is_allowed_a_whole_command_that_its_dialog_cuts(
    codex: RealAgent, stub: ModelStub, scratch: Path
) -> None:
    """By what its hook says."""

    def escalated(text: str) -> str:
        command = {"cmd": text, "sandbox_permissions": "require_escalated", "justification": "needs to"}
        return f"go %% tool exec_command {json.dumps(command)} %% say done"

    with watched(codex, stub, scratch, *CODEX) as it:
        begun(it, "Ask Codex")
        two_that_differ_at_their_end(it, escalated, codex.workdir)


def test_claude_is_allowed_a_whole_command_that_is_taller_than_its_terminal(
    claude: RealAgent, stub: ModelStub, scratch: Path
) -> None:
    """By what its hook says."""
    with watched(claude, stub, scratch, "--permission-mode", "default") as it:
        begun(it, "^❯")
        two_that_differ_at_their_end(
            it,
            lambda text: f"go %% tool Bash {json.dumps({'command': text, 'description': 'x'})} %% say done",
            claude.workdir,
        )


def two_that_differ_in_what_a_view_shows(
    it: Watched, ask: Callable[[str], str], folder: Path, *, count: int = 28
) -> None:
    """As above, for a command that the agent's own view has room for."""
    for end, decision in (("one.txt", DENY), ("two.txt", ALLOW)):
        prompt(it, ask(f"touch {folder}/{end} ;\n{steps(count, end='nothing')} ;\ntrue {end}"))
        answer(it, asked_in_full(it, f"touch {folder}/{end}"), decision)
        it.is_judged(f"answered to {end}", SessionState.IDLE)
    assert not (folder / "one.txt").exists()
    until((folder / "two.txt").exists, LIMIT_S, "the command ran")


def test_codex_without_hooks_is_allowed_what_its_full_view_shows(
    codex: RealAgent, stub: ModelStub, scratch: Path
) -> None:
    def escalated(text: str) -> str:
        command = {"cmd": text, "sandbox_permissions": "require_escalated", "justification": "needs to"}
        return f"go %% tool exec_command {json.dumps(command)} %% say done"

    with watched(codex, stub, scratch, *CODEX, "-c", "hooks.PreToolUse=[]") as it:
        begun(it, "Ask Codex")
        two_that_differ_in_what_a_view_shows(it, escalated, codex.workdir)


def test_gemini_is_allowed_what_its_full_view_shows(gemini: RealAgent, stub: ModelStub, scratch: Path) -> None:
    with watched(gemini, stub, scratch) as it:
        begun(it, "Type your message")

        def bash_of(text: str) -> str:
            command = {"command": text, "description": "x"}
            return f"go %% tool run_shell_command {json.dumps(command)} %% say done"

        two_that_differ_in_what_a_view_shows(it, bash_of, gemini.workdir, count=26)
