"""More agents in tmux: what kasmon says of each, every 0.2 s, against what its model server knows."""

import contextlib
import re
from pathlib import Path

import pytest

from kasmon.model.session_state import SessionState
from tests.support.agents.full_stack import beside
from tests.support.agents.live_run import LiveRun, keep
from tests.support.agents.real_agent import RealAgent, pinned_version
from tests.support.agents.watched_agent import ME, Watched, watched
from tests.support.detection.scenes.more import SCENES, Scene
from tests.support.model_stub import ModelStub
from tests.support.wait import until

pytestmark = pytest.mark.more_agents
stub = pytest.fixture(beside)
S = SessionState
LIVE = sorted(name for name, scene in SCENES.items() if scene.ready)


def _go_on(it: Watched, scene: Scene) -> None:
    if scene.first:
        it.shows(scene.first)
        it.is_judged("a question at the start", S.ASKING, "question")
        it.press(scene.first_key, scene.first, gone=True)
    it.shows(scene.ready)
    it.is_judged("idle", S.IDLE)


@pytest.mark.parametrize("name", LIVE)
def test_no_reported_state_is_both_certain_and_wrong(
    agent: RealAgent, name: str, stub: ModelStub, scratch: Path
) -> None:
    scene = SCENES[name]
    with watched(agent, stub, scratch, *scene.arguments) as it:
        _go_on(it, scene)
        run = LiveRun(
            stub,
            lambda: it.tmux_env.session(ME).state,
            lambda pattern: re.search(pattern, it.screen(), re.MULTILINE) is not None,
            scene.ready,
        )
        with run:
            _turn(it, run, "go %% wait 2 %% slow 4 word %% say finished")
            if scene.permission:
                _turn(it, run, "go %% bash python3 -c 'import time; time.sleep(3)' %% say done", scene.permission)
                it.is_judged("permission", S.ASKING, "permission")
                for key in scene.refuse:
                    it.is_still()
                    it.key(key)
                run.answered()
                it.shows(scene.ready)
                it.is_judged("refused", S.IDLE)
            if scene.question:
                it.is_still()
                _turn(it, run, "go %% ask Which colour?|red|blue %% say done", r"^(?!.*%%).*\bblue\b")
                it.is_judged("question", S.ASKING, "question")
                for key in scene.leave:
                    it.is_still()
                    it.key(key)
                run.answered()
                it.shows(scene.ready)
                it.is_judged("question left", S.IDLE)
            if scene.error:
                _turn(it, run, "go %% fail 400")
                it.shows(scene.error)
                it.is_judged("error", S.IDLE)
        keep(name, pinned_version(name), **run.counts())
        wrong = run.wrong()
        print(*wrong, sep="\n")
        assert [] == wrong


def _turn(it: Watched, run: LiveRun, prompt: str, asks: str = "") -> None:
    works = "" if it.agent.name == "goose" else SCENES[it.agent.name].working
    it.type(prompt)
    it.is_still()
    run.began(asks, works)
    for _ in range(5):  # a key right behind typed text is a part of a paste for some
        it.key("Enter")
        with contextlib.suppress(TimeoutError):
            until(run.has_begun, 6.0)
            break
    if not asks:
        until(
            lambda: run.true() is not S.WORKING, 90.0, "the end of the model's answer"
        )  # idle until it is seen working
        it.is_judged("finished", S.IDLE)


@pytest.mark.parametrize("name", sorted(name for name, scene in SCENES.items() if scene.login))
def test_without_settings_it_requests_permission(
    new_agent: RealAgent, name: str, stub: ModelStub, scratch: Path
) -> None:
    scene = SCENES[name]
    with watched(new_agent, stub, scratch, *scene.arguments) as it:
        it.shows(scene.login)
        for key in scene.login_keys:
            it.is_still()
            it.key(key)
        it.is_judged("log-in", S.ASKING, scene.login_asks)
