"""The agents of `make more-agents`, state by state: one table says what stands on the screen of each."""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tests.support.detection.scenes.studio import Studio
from tests.support.detection.terminal import Terminal


class Scene(NamedTuple):
    """What stands on an agent's screen; patterns of rows, empty where there is no such screen."""

    ready: str
    """It reads input."""
    working: str
    """It works."""
    permission: str = ""
    """It asks before it runs a command."""
    refuse: tuple[str, ...] = ("Escape",)
    """The keys that refuse."""
    question: bool = False
    """It asks what its model asked."""
    leave: tuple[str, ...] = ("Escape",)
    """The keys that leave a question without an answer."""
    interrupt: tuple[str, ...] = ("Escape",)
    """The keys that end a turn."""
    error: str = "stub failure 400"
    limit: str = "stub failure 429|429"
    limit_state: str = "idle"
    """What it does after a refusal with the status 429: it tries again, or it ends its turn."""
    arguments: tuple[str, ...] = ()
    first: str = ""
    """What it asks before it reads input, in a folder that it does not know, and the key to go on with."""
    first_key: str = ""
    login: str = ""
    """What it shows where it has no settings."""
    login_keys: tuple[str, ...] = ()
    """The keys to get there, where it first asks whether the folder is trusted."""
    login_asks: str = "auth"
    """What kasmon says it asks there: aider wants no account, but asks a question."""
    edits: str = ""
    """It asks before it changes a file."""


MOVING: Final = r"[⠁-⣿🌑-🌘]|\d s\b|\ds\b|in \d"
"""Rows that do not stand still: spinners and clocks."""
SCENES: Final = {
    "aider": Scene(
        "^(?:diff)?>$",
        "Waiting for openai|[░█]{3}",
        permission="Run shell command",
        refuse=("n", "Enter"),
        login="No git repo found|Allow collection of anonymous",
        login_asks="question",
        error="",  # it tries again for longer than a test waits
        limit="",  # as well
        interrupt=("C-c",),
        edits="Create new file",
    ),
    "amp": Scene("", "", login="Would you like to log in"),
    "auggie": Scene("", "", login="Login to continue"),
    "cline": Scene(
        "❯ (?:Ask anything|What can I do)",
        "esc to cancel|^ [⠁-⣿] ",
        permission="Approve tool call",
        refuse=("n",),
        arguments=("--auto-approve", "false"),
        login="Welcome to Cline",
        limit_state="working",
        question=True,
    ),
    "copilot": Scene(
        r"^❯\s*$[^$]*Manual Approval",
        "Working",
        permission="Do you want to run this command",
        limit="Working",
        limit_state="working",
        login="Do you trust the files",
        login_keys=("Enter", "hello", "Enter"),
        interrupt=("Escape", "Escape"),
        question=True,
        edits="Do you want to (?:create|edit)",
    ),
    "droid": Scene("", "", login="Please login with your Factory account"),
    "goose": Scene(
        "Enter to send|^> Interrupted, what",
        r"Ctrl\+C to interrupt",
        permission="do you allow",
        refuse=("Down", "Down", "Enter"),
        interrupt=("C-c",),
        arguments=("session",),
        edits="do you allow",
    ),
    "grok": Scene(
        "│ ❯ ",
        r"\[stop\]",
        permission="Yes, proceed",
        refuse=("C-c",),
        question=True,
        leave=("X",),
        interrupt=("C-c",),
        login="Login with Grok",
    ),
    "kimi": Scene(
        "^ │ > ",
        "^ +(?:[⠁-⣿🌑-🌘]).*",
        permission="Run this command",
        question=True,
        limit_state="working",
        first="Trust this folder",
        first_key="Enter",
        login="Trust this folder",
        login_keys=("Enter", "hello", "Enter"),
        edits="1. Approve once",
    ),
    "pi": Scene("^─{10}[^$]*auto\\)", "^── [⠁-⣿] ", login="No models available"),
    "qwen": Scene(
        "Type your message",
        "esc to cancel",
        permission="Allow execution",
        limit_state="working",
        question=True,
        login="Connect a Provider",
        edits="Apply this change",
    ),
}


def take(studio: Studio) -> None:
    """Every state of its agent that can be reached with a model server."""
    scene = SCENES[studio.name]
    if scene.login:
        _login(studio)
    if not scene.ready:
        return
    _talk(studio)
    _asks(studio)
    _narrow(studio)


def _login(studio: Studio) -> None:
    scene = SCENES[studio.name]
    with studio.stage(*scene.arguments, settings=False) as stage:
        stage.until(scene.login, 60)
        if scene.login_keys:
            _keep(studio, stage, "start-trust", "asking", asking="question")
        _press(stage, scene.login_keys)
        _keep(studio, stage, "start-login", "asking", asking=scene.login_asks)


