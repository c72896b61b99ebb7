"""Gemini CLI, state by state."""

import json
from typing import Final

from tests.support.detection.scenes.studio import Studio, steps

READY: Final = "Type your message"
SETTINGS: Final = ".gemini/settings.json"
KNOWN: Final = {
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    "privacy": {"usageStatisticsEnabled": False},
}


def take(studio: Studio) -> None:
    """Every state that can be reached with a model server."""
    _first_start(studio)
    _talk(studio)
    _asks(studio)
    _choices(studio)
    _narrow(studio)
    _long(studio)
    _text(studio)


def _first_start(studio: Studio) -> None:
    with studio.stage(without=(".gemini/trustedFolders.json",)) as stage:
        stage.until("Do you trust")
        studio.keep(stage, "start-trust", "asking", asking="question")
    with studio.stage(files={SETTINGS: json.dumps(KNOWN)}, without=("GEMINI_API_KEY",)) as stage:
        stage.until("●")
        studio.keep(stage, "start-login", "asking", asking="auth")


def _talk(studio: Studio) -> None:
    with studio.stage() as stage:
        stage.until(READY)
        studio.keep(stage, "idle", "idle")
        stage.type("half a thought")
        studio.keep(stage, "idle-draft", "idle")
        stage.key("C-u")
        stage.still()
        stage.paste("first line\nsecond line")
        studio.keep(stage, "idle-draft-lines", "idle")
        stage.key("C-c")
        stage.until(READY)
        stage.say("go %% wait 3 %% slow 6 word %% say finished")
        studio.keep(stage, "working-before-text", "working", holds="esc to cancel")
        studio.keep(stage, "working-text", "working", holds="word3[^$]*esc to cancel")
        stage.type_now("and then")
        studio.keep(stage, "working-draft", "working", holds="> *and then", lacks="\\d finished")
        stage.key("Enter")
        studio.keep(stage, "working-queued", "working", holds="(?i)queue", lacks="\\d finished")
        stage.until("modelstub")
        stage.until(READY)
        studio.keep(stage, "finished", "idle")
        stage.say("go %% wait 20 %% say late")
        stage.until("esc to cancel")
        stage.key("Escape")
        stage.until("cancelled")
        stage.until(READY)
        studio.keep(stage, "interrupted", "idle")
        stage.say("go %% fail 400")
        stage.until("API Error")
        stage.until(READY)
        studio.keep(stage, "error", "idle")
        stage.type("/model")
        stage.key("Enter")
        stage.until("1\\. ")
        studio.keep(stage, "model-picker", "asking", asking="question")


def _asks(studio: Studio) -> None:
    with studio.stage() as stage:
        stage.until(READY)
        stage.say("go %% bash touch perm.txt %% say done")
        stage.until("Allow execution")
        studio.keep(stage, "permission-bash", "asking", asking="permission")
        stage.key("Down")
        studio.keep(stage, "permission-bash-second", "asking", asking="permission")
        stage.key("Escape")
        stage.until(READY)
        studio.keep(stage, "permission-refused", "idle")
        stage.say(f"go %% write {stage.workdir}/a.txt|one\\ntwo %% say done")
        stage.until("Apply this change")
        studio.keep(stage, "permission-edit", "asking", asking="permission")
        stage.key("Escape")
        stage.until(READY)
        stage.say("go %% ask Which colour?|red|blue %% say done")
        stage.until("Which colour.[^$]*1\\. ")
        studio.keep(stage, "question", "asking", asking="question")
        stage.key("Down")
        studio.keep(stage, "question-second", "asking", asking="question")
        stage.key("Escape")
        stage.until(READY)
        studio.keep(stage, "question-refused", "idle")
        stage.say("go %% bash python3 -c 'import time; time.sleep(30)' %% say done")
        stage.until("Allow execution")
        stage.press("1", "Allow execution")
        studio.keep(stage, "working-tool", "working", holds="esc to cancel", lacks="Allow execution")
        stage.key("Escape")


def _choices(studio: Studio) -> None:
    parts = [{"label": label, "description": f"the {label}"} for label in ("core", "docs", "tools")]
    several = {"question": "Which parts?", "header": "Parts", "type": "choice", "multiSelect": True, "options": parts}
    with studio.stage() as stage:
        stage.until(READY)
        stage.still()
        stage.say("go %% say hello")
        stage.until("✦ hello")
        stage.until(READY)
        stage.say(f"go %% tool ask_user {json.dumps({'questions': [several]})} %% say done")
        stage.until(r"1\. \[ \] core")
        studio.keep(stage, "question-many", "asking", asking="question")
        stage.key("Enter")
        studio.keep(stage, "question-many-chosen", "asking", asking="question")
        stage.key("Down", "Down", "Down", "Down")
        studio.keep(stage, "question-many-scrolled", "asking")


def _text(studio: Studio) -> None:
    """A question that is answered in one's own words."""
    wanted = {"question": "Name of the branch?", "header": "Branch", "type": "text", "placeholder": "like main"}
    with studio.stage() as stage:
        stage.until(READY)
        stage.still()
        stage.say(f"go %% tool ask_user {json.dumps({'questions': [wanted]})} %% say done")
        stage.until("Name of the branch.[^$]*Enter to submit")
        studio.keep(stage, "question-text", "asking", asking="question")
        stage.type("some words")
        studio.keep(stage, "question-text-draft", "asking", asking="question")


def _long(studio: Studio) -> None:
    """A command of which the first lines are hidden, and the view of all of it."""
    for count, name, fits in ((40, "permission-long", False), (28, "permission-long-fits", True)):
        with studio.stage() as stage:
            stage.until(READY)
            stage.gone("Initializing")
            command = {"command": steps(count), "description": "count"}
            stage.say(f"go %% tool run_shell_command {json.dumps(command)} %% say done")
            stage.until("Allow execution")
            studio.keep(stage, name, "asking", asking="permission")
            if not fits:
                continue  # its view is higher than the terminal, and has scrolled away
            stage.key("C-o")
            stage.gone("lines hidden")
            studio.keep(stage, f"{name}-view", "asking", asking="permission")


def _narrow(studio: Studio) -> None:
    for columns, name in ((60, "narrow"), (200, "wide")):
        with studio.stage(cells=(columns, 40)) as stage:
            stage.until(READY)
            studio.keep(stage, f"idle-{name}", "idle")
            stage.say("go %% bash rm -rf build && git push --force origin main | tee a-log-with-a-name %% say done")
            stage.until("Allow execution")
            studio.keep(stage, f"permission-{name}", "asking", asking="permission")
            stage.key("Escape")
            stage.until(READY)
            stage.say("go %% wait 9 %% say late")
            studio.keep(stage, f"working-{name}", "working", holds="esc to c")
            stage.key("Escape")
