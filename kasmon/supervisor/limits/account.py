"""The accounts of the config: the variables of a session that uses one, and the conversation that moves to another.

An account's secret is read from the starter's environment and stored in the session's own file for variables, 0600.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kasmon.agents.catalog import find
from kasmon.backends.common.environment import program_of
from kasmon.config import Config
from kasmon.config.schema import AccountConfig
from kasmon.errors import NotFoundError, RefusedError, UnableError, UnavailableError, UsageError
from kasmon.model.commands import Launch
from kasmon.paths import expanded, write_private

CALLERS = "$"
"""A value in an account's `env` that begins with this names a variable of the process that starts the session."""


class AccountVariables(msgspec.Struct, frozen=True, kw_only=True):
    """The variables that make a session use an account."""

    own: dict[str, str]
    public: frozenset[str]
    """The names of those whose values are not secret."""
    directory: Path | None
    """The agent's config directory; None for its usual one."""


def find_account(config: Config, name: str) -> AccountConfig:
    """Return the account *name* of the config.

    Raises:
        NotFoundError: if there is none.
        UsageError: if it names no agent.
    """
    if name not in config.accounts:
        known = ", ".join(sorted(config.accounts)) or "none"
        raise NotFoundError(
            f"there is no account {name!r}.", hint=f"Accounts in the config, as [accounts.NAME]: {known}."
        )
    if not config.accounts[name].agent:
        raise UsageError(f"the account {name!r} names no agent.", hint=f"Set [accounts.{name}] agent in the config.")
    return config.accounts[name]


def account_variables(
    config: Config, name: str, agent: str, program: str, variables: Mapping[str, str]
) -> AccountVariables:
    """Return the variables of the account *name* for a session of the profile *agent*, which runs *program*.

    *variables*: the environment of the process that starts the session.

    Raises:
        NotFoundError: if there is no such account.
        UsageError: if it is another agent's, or a variable that it names is not set.
        UnableError: if the program has no variable for its config directory.
        RefusedError: if its config directory does not exist.
    """
    account = find_account(config, name)
    its_profile = config.agents.get(account.agent)
    its_program = program_of((its_profile.program,), account.agent) if its_profile is not None else ""
    if its_program != program:
        raise UsageError(
            f"the account {name!r} is one of {account.agent!r}, and {agent!r} runs {program!r}.",
            hint=f"Start {account.agent!r}, or choose another account.",
        )
    own: dict[str, str] = {}
    for variable, value in account.env.items():
        if value.startswith(CALLERS):
            if value[1:] not in variables:
                raise UsageError(
                    f"the environment variable {value[1:]!r} of the account {name!r} is not set.", hint="Set it."
                )
            value = variables[value[1:]]
        own[variable] = value
    if not account.directory:
        return AccountVariables(own=own, public=frozenset(), directory=None)
    variable = find(program).variables.config_folder
    if not variable:
        raise UnableError(
            f"{program!r} has no known variable for its config directory.",
            hint=f"Set the variables of the account: [accounts.{name}.env].",
        )
    directory = expanded(account.directory).absolute()
    if not directory.is_dir():
        raise RefusedError(
            f"the config directory {str(directory)!r} of the account {name!r} does not exist.",
            hint=f"Create it, and log in there: {variable}={directory} {program}",
        )
    own[variable] = str(directory)
    return AccountVariables(own=own, public=frozenset({variable}), directory=directory)


def remove_account(config: Config, launch: Launch, own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables *own* of the session of *launch* without those of its account."""
    account = config.accounts.get(launch.account)
    names = {find(program_of(launch.argv, launch.agent)).variables.config_folder}
    names |= account.env.keys() if account is not None else set()
    return {name: value for name, value in own.items() if name not in names}


def copy_conversation(program: str, conversation: str, source: Path, target: Path) -> None:
    """Copy the file of *conversation* from the config directory *source* to *target*; the original stays.

    An older copy there, from an earlier move, is replaced: the original begins with it. Blocks.

    Raises:
        UnableError: if it is unknown where *program* keeps conversations, or the file is not found.
        RefusedError: if another conversation with its name is there.
        UnavailableError: if it cannot be copied.
    """
    if source.resolve() == target.resolve():
        return
    file = _conversation_file(program, conversation, source)
    if file is None:
        raise UnableError(
            f"the conversation {conversation!r} of {program!r} is not in {str(source)!r}, so it cannot be moved."
        )
    copy = target / file.relative_to(source)
    try:
        if copy.exists() and not _begins_with(file, copy):
            raise RefusedError(
                f"{str(copy)!r} has another continuation of the conversation {conversation!r}.",
                hint="Remove it there if it is not needed.",
            )
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(copy, file.read_bytes())
    except OSError as error:
        raise UnavailableError(f"cannot copy {str(file)!r} to {str(copy)!r}: {error.strerror or error}.") from error


def _conversation_file(program: str, conversation: str, folder: Path) -> Path | None:
    if program == "claude":
        from kasmon.backends.common.transcripts import claude_transcript  # only here: it loads json

        return claude_transcript(folder, conversation)
    if program == "codex" and conversation and "/" not in conversation:
        found = sorted(folder.glob(f"sessions/*/*/*/rollout-*-{conversation}.jsonl"))
        return found[-1] if found else None
    return None


def _begins_with(file: Path, start: Path) -> bool:
    with file.open("rb") as whole, start.open("rb") as beginning:
        while block := beginning.read(1 << 20):
            if whole.read(len(block)) != block:
                return False
    return True
