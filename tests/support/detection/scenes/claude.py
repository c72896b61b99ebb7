"""Claude Code, state by state."""

import json
import time
from typing import Final

from tests.support.agents.real_agent import KEY
from tests.support.detection.scenes.studio import Studio, refusing, steps
from tests.support.detection.terminal import Terminal

APPROVED: Final = {"customApiKeyResponses": {"approved": [KEY[-20:]]}}
MANUAL: Final = ("--permission-mode", "default")
READY: Final = "^❯"
LONG: Final = "python3 -c 'import time; time.sleep(60)'"


def take(studio: Studio) -> None:
    """Every state that can be reached with a model server."""
    _first_start(studio)
    _talk(studio)
    _ends(studio)
    _asks(studio)
    _questions(studio)
    _choices(studio)
    _tasks(studio)
    _plans(studio)
    _limits(studio)
    _narrow(studio)
    _long(studio)
    _long_fetch_and_plan(studio)
    _unchecked(studio)
    _stops(studio)
    _empty_plan(studio)


def _first_start(studio: Studio) -> None:
    known = {"hasCompletedOnboarding": True, "theme": "dark"}
    trusted = {"projects": {"{workdir}": {"hasTrustDialogAccepted": True}}}
    with studio.stage(files={".claude.json": json.dumps({**known, **trusted})}) as stage:
        stage.until("API key")
        studio.keep(stage, "start-api-key", "asking", asking="question")
    with studio.stage(files={".claude.json": json.dumps({**known, **APPROVED})}) as stage:
        stage.until("trust")
        studio.keep(stage, "start-trust", "asking", asking="question")
        stage.key("Down")
        studio.keep(stage, "start-trust-second", "asking", asking="question")
    with studio.stage("--dangerously-skip-permissions", own={"IS_SANDBOX": "1"}) as stage:
        stage.until("Bypass")
        studio.keep(stage, "start-bypass", "asking", asking="question")
        stage.key("Down")
        stage.still()
        stage.key("Enter")
        stage.until(READY)
        studio.keep(stage, "idle-bypass", "idle")
    files = {".claude.json": json.dumps({**known, **trusted})}
    with studio.stage(files=files, without=("ANTHROPIC_API_KEY",)) as stage:
        stage.until(READY)
        stage.say("go %% say hello")
        studio.keep(stage, "no-login", "asking", asking="auth", holds="/login")


def _talk(studio: Studio) -> None:
    with studio.stage() as stage:
        stage.until(READY)
        studio.keep(stage, "idle", "idle")
        stage.type("half a thought")
        studio.keep(stage, "idle-draft", "idle")
        stage.key("C-u")
        stage.type("/mo")
        studio.keep(stage, "idle-slash", "idle")
        stage.key("C-u")
        stage.paste("one\ntwo\nthree\n" * 10)
        studio.keep(stage, "idle-pasted", "idle")
        stage.key("C-u")
        stage.still()
        stage.paste("first line\nsecond line")
        studio.keep(stage, "idle-draft-lines", "idle")
        stage.key("C-u", "BSpace", "C-u")
        stage.still()
        stage.say("go %% wait 3 %% say one\\n\\ntwo %% slow 8 word %% say finished")
        studio.keep(stage, "working-before-text", "working", holds="esc to interrupt")
        studio.keep(stage, "working-text", "working", holds=r"● one[^$]*esc to interrupt")
        stage.type_now("and then")
        studio.keep(stage, "working-draft", "working", holds="❯.and then", lacks="● finished")
        stage.key("Enter")
        stage.gone(r"❯.and then\s*\n─")
        studio.keep(stage, "working-queued", "working", holds="and then")
        stage.until("modelstub")
        stage.gone("esc to interrupt")
        studio.keep(stage, "finished", "idle")
        stage.key("C-u")


