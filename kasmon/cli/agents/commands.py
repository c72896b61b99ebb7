"""`kasmon agents`: list, show, test and add the agents that kasmon knows, as folders of data."""

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from kasmon.agents.catalog import PROFILE, AgentCatalog, AgentFolder, catalog
from kasmon.agents.profile import LARGEST, AgentProfile, check_name, parse
from kasmon.cli.agents.registry import list_registry
from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import note, print_json, say
from kasmon.cli.output.table import aligned
from kasmon.detection.recorded_screen import cases_by_state, compare, describe, propose_rule, recorded_screens
from kasmon.detection.rules.catalog import RuleCatalog
from kasmon.detection.rules.file import load as load_rules
from kasmon.errors import ConfigError, KasmonError, RefusedError, UnavailableError, UsageError
from kasmon.paths import private_folder, user_paths, write_private
from kasmon.sanitize import clean_line
from kasmon.toml_struct import read_text

AgentArgument = Annotated[str, Arg("Agent, by the name of its program.", ("NAME",), completer="agents")]
MOST_FILES: Final = 5000
MOST_BYTES: Final = 32 * 1024 * 1024
"""The most that an added folder may have."""
NAMES: Final = (PROFILE, "screen.txt", "title.txt", "expected.toml", "README.md")
"""The files of an agent's folder, beside `screen*.toml`."""


def list_all(
    *,
    from_registry: Annotated[bool, Arg("List the agents of the ACP registry instead.", ("--known",))] = False,
    wants_json: Json = False,
) -> None:
    """List the agents that kasmon has a folder of, whether each is installed, and where its folder is from."""
    if from_registry:
        list_registry(user_paths(), wants_json=wants_json)
        return
    agents = catalog(user_paths())
    found = [folder for name in agents.names() if (folder := next(agents.folders(name), None))]
    if wants_json:
        print_json(agents=[_object(folder, agents) for folder in found])
        return
    rows = [("AGENT", "TITLE", "INSTALLED", "TRIED", "FROM")]
    for folder in found:
        profile, problem = _profile(folder.name, agents)
        installed = "yes" if profile.login_shell or folder.name == "scripted" or shutil.which(folder.name) else "no"
        rows.append((folder.name, problem or profile.title, installed, profile.tried or "-", folder.origin))
    say(*aligned([tuple(str(clean_line(cell)) for cell in row) for row in rows]))


def show(name: AgentArgument, /, *, wants_json: Json = False) -> None:
    """Show what kasmon knows of an agent, and its recorded screens."""
    agents = catalog(user_paths())
    profile = agents.load(name)
    folder = next(agents.folders(name))
    if wants_json:
        print_json(agent=_object(folder, agents))
        return
    say(f"{name}: {clean_line(profile.title or name)} ({folder.path}, from {clean_line(folder.origin)})")
    say(*_lines(profile))
    recorded = list(recorded_screens(folder.path))
    states = ", ".join(f"{count} {clean_line(state)}" for state, count in cases_by_state(recorded).items())
    say(f"  recorded screens: {len(recorded)}" + (f" ({states})" if states else ""))


def compare_screens(name: AgentArgument, /, *, wants_json: Json = False) -> None:
    """Read the recorded screens of an agent by its rules; exit with 1 if one reads otherwise than expected.

    For each of those it proposes a rule.
    """
    where = user_paths()
    agents = catalog(where)
    agents.load(name)
    rules = RuleCatalog([where.config / "screens"], agents=agents)
    for folder in agents.folders(name):
        for file in sorted(folder.path.glob("screen*.toml")):
            load_rules(file)
    recorded = [each for folder in agents.folders(name) for each in recorded_screens(folder.path)]
    different = [(each, found) for each in recorded if (found := compare(name, each, rules))]
    if wants_json:
        print_json(agent=name, screens=len(recorded), differences=[found._asdict() for _, found in different])
    else:
        for screen, difference in different:
            say(str(clean_line(describe(difference))))
            if difference.key in ("state", "asking") and (proposal := propose_rule(screen, recorded)):
                say("", *(str(clean_line(row)) for row in proposal.split("\n")), "")
        say(f"{name}: {len(recorded) - len(different)} of {len(recorded)} recorded screens read as expected")
    if different:
        sys.exit(1)


