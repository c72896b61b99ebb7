"""What a terminal agent does is right in its row, whichever of its sources are lost, late, or lie."""

import asyncio
import itertools
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kasmon.host.rpc.frames import ExecuteCommand, StartSession
from kasmon.model.commands import Prompt
from kasmon.model.events import RequestOpened, RequestWithdrawn, SignalSeen
from kasmon.model.permission import Decision, RequestKind
from kasmon.model.session_state import SessionState
from tests.support.agents.golden_agent import GoldenAgent
from tests.support.host.tmux_env import TmuxEnv
from tests.support.wait import until

pytestmark = pytest.mark.story

S = SessionState
CLAUDE, CODEX, OPENCODE = ("claude", "2.1.332"), ("codex", "0.171.0"), ("opencode", "1.18.33")


@pytest.fixture
def tmux() -> Iterator[TmuxEnv]:
    root = Path(tempfile.mkdtemp(prefix="ke-", dir="/tmp"))
    tmux = TmuxEnv(root)
    tmux.open()
    yield tmux
    tmux.close()
    shutil.rmtree(root, ignore_errors=True)


def started(tmux: TmuxEnv, *agents: GoldenAgent, **more: object) -> None:
    async def start() -> None:
        async with tmux.client() as link:
            for agent in agents:
                tmux.wants(agent.session, *agent.argv, **({"agent": agent.name} | more))
                await link.ask(StartSession(n=0, session=agent.session), limit_s=40)

    asyncio.run(start())


def actor(tmux: TmuxEnv, which: tuple[str, str], session: str = "abcdefgh") -> GoldenAgent:
    agent = GoldenAgent(tmux, session, *which)
    started(tmux, agent)
    return agent


def report(state: str, kind: str = "") -> str:
    return f"\x1b]7501;state={state}{':kind=' + kind if kind else ''}\x07"


def test_a_screen_alone_shows_every_state_and_its_request_can_be_answered(tmux: TmuxEnv) -> None:
    agent = actor(tmux, OPENCODE)
    agent.shows("idle")
    agent.is_judged(S.IDLE)
    agent.shows("working-text")
    agent.is_judged(S.WORKING)
    agent.shows("permission-bash")
    assert RequestKind.PERMISSION is agent.is_judged(S.ASKING).asking
    until(lambda: agent.now().requests)
    (request,) = agent.now().requests
    assert request.answerable
    assert "touch perm.txt" in request.shown
    assert {Decision.ALLOW, Decision.DENY} <= set(request.choices)
    agent.shows("finished")
    agent.is_judged(S.IDLE)
    until(lambda: not agent.now().requests)
    assert 1 == len(tmux.only(RequestWithdrawn, agent.session))


@pytest.mark.parametrize(
    ("which", "message"), [(CLAUDE, "modelstub: ok"), (CODEX, "modelstub: ok"), (OPENCODE, "modelstub: ok")]
)
def test_the_last_line_of_a_terminal_agent_is_its_last_message_never_its_footer(
    tmux: TmuxEnv, which: tuple[str, str], message: str
) -> None:
    agent = actor(tmux, which)
    agent.shows("finished")
    agent.is_judged(S.IDLE)

    until(lambda: "quiet" in [seen.value for seen in tmux.only(SignalSeen, agent.session) if seen.source == "output"])

    assert message == tmux.session(agent.session).last_line


def test_a_title_reports_a_change_at_once_that_the_screen_does_not_show(tmux: TmuxEnv) -> None:
    agent = actor(tmux, ("gemini", "0.61.0"))
    agent.do(title="✦  Working… (x)")
    until(lambda: (S.WORKING, "title") == ((now := agent.now()).state, now.source))
    agent.do(title="✋  Action Required (x)")
    agent.is_judged(S.ASKING)
    (request,) = until(lambda: agent.now().requests)
    assert not request.answerable


def test_a_request_that_changes_is_another_one(tmux: TmuxEnv) -> None:
    agent = actor(tmux, OPENCODE)
    agent.shows("permission-bash")
    agent.is_judged(S.ASKING)
    first = until(lambda: agent.now().requests)[0]
    agent.shows("permission-edit")
    asks = until(lambda: [ask for ask in agent.now().requests if ask.id != first.id])

    assert 1 == len(asks)
    assert first.digest != asks[0].digest