def _ends(studio: Studio) -> None:
    with studio.stage() as stage:
        stage.until(READY)
        stage.say("go %% slow 20 word")
        stage.until("esc to interrupt")
        stage.still_but_for("^[*✻✽✶✢·]")
        stage.key("Escape")
        stage.gone("esc to interrupt")
        studio.keep(stage, "interrupted", "idle")
        stage.key("C-u")
        stage.still()
    with studio.stage() as stage:
        stage.until(READY)
        stage.say("go %% wait 20 %% say late")
        stage.until("esc to interrupt")
        stage.key("Escape")
        stage.gone("esc to interrupt")
        studio.keep(stage, "interrupted-early", "idle")
    with studio.stage() as stage:
        stage.until(READY)
        stage.say("go %% fail 400")
        stage.until("API Error: 400")
        stage.gone("esc to interrupt")
        studio.keep(stage, "error", "idle")
        stage.say("go %% fail 401")
        stage.until("API Error: 401")
        stage.gone("esc to interrupt")
        studio.keep(stage, "error-login", "asking", asking="auth")
        stage.key("C-o")
        studio.keep(stage, "transcript", "unclear")
        stage.key("Escape")
        stage.still()
        for command, case, state in (("/model", "model-picker", "asking"), ("/config", "settings", "unclear")):
            stage.type(command)
            stage.key("Enter")
            stage.gone("for shortcuts|shift.tab to cycle")
            studio.keep(stage, case, state, **({"asking": "question"} if state == "asking" else {}))
            stage.key("Escape")
            stage.still()
    with studio.stage(own={"CLAUDE_CODE_MAX_RETRIES": "10"}) as stage:
        stage.until(READY)
        stage.say("go %% fail 529 4 %% say recovered")
        studio.keep(stage, "retrying", "working", holds="(?i)retrying in")
        stage.key("Escape")


def _asks(studio: Studio) -> None:
    with studio.stage(*MANUAL) as stage:
        stage.until(READY)
        studio.keep(stage, "idle-manual", "idle")
        stage.say("go %% bash touch perm.txt %% say done")
        stage.until("Do you want")
        studio.keep(stage, "permission-bash", "asking", asking="permission")
        stage.key("Tab")
        studio.keep(stage, "permission-bash-amend", "asking", asking="permission")
        stage.type("and then")
        studio.keep(stage, "permission-bash-amended", "asking", asking="permission")
        stage.key("C-u", "Tab")
        stage.still()
        stage.key("Down")
        studio.keep(stage, "permission-bash-second", "asking", asking="permission")
        stage.press("Escape", "Do you want")
        studio.keep(stage, "permission-refused", "idle")
        stage.key("C-u")
        stage.say('go %% bash rm -rf build && git push --force origin main | tee log; echo "$(cat x)" %% say done')
        stage.until("Do you want")
        studio.keep(stage, "permission-bash-long", "asking", asking="permission")
        _refuse(stage)
        stage.say(f"go %% write {stage.workdir}/a.txt|one\\ntwo %% say done")
        stage.until("Do you want")
        studio.keep(stage, "permission-write", "asking", asking="permission")
        stage.press("1", "Do you want")
        stage.until("● done")
        stage.say(f"go %% edit {stage.workdir}/a.txt|two|three %% say done")
        stage.until("Do you want")
        studio.keep(stage, "permission-edit", "asking", asking="permission")
        _refuse(stage)
        stage.say('go %% tool WebFetch {"url": "https://example.com/x", "prompt": "read it"} %% say done')
        stage.until("Do you want")
        studio.keep(stage, "permission-fetch", "asking", asking="permission")
        _refuse(stage)


def _questions(studio: Studio) -> None:
    with studio.stage(*MANUAL) as stage:
        stage.until(READY)
        stage.say("go %% ask Which colour?|red|blue %% say done")
        stage.until("Enter to select")
        studio.keep(stage, "question", "asking", asking="question")
        stage.key("Down", "Down")
        stage.type("green")
        studio.keep(stage, "question-own-words", "asking", asking="question")
        stage.key("Escape")
        stage.still()
        stage.key("Escape")
        stage.gone("Enter to select|Which colour.$")
        stage.key("C-u")
        stage.say(f"go %% tool AskUserQuestion {json.dumps({'questions': QUESTIONS})} %% say done")
        stage.until("☐ Parts")
        studio.keep(stage, "question-many", "asking", asking="question")
        stage.key("Escape")
        stage.gone("☐ Parts")


