"""A kasmon that answers `kasmon task` commands with what a file says, to try what a hostile machine can do.

It runs as a program of its own, which imports no other module of the tests.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kasmon.__main__ import main
from kasmon.bus.local import LocalBus
from kasmon.supervisor.machines.link_client import CommandOutput


def build_command(honest: tuple[str, ...], lies: Path) -> tuple[str, ...]:
    """The command that runs the kasmon of the command *honest*, which lies as the file *lies* says."""
    return (*honest[: honest.index("-P")], str(Path(__file__)), str(lies))


def lie(lies: Path, command: str, reply: Mapping[str, Any], exit_code: int = 0) -> None:
    """From now on, `kasmon task` *command* prints *reply* there, and does nothing."""
    known = _read(lies)
    lies.write_text(json.dumps(known | {command: [json.dumps(reply), exit_code]}))


def be_silent(lies: Path, command: str) -> None:
    """From now on, `kasmon task` *command* never ends there."""
    lies.write_text(json.dumps(_read(lies) | {command: None}))


def _read(lies: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lies.read_text()) if lies.exists() else {}
    return found


class LyingBus(LocalBus):
    lies: Path

    async def run(self, arguments: Sequence[str], stdin: bytes = b"") -> CommandOutput:
        lies = _read(self.lies)
        if arguments[0] == "task" and arguments[1] in lies:
            if lies[arguments[1]] is None:
                await asyncio.Event().wait()
            text, exit_code = lies[arguments[1]]
            return CommandOutput(exit_code=exit_code, stdout=text.encode(), stderr=b"")
        return await super().run(arguments, stdin)


if __name__ == "__main__":
    import kasmon.cli.machines.bus as command

    LyingBus.lies = Path(sys.argv.pop(1))
    vars(command)["LocalBus"] = LyingBus
    sys.exit(main())