def _ready(studio: Studio, scene: Scene, stage: Terminal, *, keep: bool = False) -> None:
    if scene.first:
        stage.until(scene.first, 60)
        if keep:
            _keep(studio, stage, "start-trust", "asking", asking="question")
        stage.press(scene.first_key, scene.first)
    stage.until(scene.ready, 60)
    stage.still_but_for(MOVING)


def _say(stage: Terminal, prompt: str) -> None:
    stage.type_now(prompt)
    stage.until(_tail(prompt))
    stage.still_but_for(MOVING)
    stage.key("Enter")


def _tail(prompt: str) -> str:
    return re.escape(prompt.split()[-1])


def _talk(studio: Studio) -> None:
    scene = SCENES[studio.name]
    with studio.stage(*scene.arguments) as stage:
        _ready(studio, scene, stage, keep=True)
        _keep(studio, stage, "idle", "idle")
        stage.type("half a thought")
        _keep(studio, stage, "idle-draft", "idle")
        stage.key(*["BSpace"] * 14)
        stage.still()
        _say(stage, "go %% wait 3 %% slow 6 word %% say finished")
        _keep(studio, stage, "working-before-text", "working", holds=scene.working, lacks="word3")
        _keep(studio, stage, "working-text", "working", holds="word3", lacks="\\d finished")
        stage.until("\\d finished|finished$")
        stage.until(scene.ready)
        stage.still()
        _keep(studio, stage, "finished", "idle")
        _say(stage, "go %% wait 20 %% say late")
        stage.until(scene.working)
        _press(stage, scene.interrupt)
        if studio.name not in ("aider", "goose"):  # what they said while they worked stays
            stage.gone(scene.working)
        stage.until(scene.ready)
        _keep(studio, stage, "interrupted", "idle")
    if not scene.error:
        return
    # What was interrupted would be sent again, together with the next prompt.
    with studio.stage(*scene.arguments) as stage:
        _ready(studio, scene, stage)
        _say(stage, "go %% fail 400")
        stage.until(scene.error)
        stage.until(scene.ready)
        _keep(studio, stage, "error", "idle")


def _asks(studio: Studio) -> None:
    scene = SCENES[studio.name]
    with studio.stage(*scene.arguments) as stage:
        _ready(studio, scene, stage)
        if scene.permission:
            _say(stage, "go %% bash python3 -c 'import time; time.sleep(3)' %% say done")
            stage.until(scene.permission)
            _keep(studio, stage, "permission-shell", "asking", asking="permission")
            _press(stage, scene.refuse)
            stage.until(scene.ready)
            _keep(studio, stage, "permission-refused", "idle")
        if scene.edits:
            _say(stage, f"go %% write {stage.workdir}/a.txt|one\\ntwo %% say done")
            stage.until(scene.edits)
            _keep(studio, stage, "permission-edit", "asking", asking="permission")
            _press(stage, scene.refuse)
            stage.until(scene.ready)
        if scene.question:
            _say(stage, "go %% ask Which colour?|red|blue %% say done")
            stage.until(r"^(?!.*%%).*\bblue\b")
            _keep(studio, stage, "question", "asking", asking="question")
            _press(stage, scene.leave)
            stage.until(scene.ready)
    if not scene.limit:
        return
    with studio.stage(*scene.arguments) as stage:
        _ready(studio, scene, stage)
        _say(stage, "go %% fail 429")
        stage.until(scene.limit, 90)
        _keep(studio, stage, "too-many-requests", scene.limit_state)


def _narrow(studio: Studio) -> None:
    scene = SCENES[studio.name]
    with studio.stage(*scene.arguments, cells=(60, 40)) as stage:
        _ready(studio, scene, stage)
        _keep(studio, stage, "idle-narrow", "idle")
        if scene.permission:
            _say(stage, "go %% bash rm -rf build && git push --force origin main | tee a-log-with-a-name %% say done")
            stage.until(scene.permission)
            _keep(studio, stage, "permission-narrow", "asking", asking="permission")
            _press(stage, scene.refuse)
            stage.until(scene.ready)
        _say(stage, "go %% wait 9 %% say late")
        _keep(studio, stage, "working-narrow", "working", holds=scene.working)


def _keep(
    studio: Studio, stage: Terminal, case: str, state: str, holds: str = "", lacks: str = "", **more: Any
) -> None:
    """Keep the screen when nothing but a spinner or a clock moves."""
    if not holds:
        stage.still_but_for(MOVING)
    studio.keep(stage, case, state, holds=holds or ".", lacks=lacks, **more)


def _press(stage: Terminal, keys: Sequence[str]) -> None:
    for key in keys:
        stage.key(key)
        stage.still_but_for(MOVING)
