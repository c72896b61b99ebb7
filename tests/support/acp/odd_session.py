"""An odd agent on a stage: opened by the backend, listened to, and ended whatever happens."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kasmon.backends.acp import backend
from kasmon.backends.common.environment import encoded
from kasmon.config import Config
from kasmon.config.schema import Profile
from kasmon.model.commands import Launch, Mode
from kasmon.model.events import Event, MessageWritten, TurnEnded
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths, write_private
from tests.support.agents.backend_contract import LIMIT_S, Contract, Listener
from tests.support.wait import auntil

SESSION = SessionId("odd")
ODD = Path(__file__).parent / "odd_agents.py"


def give(**variables: str) -> None:
    """Write *variables* into the session's file, where its agent gets them from."""
    user_paths().folder(SESSION).mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(user_paths().environment(SESSION), encoded(variables))


def odd_config(name: str) -> Config:
    """A config whose only profile `odd` is the structured odd agent *name*."""
    return Config(agents={"odd": Profile(program=sys.executable, acp=("-P", str(ODD), name), execution_mode="sdk")})


def launch(name: str, workdir: Path, **more: Any) -> Launch:
    """How the odd agent *name* is started."""
    fields: dict[str, Any] = {
        "name": "odd",
        "agent": "odd",
        "mode": Mode.SDK,
        "backend": "acp",
        "argv": (sys.executable, "-P", str(ODD), name),
        "workdir": str(workdir),
        "handshake_s": LIMIT_S,
    }
    return Launch(session=SESSION, **(fields | more))


class OddSession(Contract):
    """Opens odd agents in one folder."""

    backend = backend

    def __init__(self, workdir: Path) -> None:
        self.workdir = workdir

    @asynccontextmanager
    async def agent(self, name: str, **more: Any) -> AsyncIterator[Listener]:
        async with self.opened(launch(name, self.workdir, **more)) as listener:
            yield listener

    async def turn(self, name: str, text: str = "go", **more: Any) -> Listener:
        """All that is heard of one turn of the odd agent *name*."""
        async with self.agent(name, **more) as listener:
            await listener.prompt(text)
            await listener.until_said(TurnEnded)
            return listener


async def messages(listener: Listener, count: int = 1) -> list[str]:
    """What the agent said, when it has said *count* messages."""

    def said() -> list[str]:
        return [fact.text for fact in listener.facts if isinstance(fact, MessageWritten)]

    return await auntil(lambda: said() if len(said()) >= count else None, LIMIT_S, f"{count} messages")


def only(listener: Listener, kind: type[Event]) -> list[Any]:
    return [fact for fact in listener.facts if isinstance(fact, kind)]
