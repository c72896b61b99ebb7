"""opencode, state by state."""

import json
from typing import Final

from tests.support.detection.scenes.studio import Studio, steps

READY: Final = "Ask anything"
BUSY: Final = "esc (?:again to )?interrupt"


def take(studio: Studio) -> None:
    """Every state that can be reached with a model server."""
    _talk(studio)
    _asks(studio)
    _choices(studio)
    _narrow(studio)
    _long(studio)


def _talk(studio: Studio) -> None:
    with studio.stage() as stage:
        stage.until(READY)
        studio.keep(stage, "idle", "idle")
        stage.type("half a thought")
        studio.keep(stage, "idle-draft", "idle")
        stage.key("C-u")
        stage.still()
        stage.say("go %% wait 3 %% slow 8 word %% say finished")
        studio.keep(stage, "working-before-text", "working", holds=BUSY)
        studio.keep(stage, "working-text", "working", holds=f"word3[^$]*{BUSY}")
        stage.type_now("and then")
        studio.keep(stage, "working-draft", "working", holds=f"and then[^$]*{BUSY}", lacks="finished$")
        stage.key("Enter")
        studio.keep(stage, "working-queued", "working", holds="QUEUED", lacks="finished$")
        stage.until("modelstub")
        stage.gone(BUSY)
        studio.keep(stage, "finished", "idle")
        stage.type("another thought")
        studio.keep(stage, "finished-draft", "idle")
        stage.key("C-u")
        stage.still()
        stage.say("go %% slow 30 word")
        stage.until(f"word3[^$]*{BUSY}")
        stage.key("Escape")
        studio.keep(stage, "interrupting", "working", holds="again to interrupt")
        stage.key("Escape")
        stage.gone(BUSY)
        studio.keep(stage, "interrupted", "idle")
        stage.say("go %% fail 400")
        stage.until("stub failure 400")
        stage.gone(BUSY)
        studio.keep(stage, "error", "idle")
        stage.say("go %% fail 529 2 %% say recovered")
        studio.keep(stage, "retrying", "working", holds="(?i)retrying|attempt")
        stage.until("^ +recovered")
        stage.gone(BUSY)
        stage.key("C-p")
        studio.keep(stage, "palette", "unclear")
        stage.key("Escape")
        stage.type("/models")
        stage.key("Enter")
        studio.keep(stage, "model-picker", "unclear")


def _asks(studio: Studio) -> None:
    with studio.stage() as stage:
        stage.until(READY)
        stage.say("go %% bash touch perm.txt %% say done")
        stage.until("Permission required")
        studio.keep(stage, "permission-bash", "asking", asking="permission")
        stage.key("Right")
        studio.keep(stage, "permission-bash-second", "asking", asking="permission")
        stage.key("Enter")
        studio.keep(stage, "permission-bash-always", "asking", asking="permission")
        stage.key("Escape")
        stage.still()
        stage.key("Right", "Right")
        stage.still()
        stage.key("Enter")
        stage.key("Escape", "Escape")
        stage.gone("Permission required|Reject permission")
        studio.keep(stage, "permission-refused", "idle")
    with studio.stage() as stage:
        stage.until(READY)
        stage.say(f"go %% write {stage.workdir}/a.txt|one\\ntwo %% say done")
        stage.until("Permission required")
        studio.keep(stage, "permission-edit", "asking", asking="permission")
        stage.key("Enter")
        stage.until("^ +done")
        stage.gone(BUSY)
        stage.say("go %% ask Which colour?|red|blue %% say done")
        stage.until("Which colour.[^$]*Type your own")
        studio.keep(stage, "question", "asking", asking="question")
        stage.key("Down")
        studio.keep(stage, "question-second", "asking", asking="question")
        stage.key("Escape")
        stage.gone("Type your own")
        studio.keep(stage, "question-refused", "idle")
        stage.say(f"go %% tool question {json.dumps(QUESTIONS)} %% say done")
        stage.until("Confirm|Which parts")
        studio.keep(stage, "question-many", "asking", asking="question")
        stage.key("Escape")
        stage.still()
        stage.say("go %% bash python3 -c 'import time; time.sleep(30)' %% say done")
        stage.until("Permission required")
        stage.key("Enter")
        studio.keep(stage, "working-tool", "working", holds=BUSY, lacks="Permission required")
        stage.key("Escape", "Escape")


def _choices(studio: Studio) -> None:
    """Several choices, own words, and what it asks behind them."""
    with studio.stage() as stage:
        stage.until(READY)
        stage.say("go %% ask Which colour?|red|blue %% say done")
        stage.until("Which colour.[^$]*Type your own")
        stage.still()
        stage.key("Down", "Down", "Enter")
        studio.keep(stage, "question-own-words-empty", "asking", asking="question")
        stage.type("green")
        studio.keep(stage, "question-own-words", "asking", asking="question")
        stage.key("Enter")
        stage.until("^ +done")
        stage.gone(BUSY)
        stage.say(f"go %% tool question {json.dumps(QUESTIONS)} %% say done")
        stage.until("Which parts.[^$]*Type your own")
        stage.still()
        stage.key("2")
        studio.keep(stage, "question-many-chosen", "asking", asking="question")
        stage.key("Tab")
        studio.keep(stage, "question-of-two", "asking", asking="question")
        stage.key("1")
        studio.keep(stage, "question-review", "asking", asking="question")
        stage.key("Enter")
        stage.gone("esc dismiss")


def _long(studio: Studio) -> None:
    """A command that is cut without a mark, and the view of all of it."""
    for count, name in ((40, "permission-long"), (20, "permission-long-fits")):
        with studio.stage() as stage:
            stage.until(READY, 120.0)
            stage.say(f"go %% tool bash {json.dumps({'command': steps(count), 'description': 'count'})} %% say done")
            stage.until("Permission required", 60.0)
            studio.keep(stage, name, "asking", asking="permission")
            stage.key("C-f")
            stage.until("minimize", 60.0)
            studio.keep(stage, f"{name}-view", "asking", asking="permission")


def _narrow(studio: Studio) -> None:
    for columns, name in ((60, "narrow"), (200, "wide")):
        with studio.stage(cells=(columns, 40)) as stage:
            stage.until(READY)
            studio.keep(stage, f"idle-{name}", "idle")
            stage.say("go %% bash rm -rf build && git push --force origin main | tee a-log-with-a-name %% say done")
            stage.until("Permission required")
            studio.keep(stage, f"permission-{name}", "asking", asking="permission")
            stage.key("Right", "Right")
            stage.still()
            stage.key("Enter", "Enter")
            stage.gone("Permission required")
            stage.say("go %% wait 9 %% say late")
            studio.keep(stage, f"working-{name}", "working", holds=BUSY)
            stage.key("Escape", "Escape")


QUESTIONS: Final = {
    "questions": [
        {
            "question": "Which parts should be built?",
            "header": "Parts",
            "multiple": True,
            "options": [{"label": "core", "description": "the core"}, {"label": "docs", "description": "the pages"}],
        },
        {
            "question": "Which shell?",
            "header": "Shell",
            "options": [{"label": "bash", "description": "b"}, {"label": "fish", "description": "f"}],
        },
    ]
}
