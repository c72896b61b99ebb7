"""Codex, state by state."""

import json
import time
from typing import Final

from tests.support.detection.scenes.studio import Studio, refusing, steps

READY: Final = "Ask Codex[^$]*GPT-5.5 (?:default|medium) ·"
ASKING: Final = ("-a", "on-request", "--sandbox", "workspace-write")
OUTSIDE: Final = {"sandbox_permissions": "require_escalated", "justification": "needs to write outside"}
CONFIG: Final = ".codex/config.toml"
BASE: Final = """
model = "gpt-5.5"
model_provider = "stub"
check_for_update_on_startup = false
[model_providers.stub]
name = "stub"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "STUB_KEY"
[analytics]
enabled = false
"""
HELD: Final = """
mkdir "$TMPDIR/bin" && cd "$TMPDIR/bin" && printf '#!/bin/sh\\nexec sleep 600\\n' >lsb_release && chmod +x lsb_release
cd "$OLDPWD" && PATH="$TMPDIR/bin:$PATH" exec "$@"
"""
"""Codex asks `lsb_release` for the system before its session begins: it waits for one that takes its time."""
KNOWN: Final = '[notice.model_migrations]\n"gpt-5.5" = "gpt-6-sol"\n'


def take(studio: Studio) -> None:
    """Every state that can be reached with a model server."""
    _first_start(studio)
    _news(studio)
    _startup(studio)
    _talk(studio)
    _retries(studio)
    _asks(studio)
    _questions(studio)
    _choices(studio)
    _limits(studio)
    _narrow(studio)
    _long(studio)


def _first_start(studio: Studio) -> None:
    trusted = '[projects."{workdir}"]\ntrust_level = "trusted"\n'
    with studio.stage(files={CONFIG: trusted}, without=("STUB_KEY",)) as stage:
        stage.until("(?i)sign in")
        studio.keep(stage, "start-login", "asking", asking="auth")


def _news(studio: Studio) -> None:
    """What it asks at a start when it has a newer version of itself, or a newer model."""
    trusted = '[projects."{workdir}"]\ntrust_level = "trusted"\n'
    base = BASE.replace("check_for_update_on_startup = false\n", "")
    checked = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    newer = json.dumps({"latest_version": "9.9.9", "last_checked_at": checked, "dismissed_version": None})
    installed = {"CODEX_MANAGED_BY_NPM": "1", "CODEX_MANAGED_PACKAGE_ROOT": "/tmp"}
    files = {CONFIG: base + KNOWN + trusted, ".codex/version.json": newer}
    with studio.stage(*ASKING, own=installed, files=files) as stage:
        stage.until("Update available")
        studio.keep(stage, "start-update", "asking", asking="question")
    with studio.stage(*ASKING, files={CONFIG: BASE + trusted}) as stage:
        stage.until("Try new model")
        studio.keep(stage, "start-model", "asking", asking="question")


def _startup(studio: Studio) -> None:
    """Before its session began, a prompt that it took before that, and one while a server that it needs starts."""
    with studio.stage(*ASKING, around=("sh", "-c", HELD, "sh")) as stage:
        studio.keep(stage, "start-box", "starting", holds=r"Ask Codex[^$]*\? for shortcuts")
        stage.say("go %% say I began")
        studio.keep(stage, "start-waiting", "starting", holds="Waiting for startup")
    server = ('command="sleep"', 'args=["600"]', "startup_timeout_sec=600", "required=true")
    slow = [word for setting in server for word in ("-c", f"mcp_servers.slow.{setting}")]
    with studio.stage(*ASKING, *slow) as stage:
        stage.until(READY)
        stage.say("go %% say I began")
        studio.keep(stage, "start-queued", "starting", holds="Queued follow-up inputs")
    with studio.stage(*ASKING, "-c", "tui.status_line=[]") as stage:
        stage.until("context left")
        studio.keep(stage, "idle-without-status", "idle")


def _talk(studio: Studio) -> None:
    with studio.stage(*ASKING) as stage:
        stage.until(READY)
        studio.keep(stage, "idle", "idle")
        stage.type("half a thought")
        studio.keep(stage, "idle-draft", "idle")
        stage.key("C-u")
        stage.still()
        stage.type("/mo")
        studio.keep(stage, "idle-slash", "idle", reads="idle|working")
        stage.key("Escape", "C-u", "C-u")
        stage.still()
        stage.paste("first line\nsecond line")
        studio.keep(stage, "idle-draft-lines", "idle")
        stage.key("C-u", "BSpace", "C-u")
        stage.still()
        stage.say("go %% wait 4 %% slow 4 word %% say finished")
        studio.keep(stage, "working-before-text", "working", holds="esc to interrupt")
        studio.keep(stage, "working-text", "working", reads="idle|working", holds="word3")
        stage.type_now("and then")
        studio.keep(stage, "working-draft", "working", reads="idle|working", holds="and then", lacks="• finished")
        stage.key("Tab")
        stage.until("• finished")
        stage.until(READY)
        studio.keep(stage, "finished", "idle")
        stage.say("go %% wait 600")
        stage.until("esc to interrupt")
        stage.type_now("wait for me")
        stage.still_but_for("Working|word")
        stage.key("Enter")
        studio.keep(stage, "working-queued", "working", holds="wait for me", lacks="› wait for me")
        stage.key("Escape")
        stage.until("› wait for me")
    with studio.stage(*ASKING) as stage:
        stage.until(READY)
        stage.say("go %% slow 9 word")
        stage.until("word3")
        stage.key("Escape")
        stage.until("interrupted")
        studio.keep(stage, "interrupted", "idle")
    with studio.stage(*ASKING) as stage:
        stage.until(READY)
        stage.say("go %% fail 400")
        stage.until("■")
        studio.keep(stage, "error", "idle")
        stage.still()


