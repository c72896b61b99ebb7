"""Which conversation an agent in a terminal has.

What is read here was measured with claude 2.1.330 and codex 0.169. Neither of them promises it,
so each answer is checked against the process it is about, and no answer is made up.
"""

import contextlib
import os
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import psutil

from kasmon.backends.tmux.rollout import UUID, rollout

TELLING: Final = frozenset({"claude", "codex"})
"""Programs whose processes tell their conversation to whoever looks."""
BUSY: Final = frozenset({"busy", "waiting"})
"""What claude's registry says of a turn that runs, or waits for a person."""


class Conversation(NamedTuple):
    """What is known of the conversation in a terminal."""

    id: str
    is_busy: bool | None
    """Whether a turn runs; None where its agent does not tell."""


def conversation_of(program: str, pid: int, home: Path | None = None) -> Conversation | None:
    """The conversation that the agent *program* has in process *pid*; None if it does not say. Blocks.

    Processes below it that have left its session are servers of others, too, and count for nothing. *home*: of one in a
    sandbox, the folder of this machine that is its home there.
    """
    with contextlib.suppress(psutil.Error, OSError):
        agent, its_session = psutil.Process(pid), os.getsid(pid)
        below = agent.children(recursive=True)
        family = [agent, *(process for process in below if os.getsid(process.pid) == its_session)]
        if program == "claude":
            found = [_registered(*_registry(process, home)) for process in family]
        elif program == "codex":
            found = [_rolled_out(process.pid) for process in family]
        else:
            return None
        return next((conversation for conversation in found if conversation is not None), None)
    return None


def _registry(process: psutil.Process, home: Path | None) -> tuple[int, Path]:
    """The id that *process* has for itself, and the folder where it writes what claude's registry says of it."""
    if home is not None:
        from kasmon.sandbox.jail.process import name_inside  # only where there is a sandbox

        return int(name_inside(process.pid) or 0), home / ".claude"
    environment = process.environ()
    own = environment.get("CLAUDE_CONFIG_DIR")
    return process.pid, Path(own) if own else Path(environment.get("HOME", "/")) / ".claude"


def _registered(pid: int, folder: Path) -> Conversation | None:
    """What claude's registry says of process *pid*, which writes its entry and removes it when it ends cleanly."""
    try:
        entry: dict[str, Any] = msgspec.json.decode((folder / "sessions" / f"{pid}.json").read_bytes(), type=dict)
    except (OSError, msgspec.DecodeError):
        return None
    conversation, status = entry.get("sessionId"), entry.get("status")
    if entry.get("pid") != pid or not isinstance(conversation, str) or not re.fullmatch(UUID, conversation):
        return None
    return Conversation(conversation, None if status is None else status in BUSY)


def _rolled_out(pid: int) -> Conversation | None:
    found = rollout([pid])
    return Conversation(found, None) if found else None
