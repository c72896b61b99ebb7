"""Templates of new sessions: `[templates.NAME]` of the config, and of a folder's own config that the user trusts."""

from collections.abc import Iterable, Mapping

import msgspec

from kasmon.config import Config
from kasmon.config.agent_address import split
from kasmon.config.folder_config_text import defines
from kasmon.config.prompt_template import fill_prompt, prompt_fields
from kasmon.config.schema import TemplateConfig
from kasmon.errors import NotFoundError, RefusedError, UsageError
from kasmon.model.agent_program import is_interactive, program_name
from kasmon.model.commands import Mode
from kasmon.supervisor.limits.account import find_account
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.folder_config import FolderSettings


def find_template(settings: FolderSettings, name: str) -> TemplateConfig:
    """Return the template *name* as it applies in a folder; raise `NotFoundError` if there is none.

    Raises `RefusedError` if only the folder's own config defines it, and the user has not trusted that.
    """
    if name in settings.config.templates:
        return settings.config.templates[name]
    if settings.local is not None and not settings.counts and defines(settings.local, name, "templates"):
        raise RefusedError(f"the template {name!r} is defined only in a config that is ignored.", hint=settings.notice)
    known = ", ".join(sorted(settings.config.templates)) or "none"
    raise NotFoundError(
        f"there is no template {name!r}.", hint=f"Templates in the config, as [templates.NAME]: {known}."
    )


def with_template(new: NewSession, template: TemplateConfig) -> NewSession:
    """Return *new* with what it omits from *template*, except the machine and the prompt; tags are added."""
    in_folder = new.worktree is False
    is_placed = new.worktree is not None or new.base or new.branch
    return msgspec.structs.replace(
        new,
        agent=new.agent or ("" if new.account else template.agent),
        account=new.account or template.account,
        mode=new.mode or (Mode(template.mode) if template.mode else None),
        worktree=new.worktree if is_placed else template.worktree,
        base=new.base or ("" if in_folder or new.reuses_branch else template.base),
        sandbox=template.sandbox if new.sandbox is None else new.sandbox,
        tags=(*template.tags, *new.tags),
    )


def parse_fields(given: Iterable[str]) -> dict[str, str]:
    """Return the values of fields from words as `NAME=TEXT`. Raises `UsageError` if one is none, or given twice."""
    fields: dict[str, str] = {}
    for argument in given:
        name, is_given, text = argument.partition("=")
        if not is_given or not name:
            raise UsageError(f"{argument!r} is no value of a field.", hint="Pass --field NAME=TEXT.")
        if name in fields:
            raise UsageError(f"the field {name!r} is given twice.", hint="Give it once.")
        fields[name] = text
    return fields


def with_prompt(config: Config, new: NewSession, text: str, values: Mapping[str, str]) -> NewSession:
    """Return *new* with the prompt *text* of a template, and the *values* of its fields in it.

    Raises `UsageError` if a field has no value, or a value no field; `RefusedError` if it has fields, and its agent
    executes its input.
    """
    fields = prompt_fields(text)
    if unknown := [name for name in values if name not in fields]:
        known = ", ".join(fields) or "none"
        raise UsageError(f"the prompt has no field {unknown[0]!r}.", hint=f"Fields of the template: {known}.")
    prompt = fill_prompt(text, values)
    if fields and _executes_prompts(config, new):
        raise RefusedError(
            f"the prompt of the template has fields, and {new.agent or config.default_agent!r} executes its input.",
            hint="A field must not be a command. Use a template without fields, or another agent.",
        )
    return msgspec.structs.replace(new, prompt=prompt)


def _executes_prompts(config: Config, new: NewSession) -> bool:
    """Whether its program executes what is typed, as a shell does; a structured session never does."""
    if new.mode is Mode.SDK:
        return False
    name = new.agent or (find_account(config, new.account).agent if new.account else config.default_agent)
    name, _ = split(name)
    profile = config.agents.get(name)
    program = program_name([name if profile is None else profile.program])
    return not program or is_interactive(program)
