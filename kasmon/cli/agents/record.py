"""`kasmon agents record`: keep the screen of a session as a recorded screen of its agent, and propose a rule for it."""

import re
from pathlib import Path
from typing import Annotated, Final

from kasmon.agents.catalog import catalog
from kasmon.agents.profile import check_name
from kasmon.cli.agents.explain import read_shot
from kasmon.cli.agents.redacted_screen import write_screen
from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import note, print_json, say
from kasmon.detection.recorded_screen import (
    compare,
    describe,
    load,
    propose_rule,
    recorded_screens,
)
from kasmon.detection.rules.catalog import RuleCatalog
from kasmon.detection.rules.schema import WORDS
from kasmon.detection.terminal_screen import TerminalScreen
from kasmon.errors import RefusedError, UnavailableError, UsageError
from kasmon.host.rpc import event_loop
from kasmon.model.permission import RequestKind
from kasmon.paths import Paths, user_paths
from kasmon.sanitize import clean_line
from kasmon.supervisor.fleet.lookup import find_here
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions.explain import explain

CASE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
VERSION: Final = re.compile(r"[A-Za-z0-9][\w.+-]{0,39}")
"""The names of a recorded screen and of its version, which become names of folders."""


def record(
    name: Annotated[str, Arg("Agent, by the name of its program.", ("NAME",), completer="agents")],
    source: Annotated[str, Arg("Session that shows the screen, or folder with a screen.", ("SESSION",))],
    case: Annotated[str, Arg("Your name for the screen: idle, permission-edit, ...", ("CASE",))],
    /,
    *,
    state: Annotated[str, Arg(f"What the screen shows: {', '.join(WORDS)}.")],
    asking: Annotated[str | None, Arg("What it asks for, if its state is asking.")] = None,
    agent_version: Annotated[str, Arg("The agent's version.")] = "any",
    wants_json: Json = False,
) -> None:
    """Record the screen of a session as one of its agent, in your config folder, and propose a rule for it.

    Secrets, your name, your home folder and the machine's name are replaced.
    """
    where = user_paths()
    check_name(name, name)
    if state not in WORDS:
        raise UsageError(f"{state!r} is not a state.", hint=f"States: {', '.join(WORDS)}.")
    kinds = [kind.value for kind in RequestKind]
    if (state == "asking") != (asking in kinds):
        raise UsageError(
            "--asking says what a screen asks for, and only with --state asking.",
            hint=f"It is one of {', '.join(kinds)}.",
        )
    for text, pattern in ((case, CASE), (agent_version, VERSION)):
        if not pattern.fullmatch(text):
            raise UsageError(f"{text!r} cannot be the name of a folder.", hint="Use small letters, digits and -.")
    target = where.agents / name / agent_version / case
    if target.exists():
        raise RefusedError(f"{str(target)!r} already exists.", hint="Choose another name.")
    text, shot = _screen(where, source)
    expected = {"state": state, **({"asking": asking} if asking else {})}
    write_screen(target, text, shot, expected)
    agents = catalog(where)
    recorded = load(target)
    rules = RuleCatalog([where.config / "screens"], agents=agents)
    others = [each for folder in agents.folders(name) for each in recorded_screens(folder.path)]
    difference = compare(name, recorded, rules)
    proposal = propose_rule(recorded, others) if difference else ""
    if wants_json:
        found = difference._asdict() if difference else None
        print_json(folder=str(target), difference=found, rule=proposal or None)
        return
    note(f"recorded in {str(target)!r}: review it before you share it.")
    if difference is None:
        say("The rules read it as expected.")
    else:
        say(str(clean_line(describe(difference))))
        if proposal:
            say(
                f"A rule that reads it, for {str(where.agents / name / 'screen.toml')!r}:",
                "",
                *(str(clean_line(row)) for row in proposal.split("\n")),
            )
        else:
            say("No row is on this screen alone: write a rule by hand.")


def _screen(where: Paths, source: str) -> tuple[str, TerminalScreen]:
    if Path(source).is_dir():
        return read_shot(source, None)
    session = find_here(read_fleet(where), source)
    found = event_loop.run(explain(where, session))
    if found.shot is None:
        raise UnavailableError(f"cannot record the screen of {session.name!r}: {found.unseen}.")
    return found.text, found.shot
