"""An agent in a pane and in a sandbox: what its pane runs, and where what it leaves for kasmon is found."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kasmon.backends.tmux.agent_identity import program_of
from kasmon.backends.tmux.evidence.hook_setup import hooked
from kasmon.backends.tmux.input.command_completion import can_be_asked
from kasmon.launch import base_environment
from kasmon.model.commands import Launch
from kasmon.paths import Paths


class AgentSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one agent's sandbox."""

    home: Path
    """What is its home folder inside."""
    notes: Path
    """What its hooks write."""
    argv: tuple[str, ...] = ()
    """What its pane runs."""


def wrapped(
    places: Paths, launch: Launch, nonce: str, around: Mapping[str, str], own: Mapping[str, str]
) -> AgentSandbox:
    """The agent of *launch* inside, with hooks that leave their notes there. Blocks.

    Args:
        places: where its session is kept.
        launch: what it is.
        nonce: by which its notes are known.
        around: the variables of whoever wants it.
        own: the agent's own variables.

    Raises:
        LaunchError: if it cannot be started there.
    """
    from kasmon.sandbox.agent import launch as sandboxed_agent  # only where there is a sandbox

    program = program_of(launch.argv, launch.agent)
    emit = sandboxed_agent.build_emit_command(places, launch.session)
    hooks = hooked(program, launch.argv, places.folder(launch.session), launch.generation, nonce, emit)
    variables = base_environment(dict(around)) | dict(own) | dict(hooks.variables)
    variables |= {"KASMON_GENERATION": str(launch.generation), "KASMON_NONCE": nonce, "COLORTERM": "truecolor"}
    if can_be_asked(launch.argv):
        variables.setdefault("HISTCONTROL", "ignorespace")
    made = sandboxed_agent.prepare_launch(places, launch, hooks.argv, variables, {**around, **own})
    return AgentSandbox(home=made.home, notes=made.notes, argv=made.command)


def known(places: Paths, launch: Launch) -> AgentSandbox | None:
    """What is known of the sandbox of an agent that runs already; None where it has none."""
    if launch.sandbox is None:
        return None
    from kasmon.sandbox.agent import launch as sandboxed_agent

    return AgentSandbox(
        home=sandboxed_agent.home_of(places, launch.session), notes=sandboxed_agent.notes_of(places, launch.session)
    )
