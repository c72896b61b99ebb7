"""Completion candidates: sessions, agents, settings and their values, plans, requests.

The shell scripts call `kasmon __complete WORD...` on a key press: it loads little, starts nothing and reports no
errors. The shell filters by the typed prefix.

The parameters of each command are in `completion.json`, since the functions load what they run. `make pages` writes it.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

import kasmon
from kasmon.cli.arguments import Arg, CommandParameter, Signature, assign
from kasmon.cli.commands import find
from kasmon.paths import Paths, expanded, user_paths
from kasmon.sanitize import clean_line

Completions = dict[str, str]
PARAMETERS: Final = Path(__file__).with_name("completion.json")
MOST: Final = 200
"""At most this many entries of a folder are read."""
HEAD: Final = 64 * 1024
"""At most this many characters of a file are read."""
CURSOR: Final = "\x00"
"""A word that a shell cannot pass: it takes the position of the typed word."""


class ParameterSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the completion of a parameter needs to know."""

    name: str
    is_flag: bool = False
    hyphen: bool = False
    completer: str = ""

    def parameter(self) -> CommandParameter:
        return CommandParameter(
            self.name, bool if self.is_flag else str, Arg(completer=self.completer, hyphen=self.hyphen)
        )


class CommandSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parameters of a command: words by their position, the rest of them, and options by their flag."""

    words: tuple[ParameterSummary, ...] = ()
    rest: ParameterSummary | None = None
    options: dict[str, ParameterSummary] = {}

    def signature(self) -> Signature:
        return Signature(
            words=tuple(each.parameter() for each in self.words),
            rest=None if self.rest is None else self.rest.parameter(),
            options={flag: each.parameter() for flag, each in self.options.items()},
        )


def complete(arguments: Sequence[str]) -> int:
    """Print the candidates for the last of *arguments*, and return the exit code."""
    offered: Completions = {}
    with contextlib.suppress(Exception):  # an error must not disturb the line that the user is typing
        offered = _candidates(_join_options(arguments))
    print("\n\x1fbegin")
    for candidate, what in offered.items():
        print(f"{clean_line(candidate)}\t{clean_line(what)}")
    return 0


def _join_options(arguments: Sequence[str]) -> list[str]:
    """Return *arguments* with `--option=value` as one word, which bash splits."""
    result: list[str] = []
    for argument in arguments:
        is_split = result and result[-1].startswith("-") and (argument == "=" or result[-1].endswith("="))
        result[-1:] = [result[-1] + argument] if is_split else [*result[-1:], argument]
    return result


def _candidates(arguments: Sequence[str]) -> Completions:
    name, arguments = find(arguments)
    if not name or not arguments:
        return {}
    flag, is_option, typed = arguments[-1].partition("=")
    is_option = is_option if flag.startswith("-") and "--" not in arguments else ""
    typed = typed if is_option else arguments[-1]
    signature = msgspec.json.decode(PARAMETERS.read_bytes(), type=dict[str, CommandSummary])[name].signature()
    *before, (parameter, _) = assign(signature, [*arguments[:-1], f"{flag}=" * bool(is_option) + CURSOR])
    match parameter.arg.completer:
        case "sessions":
            return sessions(typed)
        case "sandboxes":
            return sessions(typed, sandboxed=True)
        case "values":
            return values(before[0][1])
        case "plans":
            return plans(typed)
        case "plan_files":
            return plan_files(typed)
        case other:
            return WITHOUT_WORD.get(other, dict)()


def sessions(typed: str, *, sandboxed: bool = False) -> Completions:
    """Return the names of all sessions, those that need a person first; ids only if they begin with *typed*.

    *sandboxed*: only those in a sandbox.
    """
    from kasmon.model.fleet import by_attention
    from kasmon.supervisor.fleet.snapshot import read_fleet

    shown = [one for one in by_attention(read_fleet(user_paths()).sessions) if one.sandbox or not sandboxed]
    names = {session.name: f"{session.state}, {session.agent}" for session in shown if session.name[:1] != "-"}
    by_id = [one for one in shown if one.name[:1] == "-" or (typed and one.id.startswith(typed))]
    ids = {session.id: session.name for session in by_id}
    return names | ids


def agents() -> Completions:
    """Return the enabled profiles."""
    from kasmon.config import load

    enabled = {name: profile for name, profile in load(user_paths()).agents.items() if profile.enabled}
    return {name: profile.program for name, profile in enabled.items()}


def templates() -> Completions:
    """Return the templates of the config, and of the trusted config of this folder."""
    from kasmon.config import load
    from kasmon.supervisor.sessions.folder_config import in_folder

    where = user_paths()
    return {name: each.agent for name, each in in_folder(where, load(where), "").config.templates.items()}


def tags() -> Completions:
    """Return the tags of all sessions."""
    from kasmon.supervisor.fleet.snapshot import read_fleet

    return {tag: "" for session in read_fleet(user_paths()).sessions for tag in session.tags}


def requests() -> Completions:
    """Return the open requests, oldest first."""
    from kasmon.model.fleet import requests
    from kasmon.supervisor.fleet.snapshot import read_fleet

    return {request.id: f"{request.tool} {request.title}".strip() for request in requests(read_fleet(user_paths()))}


def settings() -> Completions:
    from kasmon.config import load
    from kasmon.config.explain import settings

    return dict.fromkeys(settings(load(user_paths())), "")


def values(key: str) -> Completions:
    """Return the values of the setting *key*, if they can be listed."""
    from kasmon.config import Config
    from kasmon.toml_struct import allowed_values, field_type

    if key == "ui.theme":
        return themes(user_paths())
    if key == "default_agent":
        return agents()
    return {value.strip('"'): "" for value in allowed_values(field_type(key.split("."), Config))}


def machines() -> Completions:
    """Return the registered machines."""
    from kasmon.store.machines import machine_names

    return dict.fromkeys(machine_names(user_paths()), "a registered machine")


def plans(typed: str) -> Completions:
    """Return the plans that were run, and plan files."""
    from kasmon.store.plan_log import plans

    return dict.fromkeys(plans(user_paths()), "was run") | plan_files(typed)


def plan_files(typed: str) -> Completions:
    """Return the plan files in the typed folder and its subfolders."""
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
    """Whether *path* is a plan file; a pipe is not, since opening it would block."""
    from kasmon.model.plan.parser import MARKS, is_plan

    try:
        if not (is_plan(path.name) and path.is_file()):
            return False
        with path.open(encoding="utf-8", errors="replace") as file:
            return MARKS.search(file.read(HEAD)) is not None
    except OSError:
        return False


def themes(where: Paths) -> Completions:
    """Return the built-in themes and the user's own."""
    shipped = Path(kasmon.__file__).with_name("themes")
    return {path.stem: "" for folder in (shipped, where.themes) for path in sorted(folder.glob("*.toml"))}


WITHOUT_WORD: Final[dict[str, Callable[[], Completions]]] = {
    each.__name__: each for each in (agents, machines, templates, tags, requests, settings)
}
"""The completers whose candidates depend on no other word."""
