"""Describe what a folder's own config would change, for the user who decides whether to trust it."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kasmon.config.folder_config import OF_WORKTREE, FolderConfig, overlay, tables
from kasmon.config.permission_bypass import is_bypassing
from kasmon.config.schema import Config, Profile, SandboxConfig, TemplateConfig, WorktreeConfig
from kasmon.errors import KasmonError

COUNTED: Final = frozenset({"default_agent", "agents", "templates", "worktree"})
ENDPOINT: Final = re.compile(r"URL|URI|HOST|ENDPOINT|PROXY|ADDR|SERVER|BASE", re.IGNORECASE)
"""A variable whose name matches may change which server the agent uses, and with whose key."""
COMMAND: Final = frozenset({"program", "flags", "acp"})


def describe_changes(config: Config, local: FolderConfig) -> tuple[str, ...]:
    """Return how sessions in that folder would differ from *config*, a sentence each.

    Raises:
        ConfigError: if the folder's config is invalid.
    """
    after = overlay(config, local)
    lines: list[str] = []
    if after.default_agent != config.default_agent:
        lines.append(f"Sessions without an agent start {after.default_agent!r}.")
    for name, profile in after.agents.items():
        lines += _of_profile(name, config.agents.get(name), profile)
    for name, template in after.templates.items():
        if template != config.templates.get(name):
            lines += _of_template(name, template, is_new=name not in config.templates)
    lines += _of_worktree(config.worktree, after.worktree)
    table = tables(local)
    worktree = table.get("worktree")
    passed_over = sorted(table.keys() - COUNTED)
    passed_over += (
        sorted(f"worktree.{key}" for key in worktree if key not in OF_WORKTREE) if isinstance(worktree, dict) else []
    )
    if passed_over:
        lines.append(f"It is ignored for {', '.join(passed_over)}: only your own config applies there.")
    return tuple(lines)


def _of_worktree(before: WorktreeConfig, after: WorktreeConfig) -> Iterator[str]:
    limit = f", for at most {after.setup_s:g} s"
    for field, what in (("setup", "A new worktree runs this command"), ("teardown", "Before it is removed, it runs")):
        if (command := getattr(after, field)) != getattr(before, field):
            yield f"{what}: {command or 'nothing'}{limit if command and field == 'setup' else ''}"
    for field, what in (("copy", "is copied"), ("link", "is linked")):
        if (names := getattr(after, field)) != getattr(before, field):
            yield f"From your checkout {what} into a new worktree: {', '.join(names) or 'nothing'}"


def defines(local: FolderConfig, name: str, table: str = "agents") -> bool:
    """Return whether the file has *name* in *table*, by default a profile; False if it cannot be parsed."""
    try:
        known = tables(local).get(table)
    except KasmonError:
        return False
    return isinstance(known, dict) and name in known


def _of_template(name: str, template: TemplateConfig, *, is_new: bool) -> Iterator[str]:
    yield f"{'A new template' if is_new else 'The template'} {name!r} starts {template.agent or 'the usual agent'!r}."
    usual = TemplateConfig()
    for field in template.__struct_fields__:
        if field != "agent" and (value := getattr(template, field)) != getattr(usual, field):
            yield f"The template {name!r}: {field} = {_as_json(value)}"


def _of_profile(name: str, existing: Profile | None, after: Profile) -> Iterator[str]:
    before = existing or Profile()
    if before == after:
        return
    changed = {field for field in after.__struct_fields__ if getattr(before, field) != getattr(after, field)}
    if changed & COMMAND or existing is None:
        what = f"The agent {name!r}" if existing is not None else f"A new agent {name!r}"
        yield f"{what} runs this command: {_command(after) or 'your login shell'}"
        if after.acp:
            yield f"{name!r} as a structured session gets extra arguments: {' '.join(after.acp)}"
        structured = after.acp if after.execution_mode == "sdk" else ()
        if is_bypassing((*_split_arguments(after), *structured)):
            yield f"{name!r} skips permission requests: it never asks."
    for variable, value in after.env.items():
        if before.env.get(variable) != value:
            endpoint_note = ", which can change which server it talks to and who gets its keys"
            yield f"{name!r} gets the variable {variable}={value}{endpoint_note * bool(ENDPOINT.search(variable))}."
    if "sandbox" in changed:
        own = f" (your own config: {before.sandbox!r})" if before.sandbox else ""
        yield (
            f"{name!r} runs in the sandbox {after.sandbox!r}{own}."
            if after.sandbox
            else f"{name!r} runs in NO sandbox; your own config uses {before.sandbox!r}."
        )
    yield from _of_sandbox(name, before.confined, after.confined)
    for field in sorted(changed - COMMAND - {"env", "sandbox", "confined"}):
        yield f"{name!r}: {field} = {_as_json(getattr(after, field))}"


def _of_sandbox(name: str, before: SandboxConfig, after: SandboxConfig) -> Iterator[str]:
    for field in after.__struct_fields__:
        value, previous = getattr(after, field), getattr(before, field)
        if value != previous:
            yield f"The sandbox of {name!r}: {field} = {_as_json(value)}(your own config: {_as_json(previous)})"
    for known in after.credentials:
        if known.command and known not in before.credentials:
            yield f"For {known.name}, this command runs on this machine without a sandbox: {shlex.join(known.command)}"


def _command(profile: Profile) -> str:
    return " ".join([shlex.quote(profile.program) if profile.program else "", *profile.flags]).strip()


def _split_arguments(profile: Profile) -> list[str]:
    try:
        return [profile.program, *(word for flag in profile.flags for word in shlex.split(flag))]
    except ValueError:
        return [profile.program, *profile.flags]


def _as_json(value: Any) -> str:
    import json  # only here: few folders have a config

    plain = msgspec.to_builtins(value)
    if isinstance(plain, list | tuple):
        plain = [_without_empty(item) if isinstance(item, Mapping) else item for item in plain]
    return json.dumps(plain, ensure_ascii=False)


def _without_empty(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value not in ("", [], (), None, False)}
