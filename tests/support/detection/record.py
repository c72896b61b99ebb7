"""Record the golden screens anew: `python -m tests.support.detection.record [AGENT[/SCENE] ...]`.

Without words these are all agents that `make agents` installs; with `--more`, those of `make more-agents`. They are
driven through their states against a model server on loopback, in a tmux of their own. Folders of other versions stay
as they are. What is to be read on a new screen is filled in from what is read there now, where the state is the
expected one: look at it before it is kept. `--learn` only does that. `--diff` also prints which screens are read
otherwise than before; of a new version, than in the newest one before. If a screen is not reached, the others are
recorded all the same, and the exit code is 1.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Final

from kasmon.detection.reader import build_reading_table
from tests.support.agents.real_agent import pinned_version
from tests.support.detection import derived_screens
from tests.support.detection.expected import reading_of
from tests.support.detection.golden import Case, cases, save
from tests.support.detection.scenes.more import SCENES
from tests.support.detection.scenes.studio import Studio, studio

AGENTS: Final = ("claude", "codex", "gemini", "opencode", "scripted", "shell")
KNOWN: Final = ("state", "reads", "asking", "made")
"""What a person says of a screen."""
ALWAYS: Final = {"scripted": "any", "shell": "any"}
"""Those that are on every machine: their version is of no account."""


def main(arguments: Sequence[str]) -> None:
    before = {case.id: describe(case) for case in cases()}
    newest = {(case.agent, case.name): before[case.id] for case in cases()}  # of a new version there is no other
    missed: list[str] = []
    named = [argument for argument in arguments if not argument.startswith("--")] or (
        SCENES if "--more" in arguments else AGENTS
    )
    for argument in [] if "--learn" in arguments else named:
        agent, _, scene = argument.partition("/")
        take = find_recorder(agent, scene)
        with studio(agent, ALWAYS.get(agent) or pinned_version(agent)) as room:
            try:
                take(room)
            except TimeoutError as error:  # its further screens come after one that was not reached
                room.missed.append(f"... ({error})")
        missed += [f"{agent}/{case}" for case in room.missed]
    derived_screens.main()
    for case in cases():
        now = describe(case)
        was = before.get(case.id) or newest.get((case.agent, case.name), now)
        if "--diff" in arguments and now != was:
            print(f"{case.id}: was {was}, is {now}")
        _learn(case)
    if missed:
        sys.exit(f"not reached: {', '.join(missed)}.")


def find_recorder(agent: str, scene: str = "") -> Callable[[Studio], None]:
    """Return what drives *agent* through its states, or through those of one *scene*."""
    scenes = importlib.import_module(f"tests.support.detection.scenes.{'more' if agent in SCENES else agent}")
    take: Callable[[Studio], None] = getattr(scenes, f"_{scene}" if scene else "take")
    return take


def describe(case: Case) -> str:
    """What is read on *case*: the state, the rule, and the choices of a menu."""
    reading = reading_of(case)
    choices = [choice.label for choice in reading.menu.choices] if reading.menu else []
    return f"{reading.state} by {reading.rule or 'no rule'}" + (f" {choices}" if choices else "")


def _learn(case: Case) -> None:
    """Fill in what is to be read on a screen of which so far only the state is known."""
    known = {key: value for key, value in case.expected.items() if key in KNOWN}
    if known != case.expected:
        return
    reading = reading_of(case)
    if reading.state != known.get("reads", known["state"]):
        print(f"  {case.id}: {known['state']} was expected, and {reading.state} is read ({reading.rule or 'no rule'})")
        return
    save(case.agent, case.version, case.name, case.shot, {**known, **build_reading_table(reading)})


if __name__ == "__main__":
    main(sys.argv[1:])