def _choices(studio: Studio) -> None:
    """Several choices, what it asks behind them, and a no with its reason."""
    with studio.stage(*MANUAL) as stage:
        stage.until(READY)
        stage.say(f"go %% tool AskUserQuestion {json.dumps({'questions': QUESTIONS})} %% say done")
        stage.until("Which parts.[^$]*Type some")
        stage.still()
        stage.key("2")
        studio.keep(stage, "question-many-chosen", "asking", asking="question")
        stage.key("Tab")
        studio.keep(stage, "question-of-two", "asking", asking="question")
        stage.key("1")
        studio.keep(stage, "question-review", "asking", asking="question")
        stage.press("1", "Review your answers")
        stage.until("done$")
        stage.say("go %% bash touch perm.txt %% say done")
        stage.until("Do you want")
        stage.still()
        stage.key("Down", "Down", "Down")
        stage.still()
        stage.key("Tab")
        studio.keep(stage, "permission-bash-why-not", "asking", asking="permission")
        stage.type("take another")
        studio.keep(stage, "permission-bash-why-not-draft", "asking", asking="permission")


def _tasks(studio: Studio) -> None:
    with studio.stage(*MANUAL) as stage:
        stage.until(READY)
        stage.say(f"go %% tool Bash {json.dumps({'command': LONG, 'run_in_background': True})} %% say started")
        stage.until("Do you want")
        stage.press("1", "Do you want")
        stage.until("● started")
        stage.gone("esc to interrupt")
        studio.keep(stage, "idle-background-task", "idle")
        stage.say(f"go %% bash {LONG} %% say slept")
        stage.until("Do you want")
        stage.press("1", "Do you want")
        studio.keep(stage, "working-tool", "working", holds="esc to interrupt")
        stage.key("Escape")


def _refuse(stage: Terminal) -> None:
    stage.key("Escape")
    stage.gone("Do you want")
    stage.key("C-u")
    stage.still()


def _plans(studio: Studio) -> None:
    with studio.stage("--permission-mode", "plan") as stage:
        stage.until(READY)
        studio.keep(stage, "idle-plan-mode", "idle")
        stage.say("go %% plan 1. first step\\n2. second step %% say done")
        stage.until("Would you like to proceed")
        studio.keep(stage, "plan", "asking", asking="plan")
        stage.key("Escape")
        stage.gone("Would you like to proceed")
        studio.keep(stage, "plan-refused", "idle")
    with studio.stage("--permission-mode", "acceptEdits") as stage:
        stage.until(READY)
        studio.keep(stage, "idle-accept-edits", "idle")