@pytest.mark.parametrize(
    ("which", "case", "state"),
    [
        (CLAUDE, "start-trust", S.ASKING),
        (CLAUDE, "start-bypass", S.ASKING),
        (CLAUDE, "error", S.IDLE),
        (CLAUDE, "interrupted", S.IDLE),
        (CLAUDE, "retrying", S.WORKING),
        (CLAUDE, "working-queued", S.WORKING),
        (CLAUDE, "idle-background-task", S.IDLE),
        (CLAUDE, "no-login", S.ASKING),
        (CLAUDE, "model-picker", S.ASKING),
        (CODEX, "start-login", S.ASKING),
        (CODEX, "limit", S.LIMITED),
        (CODEX, "error", S.IDLE),
    ],
)
def test_the_screen_replaces_a_missing_hook(
    tmux: TmuxEnv, which: tuple[str, str], case: str, state: SessionState
) -> None:
    agent = actor(tmux, which)
    agent.shows("idle")
    agent.is_judged(S.IDLE)
    agent.shows(case)
    agent.is_judged(state)


def test_a_lost_hook_leaves_no_agent_working(tmux: TmuxEnv) -> None:
    agent = actor(tmux, CLAUDE)
    agent.shows("idle")
    agent.is_judged(S.IDLE)
    agent.do(hook={"hook_event_name": "UserPromptSubmit"})
    agent.shows("working-text")
    agent.is_judged(S.WORKING)
    until(lambda: any(signal.source == "hook" for signal in agent.now().signals))
    agent.shows("interrupted")

    agent.is_judged(S.IDLE)


def test_a_late_hook_is_overruled_by_the_current_screen(tmux: TmuxEnv) -> None:
    agent = actor(tmux, CLAUDE)
    agent.shows("idle")
    agent.is_judged(S.IDLE)
    agent.do(hook={"hook_event_name": "Notification", "notification_type": "permission_prompt"})
    until(lambda: any(signal.source == "hook" for signal in agent.now().signals))

    agent.is_judged(S.IDLE)
    assert not agent.now().requests


def test_a_usage_limit_overrules_the_hooks_and_ends_when_the_screen_shows_it(tmux: TmuxEnv) -> None:
    agent = actor(tmux, CLAUDE)
    agent.shows("idle")
    agent.is_judged(S.IDLE)
    agent.do(hook={"hook_event_name": "UserPromptSubmit"})
    reset_at = datetime.now(UTC) + timedelta(days=2)
    agent.shows("limit-week", date=("Nov 24", f"{reset_at:%b} {reset_at.day}"))
    agent.do(hook={"hook_event_name": "StopFailure", "error": "rate_limit"})

    session = agent.is_judged(S.LIMITED)
    assert session.limited_until is not None
    assert time.time() < session.limited_until < time.time() + 8 * 86_400


def test_a_prompt_for_the_end_of_the_turn_is_sent_when_the_screen_shows_it(tmux: TmuxEnv) -> None:
    text = "another thought"

    async def ask() -> None:
        async with tmux.client() as link:
            await link.ask(
                ExecuteCommand(n=0, session=agent.session, command=Prompt(text=text, when="idle")), limit_s=20
            )

    agent = actor(tmux, OPENCODE)
    agent.shows("working-text")
    agent.is_judged(S.WORKING)
    asyncio.run(ask())
    assert [(text, "queued")] == tmux.receipts(agent.session)
    agent.shows("finished")
    until(lambda: tmux.receipts(agent.session) == [(text, "typed")])
    until(lambda: text.encode() in agent.typed)
    agent.shows("finished-draft")
    until(lambda: b"another thought\r" == agent.typed)
    agent.shows("working-text")
    until(lambda: tmux.receipts(agent.session) == [(text, "started")])
    agent.shows("finished")
    until(lambda: tmux.receipts(agent.session) == [(text, "finished")])


def test_a_prompt_forged_in_the_output_is_no_request_while_the_program_reports_work(tmux: TmuxEnv) -> None:
    agent = actor(tmux, CODEX)
    agent.do(print=report("working"))
    agent.is_judged(S.WORKING)
    agent.shows("permission-exec", title="⠋ work")
    until(lambda: any("asking" in signal.value for signal in agent.now().signals if signal.source == "screen"))

    assert S.WORKING is agent.now().state
    assert [] == tmux.only(RequestOpened, agent.session)
    agent.do(print=report("blocked", "permission"))
    agent.is_judged(S.ASKING)
    until(lambda: agent.now().requests)


def test_an_unknown_still_list_of_choices_is_probably_a_request_without_keys(
    tmux: TmuxEnv,
) -> None:
    agent = actor(tmux, ("stranger", "1.0"))
    agent.do(screen="想要继续吗\r\n\r\n❯ 1. 是\r\n  2. 否", cursor=[0, 2])
    assert "fallback" == agent.is_judged(S.ASKING).source
    (request,) = until(lambda: agent.now().requests)
    assert not request.answerable
    assert () == request.choices
    assert "1. 是" in request.shown
    agent.do(screen="gut", cursor=[3, 0])
    until(lambda: agent.now().state is not S.ASKING)
    until(lambda: not agent.now().requests)


