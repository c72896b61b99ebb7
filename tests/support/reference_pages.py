"""The reference tables in `docs/`: `make pages` writes them from the key table, the config schema and the commands.

It also writes the help and the parameters of commands that `kasmon/cli/` reads instead of loading each command, and the
profiles of agents that `kasmon/agents/` reads instead of the file of each.
"""

import io
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from cyclopts import App
from rich.console import Console

from kasmon.agents.catalog import PROFILE, PROFILES, SHIPPED
from kasmon.agents.profile import NAME
from kasmon.cli.app import UNWRAPPED, build
from kasmon.cli.arguments import CommandParameter, signature_of
from kasmon.cli.commands import COMMANDS, load
from kasmon.cli.completion import PARAMETERS, CommandSummary, ParameterSummary
from kasmon.config.explain import explain
from kasmon.config.schema import AccountConfig, Config, NotifyTarget, Profile, SandboxConfig, TemplateConfig
from kasmon.paths import Paths, user_paths
from kasmon.tui.action import KeyContext
from kasmon.tui.keymap import ACTIONS, KeyMap

DOCS: Final = Path(__file__).parents[2] / "docs"
HELP_FILE: Final = DOCS.parent / "kasmon" / "cli" / "help.txt"


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table; a `|` in a cell is escaped."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def code(text: str) -> str:
    """*text* as inline code, also where it contains a backtick."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def key_tables() -> str:
    """One table for each place in the dashboard."""
    keys, parts = KeyMap(), []
    for place in KeyContext:
        rows = (
            (
                " ".join(map(code, keys.all_shown(action.id).split())) or "palette only",
                code(action.id),
                action.label,
                action.help,
            )
            for action in ACTIONS
            if action.where is place
        )
        heading = f"{place.value[0].upper()}{place.value[1:]}"
        parts.append(f"## {heading}\n\n{table(('key', 'id', 'label', 'action'), rows)}")
    return "\n".join(parts)


def command_tables() -> str:
    """All commands, then those of each group of commands."""
    app = build()
    parts = [table(("command", "what it does"), command_rows(app, "kasmon"))]
    for prefix, group in command_groups(app, "kasmon"):
        parts.append(f"### {prefix}\n\n{table(('command', 'what it does'), command_rows(group, prefix))}")
    return "\n".join(parts)


def command_groups(app: App, prefix: str) -> Iterator[tuple[str, App]]:
    """Every command of *app* that has commands of its own, at any depth."""
    for name in sorted(name for name in app if not name.startswith("-")):
        if any(not inner.startswith("-") for inner in app[name]):
            yield f"{prefix} {name}", app[name]
            yield from command_groups(app[name], f"{prefix} {name}")


def command_rows(group: App, prefix: str) -> list[tuple[str, str]]:
    """The commands of *group* with the first sentence of their help, in alphabetical order."""
    names = sorted(name for name in group if not name.startswith("-"))
    return [(code(f"{prefix} {name}"), " ".join(group[name].help.strip().split("\n\n")[0].split())) for name in names]


def setting_tables() -> str:
    """A table for each table of the config; of profiles and sandboxes one that holds for all of them."""
    with tempfile.TemporaryDirectory() as empty:
        where = msgspec.structs.replace(user_paths(), config=Path(empty))
        single = [field.name for field in msgspec.structs.fields(Config) if not is_table(getattr(Config(), field.name))]
        parts = [setting_table("Top level", where, single, "")]
        for field in msgspec.structs.fields(Config):
            if isinstance(value := getattr(Config(), field.name), msgspec.Struct):
                names = [inner.name for inner in msgspec.structs.fields(type(value))]
                parts.append(setting_table(f"[{field.name}]", where, names, f"{field.name}."))
        names = [inner.name for inner in msgspec.structs.fields(Profile) if inner.name != "confined"]
        parts.append(setting_table("[agents.NAME]", where, names, "agents.new-profile."))
        names = [inner.name for inner in msgspec.structs.fields(AccountConfig)]
        parts.append(setting_table("[accounts.NAME]", where, names, "accounts.new-account."))
        names = [inner.name for inner in msgspec.structs.fields(TemplateConfig)]
        parts.append(setting_table("[templates.NAME]", where, names, "templates.new-template."))
        names = [inner.name for inner in msgspec.structs.fields(NotifyTarget)]
        parts.append(setting_table("[notify.targets.NAME]", where, names, "notify.targets.new-target."))
    confined = ", ".join(code(inner.name) for inner in msgspec.structs.fields(SandboxConfig))
    parts.append(
        f"### [agents.NAME.confined]\n\nThe same settings as `[sandbox]`, for the sandbox of this agent: {confined}.\n"
    )
    return "\n".join(parts)


def is_table(value: Any) -> bool:
    return isinstance(value, msgspec.Struct | dict)


def setting_table(heading: str, where: Paths, names: Iterable[str], prefix: str) -> str:
    """The settings called *prefix* and one of *names*, with default, possible values and meaning."""
    rows = []
    for name in names:
        setting = explain(where, prefix + name)
        allowed = ", ".join(code(value) for value in setting.allowed if value) if setting.allowed else ""
        rows.append((code(name), default_of(name, setting.default), allowed, setting.sentence))
    return f"### {heading}\n\n{table(('key', 'default', 'values', 'meaning'), rows)}"


def default_of(name: str, value: Any) -> str:
    """The default of a setting as JSON; a table for each known agent is described instead."""
    if name == "agents":
        return "the agents that kasmon knows: `kasmon agents ls`"
    return code(msgspec.json.encode(value).decode())


TABLES: Final[dict[str, Callable[[], str]]] = {
    "keys": key_tables,
    "commands": command_tables,
    "settings": setting_tables,
}
"""The name in a page's marker -> what is written below it."""
MARKED: Final = re.compile(r"(<!-- (\w+): written by `make pages` -->\n).*?(<!-- end -->)", re.DOTALL)