def _limits(studio: Studio) -> None:
    for case, claim, hours in (("limit-session", "five_hour", 2), ("limit-week", "seven_day", 60)):
        headers = {
            "content-type": "application/json",
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-representative-claim": claim,
            "anthropic-ratelimit-unified-reset": str(int(time.time()) + hours * 3600),
            "anthropic-ratelimit-unified-overage-status": "rejected",
            "x-should-retry": "false",
        }
        body = json.dumps({"type": "error", "error": {"type": "rate_limit_error", "message": "limit"}})
        with refusing(429, body, headers) as url:
            own = {"ANTHROPIC_BASE_URL": url, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-" + "x" * 40}
            with studio.stage(own=own, without=("ANTHROPIC_API_KEY",)) as stage:
                stage.until(READY)
                stage.say("go %% say hello")
                stage.until("limit|Error")
                stage.still()
                studio.keep(stage, case, "limited")


def _long(studio: Studio) -> None:
    """A command that is higher than the terminal."""
    with studio.stage(*MANUAL) as stage:
        stage.until(READY)
        stage.say(f"go %% tool Bash {json.dumps({'command': steps(), 'description': 'count'})} %% say done")
        stage.until("Do you want")
        studio.keep(stage, "permission-long", "asking", asking="permission")
        stage.key("Escape")


def _long_fetch_and_plan(studio: Studio) -> None:
    with studio.stage(*MANUAL) as stage:
        stage.until(READY)
        fetch = {"url": "https://example.com/x", "prompt": steps()}
        stage.say(f"go %% tool WebFetch {json.dumps(fetch)} %% say done")
        stage.until("Do you want")
        studio.keep(stage, "fetch-long", "asking", asking="permission")
        stage.key("Escape")
    with studio.stage("--permission-mode", "plan") as stage:
        stage.until(READY)
        plan = "\\n".join(f"{number}. step {number} of sixty" for number in range(1, 61))
        stage.say(f"go %% plan {plan} %% say done")
        stage.until("Would you like to proceed")
        studio.keep(stage, "plan-long", "asking", asking="plan")
        stage.key("Escape")


def _unchecked(studio: Studio) -> None:
    """Auto mode where nothing can check a call: it says so once, and asks with No first and without numbers."""
    with studio.stage() as stage:
        stage.until(READY)
        stage.say("go %% bash git push --force origin main %% say done")
        stage.until("Enter to stay")
        studio.keep(stage, "auto-mode-unchecked", "asking", holds="Enter to stay[^$]*Esc to cancel")
        stage.press("Enter", "Enter to stay")
        stage.until("Do you want")
        studio.keep(stage, "permission-no-first", "asking", asking="permission", holds="❯ No[^$]*Esc to cancel")
        stage.press("Down", "❯ No")
        studio.keep(stage, "permission-no-first-second", "asking", asking="permission", holds="❯ Yes[^$]*Esc to cancel")
        stage.press("Escape", "Do you want")
        stage.key("C-u")
        stage.say("go %% write /tmp/elsewhere.txt|one\\ntwo %% say done")
        stage.until("Do you want")
        studio.keep(stage, "permission-no-first-write", "asking", asking="permission", holds="❯ No[^$]*Esc to")


def _stops(studio: Studio) -> None:
    """Ctrl-Z: nothing that it says before SIGCONT is of now."""
    with studio.stage(*MANUAL) as stage:
        stage.until(READY)
        stage.key("C-z")
        stage.until("is suspended")
        studio.keep(stage, "stopped", "unclear", reads="stopped")


def _empty_plan(studio: Studio) -> None:
    with studio.stage("--permission-mode", "plan") as stage:
        stage.until(READY)
        stage.say("go %% tool ExitPlanMode {} %% say done")
        stage.until("Exit plan mode.$")
        studio.keep(stage, "plan-empty", "asking", asking="plan")
        stage.press("Down", "❯ 1")
        studio.keep(stage, "plan-empty-second", "asking", asking="plan")
        stage.press("Escape", "Exit plan mode")
        studio.keep(stage, "plan-empty-refused", "idle")


def _narrow(studio: Studio) -> None:
    for columns, name in ((60, "narrow"), (200, "wide")):
        with studio.stage(*MANUAL, cells=(columns, 40)) as stage:
            stage.until(READY)
            studio.keep(stage, f"idle-{name}", "idle")
            stage.say("go %% bash rm -rf build && git push --force origin main | tee a-log-with-a-name %% say done")
            stage.until("Do you want")
            studio.keep(stage, f"permission-{name}", "asking", asking="permission")
            stage.key("Escape")
            stage.gone("Do you want")
            stage.key("C-u")
            stage.say("go %% say one\\n\\ntwo %% slow 9 word")
            studio.keep(stage, f"working-{name}", "working", holds="● one[^$]*esc to inter")
            stage.key("Escape")


QUESTIONS: Final = [
    {
        "question": "Which parts should be built?",
        "header": "Parts",
        "multiSelect": True,
        "options": [{"label": "core", "description": "the core"}, {"label": "docs", "description": "the pages"}],
    },
    {
        "question": "Which shell?",
        "header": "Shell",
        "multiSelect": False,
        "options": [{"label": "bash", "description": "b"}, {"label": "fish", "description": "f"}],
    },
]
