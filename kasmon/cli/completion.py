"""What Tab offers for a word of a command: sessions, agents, settings and their values, plans, requests.

The shells' scripts ask by `kasmon __complete WORD...` while somebody waits for a key: it loads little and starts
nothing, and a fault is no candidate. The shell keeps those that begin as what is typed. Where it is plain what is
meant, `answer` does without the library of the command line, which takes as long again as all the rest.
"""

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import kasmon
from kasmon.paths import Paths, expanded, places
from kasmon.sanitize import clean_line

Offered = dict[str, str]
MOST: Final = 200
"""So many entries of a folder are looked at."""
HEAD: Final = 64 * 1024
"""So much of a file is looked at, in characters."""
SESSION_FIRST: Final = frozenset(
    [
        *("show", "read", "wait", "export", "explain", "attach", "send", "interrupt", "fg", "ctx"),
        *("restart", "move", "rename", "mark", "stop", "rm"),
    ]
)
"""The commands whose first word is a session, as their parameters say too."""


def answer(words: Sequence[str]) -> bool:
    """Print what may stand for the last of *words*, where that is a session or an agent and plainly so."""
    match words:
        case [command, *_, "--agent", typed] if command == "new" and "--" not in words:
            kind = agents
        case [command, typed] if command in SESSION_FIRST and not typed.startswith("-"):
            kind = sessions
        case _:
            return False
    print("\n\x1fbegin")
    try:
        offered = kind(typed)
    except Exception:  # noqa: BLE001 - somebody is typing: no fault of ours may stand in the line
        return True
    for candidate, what in offered.items():
        print(f"{clean_line(candidate)}\t{clean_line(what)}")
    return True


def sessions(typed: str, *, sandboxed: bool = False) -> Offered:
    """The names of all sessions, those that need you first; ids only where they begin as what is *typed*.

    *sandboxed*: only those in a sandbox.
    """
    from kasmon.model.fleet import by_attention
    from kasmon.supervisor.fleet.snapshot import look_once

    shown = [one for one in by_attention(look_once(places()).sessions) if one.sandbox or not sandboxed]
    names = {session.name: f"{session.state}, {session.agent}" for session in shown if session.name[:1] != "-"}
    by_id = [one for one in shown if one.name[:1] == "-" or (typed and one.id.startswith(typed))]
    ids = {session.id: session.name for session in by_id}
    return names | ids


def agents(typed: str) -> Offered:
    """The profiles that may be started."""
    from kasmon.config import load

    enabled = {name: profile for name, profile in load(places()).agents.items() if profile.enabled}
    return {name: profile.program for name, profile in enabled.items()}


def requests(typed: str) -> Offered:
    """The requests that wait, oldest first."""
    from kasmon.model.fleet import requests
    from kasmon.supervisor.fleet.snapshot import look_once

    return {request.id: f"{request.tool} {request.title}".strip() for request in requests(look_once(places()))}


def settings(typed: str) -> Offered:
    """The settings, each with its sentence."""
    from kasmon.config import load
    from kasmon.config.explain import settings

    return dict.fromkeys(settings(load(places())), "")


def values(key: str) -> Offered:
    """What the setting *key* takes, where that can be listed."""
    from kasmon.config.parser import allowed_values, field_type

    if key == "ui.theme":
        return themes(places())
    if key == "default_agent":
        return agents("")
    return {value.strip('"'): "" for value in allowed_values(field_type(key.split(".")))}


def plans(typed: str) -> Offered:
    """The plans that were run, and the files."""
    from kasmon.store.plan_log import plans

    return dict.fromkeys(plans(places()), "was run") | plan_files(typed)


def plan_files(typed: str) -> Offered:
    """The plans in the folder that is *typed*, and in the folders there."""
    before, slash, _ = typed.rpartition("/")
    folder = expanded(before + slash) if slash else Path()
    inner = [f"{name}/" for name in _names(folder) if (folder / name).is_dir() and not name.startswith(".")]
    files = [place + name for place in ("", *inner) for name in _names(folder / place)]
    return {before + slash + file: "a plan" for file in files if _is_meant(folder / file)}


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in islice(os.scandir(folder), MOST))
    except OSError:
        return []


def _is_meant(path: Path) -> bool:
    """Whether *path* is a file that is meant as a plan; a pipe would be waited for."""
    from kasmon.model.plan.parser import MARKS, is_plan

    try:
        if not (is_plan(path.name) and path.is_file()):
            return False
        with path.open(encoding="utf-8", errors="replace") as file:
            return MARKS.search(file.read(HEAD)) is not None
    except OSError:
        return False


def themes(where: Paths) -> Offered:
    """The themes that kasmon brings, and a person's own."""
    shipped = Path(kasmon.__file__).with_name("themes")
    return {path.stem: "" for folder in (shipped, where.themes) for path in sorted(folder.glob("*.toml"))}