def written(page: str) -> str:
    """*page* with its marked parts as they are now."""
    return MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", page)


def command_help() -> str:
    """What `kasmon --help` prints, not wrapped."""
    text = io.StringIO()
    build().help_print([], console=Console(file=text, width=UNWRAPPED))
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def command_parameters() -> str:
    """The JSON from which the completion of a word knows the parameters of each command."""
    return (
        msgspec.json.format(msgspec.json.encode({name: _summary(name) for name in COMMANDS}), indent=1).decode() + "\n"
    )


def _summary(name: str) -> CommandSummary:
    signature = signature_of(load(COMMANDS[name]))
    return CommandSummary(
        words=tuple(map(_parameter, signature.words)),
        rest=None if signature.rest is None else _parameter(signature.rest),
        options={flag: _parameter(each) for flag, each in signature.options.items()},
    )


def _parameter(each: CommandParameter) -> ParameterSummary:
    return ParameterSummary(each.name, each.type is bool, each.arg.hyphen, each.arg.completer)


def agent_profiles(place: Path = SHIPPED) -> str:
    """The JSON with the profile of each agent in *place*; an empty one for a folder without."""
    files = sorted(path / PROFILE for path in place.iterdir() if NAME.fullmatch(path.name) and path.is_dir())
    profiles = {file.parent.name: tomllib.loads(file.read_text("utf-8")) if file.exists() else {} for file in files}
    return msgspec.json.format(msgspec.json.encode(profiles), indent=1).decode() + "\n"


def main() -> None:
    """Write all of them."""
    PROFILES.write_text(agent_profiles(), "utf-8")
    HELP_FILE.write_text(command_help(), "utf-8")
    PARAMETERS.write_text(command_parameters(), "utf-8")
    for path in sorted(DOCS.glob("*.md")):
        before = path.read_text("utf-8")
        if (after := written(before)) != before:
            path.write_text(after, "utf-8")
            print(f"docs/{path.name}")


if __name__ == "__main__":
    main()