def add(
    folder: Annotated[str, Arg("Folder of an agent; its name is the program's.", ("DIR",), completer="folders")],
    /,
    *,
    yes: Annotated[bool, Arg("Do not ask.", ("--yes",))] = False,
    wants_json: Json = False,
) -> None:
    """Check the folder of an agent, show what it sets, and copy it to the config folder. No file there is replaced."""
    from kasmon.supervisor.limits.agents import check_is_person  # only where something is changed

    where = user_paths()
    check_is_person(where, "add an agent, whose rules read requests")
    source = Path(folder).resolve()
    files = check_folder(source)
    target = where.agents / source.name
    if os.path.lexists(target):
        raise RefusedError(f"{str(target)!r} already exists.", hint="Remove it first, or give the folder another name.")
    profile = parse(read_text(source / PROFILE, LARGEST), source.name, str(source / PROFILE))
    if not wants_json:
        say(f"{source.name}: {clean_line(profile.title or source.name)}, {len(files)} files", *_lines(profile))
    if not yes:
        if wants_json or not sys.stdin.isatty():
            raise UsageError("kasmon asks before it adds an agent.", hint="Pass --yes.")
        if input(f"Copy it to {target}? [y/N] ").strip().lower() not in ("y", "yes"):
            say("Nothing was added.")
            return
    copy_folder(source, files, target)
    if wants_json:
        print_json(agent=_object(AgentFolder(target, "user"), catalog(where)))
    else:
        note(f"added to {str(target)!r}; `kasmon agents test {source.name}` reads its recorded screens.")


def check_folder(source: Path) -> list[Path]:
    """Return the files of the agent's folder *source*, relative to it, after all of them were checked.

    Raises:
        ConfigError: if a file is not valid.
        RefusedError: if the folder is too large, or has a link or a file that does not belong there.
    """
    check_name(source.name, str(source))
    if not source.is_dir():
        raise ConfigError(str(source), "it is no folder")
    files, size = [], 0
    for path, facts in _walk(source):
        inner = path.relative_to(source)
        is_rule = path.name.startswith("screen") and path.suffix == ".toml" and len(inner.parts) == 1
        if not stat.S_ISREG(facts.st_mode):
            raise RefusedError(f"{str(path)!r} is a link, or no file.", hint="Replace it with a file.")
        if not is_rule and path.name not in NAMES:
            raise RefusedError(f"{str(path)!r} does not belong in the folder of an agent.", hint="Remove it.")
        files.append(inner)
        size += facts.st_size
        if len(files) > MOST_FILES or size > MOST_BYTES:
            limits = f"{MOST_FILES} files or {MOST_BYTES // 2**20} MB"
            raise RefusedError(f"{str(source)!r} has more than {limits}.", hint="Remove recorded screens.")
        if is_rule:
            rules = load_rules(path)
            if source.name not in rules.programs:
                raise ConfigError(str(path), f"it is for {rules.file.program!r}, not {source.name!r}", key="program")
    for _ in recorded_screens(source):
        pass
    return files


def copy_folder(source: Path, files: list[Path], target: Path) -> None:
    """Copy *files* of *source* to *target*, which does not exist. Raises `UnavailableError` if that fails."""
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        private_folder(target.parent.parent)
        private_folder(target.parent)
        for file in files:
            (fresh / file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(source / file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as opened:
                write_private(fresh / file, opened.read(MOST_BYTES))
        fresh.rename(target)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise UnavailableError(f"cannot copy {str(source)!r} to {str(target)!r}: {error.strerror or error}.") from error


def _walk(folder: Path, depth: int = 0) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield what is in *folder* and in its folders, with its own facts: no link is followed."""
    for path in sorted(folder.iterdir()):
        facts = path.lstat()
        if stat.S_ISDIR(facts.st_mode) and depth < 2:
            yield from _walk(path, depth + 1)
        else:
            yield path, facts


def _profile(name: str, agents: AgentCatalog) -> tuple[AgentProfile, str]:
    try:
        return agents.load(name), ""
    except KasmonError as error:
        return AgentProfile(name=name), error.message


def _object(folder: AgentFolder, agents: AgentCatalog) -> dict[str, Any]:
    profile, problem = _profile(folder.name, agents)
    program = shutil.which(folder.name)
    return {
        "name": folder.name,
        "origin": folder.origin,
        "folder": str(folder.path),
        "program": program,
        "problem": problem or None,
        "profile": msgspec.to_builtins(profile),
    }


def _lines(profile: AgentProfile) -> list[str]:
    start, sandbox = profile.start, profile.sandbox
    asks = "" if (lines := start.bypass_without) is None else " or ".join(f"with {each}" for each in lines) or "never"
    parts = {
        "program": "your login shell" if profile.login_shell else profile.name,
        "other names": ", ".join(profile.also),
        "tried with": profile.tried,
        "ends a turn": profile.interrupt,
        "ACP": " ".join(start.acp),
        "always, in a terminal": " ".join(start.terminal),
        "model": start.model,
        "resumes by": " ".join(start.resume),
        "skips permissions with": ", ".join(start.bypass),
        "asks for permissions": asks,
        "variables it gets": ", ".join(profile.variables.own) + (", all providers'" * profile.variables.providers),
        "variables kasmon sets": ", ".join(f"{name}={value}" for name, value in profile.variables.structured.items()),
        "log-in": profile.log_in.how,
        "sandbox reaches": ", ".join(sandbox.hosts),
        "sandbox gets copies of": ", ".join(f"~/{file}" for file in (*sandbox.log_in_files, *sandbox.files)),
    }
    return [f"  {name}: {clean_line(text)}" for name, text in parts.items() if text]
