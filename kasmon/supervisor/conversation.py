"""Which conversation an agent in a terminal has.

What is read here was measured with claude 2.1.330 and codex 0.169. Neither of them promises it,
so each answer is checked against the process it is about, and no answer is made up.
"""

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import psutil

from kasmon.backends.tmux.rollout import UUID, named

TELLING: Final = frozenset({"claude", "codex"})
"""Programs whose processes tell their conversation to whoever looks."""
BUSY: Final = frozenset({"busy", "waiting"})
"""What claude's registry says of a turn that runs, or waits for a person."""


class Conversation(NamedTuple):
    """What is known of the conversation in a terminal."""

    id: str
    is_busy: bool | None
    """Whether a turn runs; None where its agent does not tell."""


def conversation_of(program: str, pid: int) -> Conversation | None:
    """The conversation that the agent *program* has in process *pid*; None if it does not say. Blocks.

    Processes below it that have left its session are servers of others, too, and count for nothing.
    """
    with contextlib.suppress(psutil.Error, OSError):
        agent, its_session = psutil.Process(pid), os.getsid(pid)
        below = agent.children(recursive=True)
        family = [agent, *(process for process in below if os.getsid(process.pid) == its_session)]
        if program == "claude":
            found = [_registered(process.pid, process.environ()) for process in family]
        elif program == "codex":
            found = [_rolled_out([file.path for file in process.open_files()]) for process in family]
        else:
            return None
        return next((conversation for conversation in found if conversation is not None), None)
    return None


def _registered(pid: int, environment: dict[str, str]) -> Conversation | None:
    """What claude's registry says of process *pid*, which writes its entry and removes it when it ends cleanly."""
    home = environment.get("CLAUDE_CONFIG_DIR") or str(Path(environment.get("HOME", "/")) / ".claude")
    try:
        entry: dict[str, Any] = msgspec.json.decode((Path(home) / "sessions" / f"{pid}.json").read_bytes(), type=dict)
    except (OSError, msgspec.DecodeError):
        return None
    conversation, status = entry.get("sessionId"), entry.get("status")
    if entry.get("pid") != pid or not isinstance(conversation, str) or not re.fullmatch(UUID, conversation):
        return None
    return Conversation(conversation, None if status is None else status in BUSY)


def _rolled_out(paths: Sequence[str]) -> Conversation | None:
    found = {match[1] for path in paths if (match := named(path))}
    return Conversation(found.pop(), None) if len(found) == 1 else None
