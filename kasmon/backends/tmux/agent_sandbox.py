"""An agent in a pane and in a sandbox: the command of its pane, and where its files for kasmon are."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kasmon.backends.common.environment import program_of
from kasmon.backends.tmux.evidence.hook_setup import hooked
from kasmon.backends.tmux.input.command_completion import supports_query
from kasmon.launch import base_environment
from kasmon.model.commands import Launch
from kasmon.paths import Paths


class AgentSandbox(msgspec.Struct, frozen=True, kw_only=True):
    home: Path
    """The host path of its home folder."""
    notes: Path
    """The file that its hooks write."""
    argv: tuple[str, ...] = ()
    """The command that its pane runs."""


def prepare_sandbox(
    paths: Paths, launch: Launch, nonce: str, base: Mapping[str, str], own: Mapping[str, str]
) -> AgentSandbox:
    """Prepare the sandbox of *launch*'s agent, with hooks that write their notes there. Blocks.

    Args:
        nonce: identifies its notes.
        base: the variables of the requesting process.
        own: the agent's own variables.

    Raises:
        LaunchError: if it cannot be started there.
    """
    from kasmon.sandbox.agent import launch as sandboxed_agent  # only needed with a sandbox

    program = program_of(launch.argv, launch.agent)
    emit = sandboxed_agent.build_emit_command(paths, launch.session)
    hooks = hooked(program, launch.argv, paths.folder(launch.session), launch.generation, nonce, emit)
    variables = base_environment(dict(base)) | dict(own) | dict(hooks.variables)
    variables |= {"KASMON_GENERATION": str(launch.generation), "KASMON_NONCE": nonce, "COLORTERM": "truecolor"}
    if supports_query(launch.argv):
        variables.setdefault("HISTCONTROL", "ignorespace")
    made = sandboxed_agent.prepare_launch(paths, launch, hooks.argv, variables, {**base, **own})
    return AgentSandbox(home=made.home, notes=made.notes, argv=made.command)


def find_sandbox(paths: Paths, launch: Launch) -> AgentSandbox | None:
    """Return the sandbox of an agent that already runs; None if it has none."""
    if launch.sandbox is None:
        return None
    from kasmon.sandbox.agent import launch as sandboxed_agent

    return AgentSandbox(
        home=sandboxed_agent.home_of(paths, launch.session), notes=sandboxed_agent.notes_of(paths, launch.session)
    )
