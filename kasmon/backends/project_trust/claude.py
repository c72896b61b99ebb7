"""What Claude Code would run from a project, and where it stores whether its user trusts the project (2.1.332).

| of the project | from |
|---|---|
| hooks, helpers, variables, plugins | `.claude/settings.json` and `settings.local.json` of the folder itself |
| MCP servers | `.mcp.json` of the folder and of all its parents |
| shell in commands and skills, hooks of agents | `.claude` of the folder, and of its parents within the repository |

Trust is `projects[FOLDER].hasTrustDialogAccepted` in its config. It covers subfolders, up to the root of a repository;
that of a repository covers its worktrees. With `--setting-sources user` no project file is loaded.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kasmon.backends.common.transcripts import claude_folder
from kasmon.backends.project_trust import project_files

HARMLESS: Final = frozenset(
    {
        "$schema", "alwaysThinkingEnabled", "attribution", "cleanupPeriodDays", "includeCoAuthoredBy", "language",
        "model", "outputStyle", "respectGitignore",
    }
)  # fmt: skip
"""Settings keys that run nothing, open nothing and send nothing elsewhere; an unknown key may."""
PERMISSIONS: Final = frozenset({"deny", "ask", "disableBypassPermissionsMode"})
"""Keys of `permissions` that only forbid."""
HARMLESS_OF_TEXTS: Final = frozenset(
    {
        "argument-hint", "arguments", "author", "color", "compatibility", "description", "disable-model-invocation",
        "disallowedTools", "effort", "homepage", "keywords", "license", "maxTurns", "metadata", "model", "name",
        "repository", "tools", "user-invocable", "version", "when_to_use",
    }
)  # fmt: skip
"""Frontmatter keys of commands, skills and agents that run nothing and allow nothing; an unknown key may."""
KEY: Final = re.compile(r"([A-Za-z_-]+)[ \t]*:(?:[ \t]|$)")
SHELL: Final = re.compile(r"!`|```!")
"""Text that a command or a skill replaces with the output of a shell command."""
WITH_TEXTS: Final = {"commands": ".md", "skills": "skill.md", "agents": ".md"}
"""A folder -> how the names of its files end, in lower case. Other files of a skill run nothing."""


def find_untrusted(
    flags: Sequence[str], workdir: str, variables: Mapping[str, str]
) -> project_files.UntrustedProject | None:
    """Return why claude should not start in *workdir*; None if nothing could run or the user trusts the folder."""
    if _leaves_projects_out(flags):
        return None
    folder = Path(os.path.realpath(workdir))
    things = tuple(_things(folder, _own_folders(variables)))
    if not things or _is_trusted(folder, variables):
        return None
    root = _root(folder)
    key = str(folder if root is None else _main_repository(root) or root)
    return project_files.UntrustedProject(
        folder=str(folder),
        things=things,
        fix="Review that. To trust it, start `claude` there once in a terminal (`--mode tmux`) and say yes, or set "
        f"projects[{key!r}].hasTrustDialogAccepted to true in {str(config_file(variables))!r}; to start without it, "
        "put `--setting-sources user` into the profile's flags.",
    )


def config_file(variables: Mapping[str, str]) -> Path:
    """Return the config file in which claude stores its per-project state."""
    old = _own_folders(variables)[0] / ".config.json"
    if old.is_file():
        return old
    return Path(variables.get("CLAUDE_CONFIG_DIR") or variables.get("HOME", "/")) / ".claude.json"


def _leaves_projects_out(flags: Sequence[str]) -> bool:
    sources: str | None = None
    for number, flag in enumerate(flags):
        if flag == "--setting-sources":
            sources = "".join(flags[number + 1 : number + 2])
        elif flag.startswith("--setting-sources="):
            sources = flag.partition("=")[2]
    return sources is not None and {source.strip() for source in sources.split(",")} <= {"user", ""}


def _things(folder: Path, own: Sequence[Path]) -> Iterator[str]:
    """Yield all that could run in *folder*; the folders *own* hold the user's own settings, not a project's."""
    root = _root(folder)
    is_inside = True
    for place in project_files.upwards(folder):
        settings_folder = place / ".claude"
        is_own = os.path.realpath(settings_folder) in map(os.path.realpath, own)
        if is_inside and settings_folder.exists() and not is_own:
            shown = _display_path(settings_folder, folder)
            if place == folder:
                yield from _settings_things(settings_folder, shown)
            for kind, ending in WITH_TEXTS.items():
                yield from project_files.texts(settings_folder / kind, f"{shown}/{kind}", ending, _can_run)
        servers = place / ".mcp.json"
        if servers.exists():
            yield from project_files.settings(servers, _display_path(servers, folder), ())
        is_inside = is_inside and place != root


def _settings_things(folder: Path, shown: str) -> Iterator[str]:
    for name in ("settings.json", "settings.local.json"):
        path = folder / name
        permitted = {
            key for key, value in project_files.entries(project_files.table(path), "permissions").items() if value
        }
        only_forbids = permitted <= PERMISSIONS
        yield from project_files.settings(
            path, f"{shown}/{name}", HARMLESS | {"permissions"} if only_forbids else HARMLESS
        )


def _can_run(text: str) -> bool:
    """Whether a command, skill or agent with *text* could run something without asking the user.

    Claude reads the frontmatter as YAML, in which one key has many forms. So each line counts that is not certainly a
    harmless key, or below one.
    """
    if SHELL.search(text):
        return True
    text = text.lstrip("\ufeff")
    frontmatter = text[3:].split("---", 1)[0] if text.startswith("---") else ""
    is_below = False
    for line in frontmatter.splitlines():
        if not line.strip() or line.startswith("#") or (is_below and line.startswith((" ", "\t", "- "))):
            continue
        key = KEY.match(line)
        if key is None or key[1] not in HARMLESS_OF_TEXTS:
            return True
        is_below = True
    return False


def _is_trusted(folder: Path, variables: Mapping[str, str]) -> bool:
    if variables.get("CLAUDE_CODE_IGNORE_PERSISTED_TRUST"):
        return False
    if variables.get("CLAUDE_CODE_SANDBOXED"):
        return True
    projects = project_files.entries(project_files.table(config_file(variables)), "projects")
    root = _root(folder)
    paths = list(project_files.upwards(folder))
    paths = paths if root is None else [*paths[: paths.index(root) + 1], _main_repository(root) or root]
    return any(project_files.entries(projects, str(place)).get("hasTrustDialogAccepted") is True for place in paths)


def _root(folder: Path) -> Path | None:
    return next((place for place in project_files.upwards(folder) if (place / ".git").exists()), None)


def _main_repository(root: Path) -> Path | None:
    """Return the repository whose worktree *root* is, if both link to each other; None if it is no worktree."""
    link = root / ".git"
    link_text = (project_files.text_of(link) or "").strip() if link.is_file() else ""
    if not link_text.startswith("gitdir:"):
        return None
    kept = Path(os.path.realpath(root / link_text.removeprefix("gitdir:").strip()))
    back = (project_files.text_of(kept / "gitdir") or "").strip()
    common = (project_files.text_of(kept / "commondir") or "").strip()
    if not back or not common or os.path.realpath(kept / back) != os.path.realpath(link):
        return None
    shared = Path(os.path.realpath(kept / common))
    return shared.parent if shared.name == ".git" else shared


def _own_folders(variables: Mapping[str, str]) -> tuple[Path, Path]:
    return claude_folder(variables), Path(variables.get("HOME", "/")) / ".claude"


def _display_path(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
