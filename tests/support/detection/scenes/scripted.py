"""kasmon's own scripted agent, state by state; it needs no model server."""

import sys
from typing import Any

from tests.support.detection.scenes.studio import Studio


def take(studio: Studio) -> None:
    """Every state that a script can bring about."""
    _asked(studio, "permission", "ask git push", "permission", "Do you want")
    _asked(studio, "permission-edit", "edit a.txt\n  -two\n  +three", "permission", "Do you want")
    _asked(studio, "question", "question Which colour?|red|blue", "question", "2. blue")
    _asked(studio, "question-many", "choose Which parts?|core|docs", "question", "docs")
    _asked(studio, "plan", "approve first this\n  then that", "plan", "Shall I begin")
    _asked(studio, "login", "login", "auth", "Not now")
    _kept(studio, "finished", "say all is well", "idle", "all is well")
    _kept(studio, "error", "fail the model is gone", "idle", "the model is gone")
    _kept(studio, "limited", "limit 3600", "limited", "limit")
    _kept(studio, "working", "slow 60", "working", "interrupts", holds=".")
    _kept(studio, "hanging", "hang", "working", "interrupts", holds=".")
    with studio.program("scripted", _argv("")) as stage:
        stage.until("Enter sends")
        studio.keep(stage, "idle", "idle")
        stage.type("half a thought")
        studio.keep(stage, "idle-draft", "idle")


def _asked(studio: Studio, case: str, script: str, asking: str, pattern: str) -> None:
    _kept(studio, case, script, "asking", pattern, asking=asking)


def _kept(studio: Studio, case: str, script: str, state: str, pattern: str, **more: Any) -> None:
    with studio.program("scripted", _argv(script)) as stage:
        stage.until(pattern)
        studio.keep(stage, case, state, **more)


def _argv(script: str) -> tuple[str, ...]:
    return (
        sys.executable,
        "-P",
        "-m",
        "kasmon.scripted",
        "--speed",
        "1" if script.startswith(("slow", "limit")) else "0",
        "-c",
        script,
    )