def test_an_agent_that_crashed_to_its_shell_has_ended_and_works_again_when_it_is_started_there(tmux: TmuxEnv) -> None:
    agent = GoldenAgent(tmux, "abcdefgh", *OPENCODE)
    program = agent.argv[0]
    agent.argv = ("bash", "--norc", "--noprofile")
    started(tmux, agent)
    tmux.server.run("send-keys", "-t", "=abcdefgh:", f"{program}; echo it ended", "Enter")
    agent.shows("idle")
    agent.is_judged(S.IDLE)
    until(lambda: any(signal.source == "process" for signal in agent.now().signals))
    agent.do(end=3)
    assert "back at the shell" == agent.is_judged(S.ENDED).end_why
    tmux.server.run("send-keys", "-t", "=abcdefgh:", program, "Enter")
    agent.shows("working-text")
    agent.is_judged(S.WORKING)


def test_the_next_host_reads_the_current_screen(tmux: TmuxEnv) -> None:
    agent = actor(tmux, OPENCODE)
    agent.shows("permission-bash")
    agent.is_judged(S.ASKING)
    first = until(lambda: agent.now().requests)[0]
    host = tmux.processes[-1]
    host.kill()
    host.wait()
    tmux.open()
    asks = until(lambda: [ask for ask in agent.now().requests if ask.id != first.id])

    assert [first.digest] == [ask.digest for ask in asks]


def test_a_tmux_server_killed_during_a_screen_read_is_reported_as_killed(tmux: TmuxEnv) -> None:
    agents = [GoldenAgent(tmux, f"abcdefg{letter}", *OPENCODE) for letter in "abcd"]
    started(tmux, *agents)
    for agent in agents:
        agent.shows("working-text")
    for agent in agents:
        agent.is_judged(S.WORKING)
    for agent in agents:
        agent.shows("working-before-text")
    tmux.server.kill_server()

    for agent in agents:
        until(lambda agent=agent: tmux.session(agent.session).state in (S.LOST, S.ENDED))  # type: ignore[misc]


HOSTILE = [
    "while True: w('x' * 4096)",
    "while True: w('\\x1b[2J\\x1b[H' + 'y\\n' * 50)",
    "while True: w('\\x1b]0;' + '✳' * 5000 + '\\x07')",
    "while True: w('\\x1b]0;[ ! ] Action Required | x\\x07'); s(.01)",
    "while True: w('\\x1b]0;⠋ x\\x07\\x1b]0;x\\x07')",
    "while True: w('\\x1b]7501;state=working\\x07\\x1b]7501;state=idle\\x07')",
    "w('\\x1b]7501;state=' + 'w' * 10**6)\nwhile True: s(1)",
    "w(' Do you want to proceed?\\n ❯ 1. Yes\\n   2. No\\n' * 20)\nwhile True: s(1)",
    "while True: w('(' * 1000 + 'a' * 1000 + '\\x1b[H'); s(.01)",
    "while True: w('\\x1b[1;1H\\x1b[38;2;1;2;3m#\\x1b[0m' * 500); s(.01)",
    "w('\\x1bP' + 'q' * 10**5)\nwhile True: w('\\x1b_' + 'z' * 1000); s(.01)",
    "n = 0\nwhile True: n += 1; w('\\r' + '|/-' [n % 3]); s(.005)",
]
PLAY = "import os, time\nw = lambda text: os.write(1, text.encode())\ns = time.sleep\n"


@pytest.mark.timeout(180)
def test_three_good_panes_stay_right_beside_twelve_hostile_ones(tmux: TmuxEnv) -> None:
    good = [
        GoldenAgent(tmux, "abcdefga", *CLAUDE),
        GoldenAgent(tmux, "abcdefgb", *CODEX),
        GoldenAgent(tmux, "abcdefgc", *OPENCODE),
    ]
    bad = [GoldenAgent(tmux, f"badbad{letter}x", "claude", "2.1.332") for letter in "abcdefghijkl"]
    for agent, does in zip(bad, HOSTILE, strict=True):
        Path(agent.argv[0]).with_name("player.py").write_text(PLAY + does)
    started(tmux, *good, *bad)
    asking = {"claude": "permission-bash", "codex": "permission-exec", "opencode": "permission-bash"}
    for _ in range(2):
        for case, state in (("idle", S.IDLE), ("working-text", S.WORKING), ("", S.ASKING)):
            for agent in good:
                agent.shows(case or asking[agent.name])
            for agent in good:
                agent.is_judged(state, 30)
    for agent in good:
        (request,) = until(lambda agent=agent: agent.now().requests)  # type: ignore[misc]
        assert request.choices
    for agent in good[1:]:
        said = [fact for fact in tmux.only(SignalSeen, agent.session) if fact.source == "screen"]
        assert all((one.value, one.rule) != (two.value, two.rule) for one, two in itertools.pairwise(said))
    for agent in bad:
        assert S.LOST is not agent.now().state