def _retries(studio: Studio) -> None:
    with studio.stage(*ASKING, "-c", "model_providers.stub.stream_max_retries=5") as stage:
        stage.until(READY)
        stage.say("go %% drop")
        studio.keep(stage, "retrying", "working", holds="(?i)reconnecting")
        stage.key("Escape")


def _asks(studio: Studio) -> None:
    with studio.stage(*ASKING) as stage:
        stage.until(READY)
        command = {"cmd": "touch ../x1", **OUTSIDE}
        stage.say(f"go %% tool exec_command {json.dumps(command)} %% say done")
        stage.until("Would you like")
        studio.keep(stage, "permission-exec", "asking", asking="permission")
        stage.key("Down")
        studio.keep(stage, "permission-exec-second", "asking", asking="permission")
        stage.key("Escape")
        stage.until("interrupted")
        studio.keep(stage, "permission-refused", "idle")
        stage.say(f"go %% write {stage.workdir.parent.parent}/out.txt|one\\ntwo %% say done")
        stage.until("Would you like")
        studio.keep(stage, "permission-edit", "asking", asking="permission")
        stage.key("Escape")
        stage.until(READY)
    with studio.stage(*ASKING) as stage:
        stage.until(READY)
        stage.say("go %% bash sleep 30 %% say done")
        studio.keep(stage, "working-tool", "working", holds="sleep 30[^$]*esc to interrupt")
        stage.key("Escape")


def _questions(studio: Studio) -> None:
    with studio.stage(*ASKING) as stage:
        stage.until(READY)
        stage.still()
        stage.key("BTab")
        stage.until("Plan mode")
        studio.keep(stage, "idle-plan-mode", "idle")
        stage.say("go %% ask Which colour?|red|blue %% say done")
        stage.until("enter to submit")
        studio.keep(stage, "question", "asking", asking="question")
        stage.type("2")
        stage.still()
        stage.key("Escape")
        stage.until(READY)
        studio.keep(stage, "question-answered", "idle")
        stage.say("go %% plan 1. first step\\n2. second step")
        stage.until("(?i)implement")
        studio.keep(stage, "plan", "asking", asking="plan")
        stage.key("Escape")
        stage.still()


def _choices(studio: Studio) -> None:
    """Own words beside a choice."""
    with studio.stage(*ASKING) as stage:
        stage.until(READY)
        stage.still()
        stage.key("BTab")
        stage.until("Plan mode")
        stage.say("go %% ask Which colour?|red|blue %% say done")
        stage.until("enter to submit")
        stage.still()
        stage.key("Down", "Down", "Tab")
        studio.keep(stage, "question-own-words-empty", "asking", asking="question")
        stage.type("green")
        studio.keep(stage, "question-own-words", "asking", asking="question")


def _limits(studio: Studio) -> None:
    for case, hours in (("limit", 2), ("limit-week", 60)):
        error = {"type": "usage_limit_reached", "message": "limit", "plan_type": "plus"}
        body = json.dumps({"error": {**error, "resets_at": int(time.time()) + hours * 3600}})
        with refusing(429, body, {"content-type": "application/json"}) as url:
            arguments = ("-c", f'model_providers.stub.base_url="{url}/v1"')
            with studio.stage(*ASKING, *arguments) as stage:
                stage.until(READY)
                stage.say("go %% say hello")
                stage.until("■")
                studio.keep(stage, case, "limited")


def _long(studio: Studio) -> None:
    with studio.stage(*ASKING) as stage:
        stage.until("Ask Codex")
        for count, name in ((40, "permission-long"), (30, "permission-long-fits")):
            command = {"cmd": steps(count), **OUTSIDE}
            stage.say(f"go %% tool exec_command {json.dumps(command)} %% say done")
            stage.until("Would you like")
            studio.keep(stage, name, "asking", asking="permission")
            stage.key("C-a")
            stage.until("^ q close")
            studio.keep(stage, f"{name}-view", "asking", asking="permission")
            stage.key("q")
            stage.until("Would you like")
            stage.key("Escape")
            stage.until("interrupted")
            stage.key("C-u")


def _narrow(studio: Studio) -> None:
    for columns, name in ((60, "narrow"), (200, "wide")):
        with studio.stage(*ASKING, cells=(columns, 40)) as stage:
            stage.until(READY)
            studio.keep(stage, f"idle-{name}", "idle")
            command = {"cmd": "touch ../a-file-with-a-rather-long-name-that-goes-on-in-the-next-row", **OUTSIDE}
            stage.say(f"go %% tool exec_command {json.dumps(command)} %% say done")
            stage.until("Would you like")
            studio.keep(stage, f"permission-{name}", "asking", asking="permission")
            stage.key("Escape")
            stage.until("interrupted")
            stage.say("go %% wait 9 %% say late")
            studio.keep(stage, f"working-{name}", "working", holds="esc to inter")
            stage.key("Escape")
