"""What the world of a real kasmon does when a person wants it; loaded by the first wish, as no frame needs it."""

import asyncio
import contextlib
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kasmon.config import Config
from kasmon.config.edit import put
from kasmon.errors import SessionNotFoundError
from kasmon.model.command import Answer, Configure, Interrupt, Mode, Prompt, Requeue, Stop
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Places
from kasmon.supervisor import verb
from kasmon.supervisor.local_config import for_session
from kasmon.tmux.clipboard import TAKE
from kasmon.tui.browser import opened
from kasmon.tui.look import RECEIPT_WORDS
from kasmon.tui.notify import Caller
from kasmon.tui.world import (
    Adopt,
    Call,
    Copy,
    Create,
    Export,
    Forget,
    ForkSandbox,
    KeepTheme,
    MoveTo,
    OpenLink,
    Rename,
    ReplaySandbox,
    Restart,
    Steer,
    TakeEdit,
    Tell,
    Wanted,
)

COPY_S: Final = 2.0
"""How long tmux may take to take a text, in seconds."""


class LiveWishes:
    """Carries wishes out over one kasmon's places; *config* and *fleet* say what they are now."""

    def __init__(self, places: Places, config: Callable[[], Config], fleet: Callable[[], Fleet]) -> None:
        self._places = places
        self._config = config
        self._fleet = fleet
        self._caller = Caller()

    async def carry_out(self, wanted: Wanted) -> str:
        """Do what is wanted; a sentence for the person, or nothing. See `World.wish`."""
        places = self._places
        match wanted:
            case Create(mode=Mode.INTERPRETER):
                from kasmon.tui import live_sandbox  # seldom wanted

                await live_sandbox.create(places, self._config(), wanted)
            case Create():
                new = verb.NewSession(
                    name=wanted.name,
                    agent=wanted.agent,
                    mode=wanted.mode,
                    workdir=wanted.workdir,
                    prompt=wanted.prompt,
                    sandbox=wanted.sandbox,
                    agrees=wanted.agrees,
                )
                await verb.create(places, await self._config_in(wanted.workdir, wanted.agent), new)
            case Restart():
                await verb.restart(places, self._session(wanted.session))
            case MoveTo():
                from kasmon.supervisor.move import move  # seldom wanted

                session = self._session(wanted.session)
                config = await self._config_in(session.workdir, session.agent)
                await move(places, config, session, wanted.to)
            case Rename():
                await verb.rename(places, self._session(wanted.session), wanted.name)
            case Forget():
                return await self._forget(self._session(wanted.session))
            case ForkSandbox():
                from kasmon.tui import live_sandbox

                return await live_sandbox.fork(places, self._session(wanted.session), wanted)
            case ReplaySandbox():
                from kasmon.tui import live_sandbox

                return await live_sandbox.replay(places, self._session(wanted.session), wanted)
            case KeepTheme():
                await asyncio.to_thread(put, places, "ui.theme", wanted.name)
            case Copy():
                await _to_tmux(wanted.text)
            case OpenLink():
                await opened(wanted.address)
            case Adopt():
                from kasmon.supervisor.adopt import adopt  # seldom wanted

                await adopt(places, wanted.pane, wanted.name)
            case Steer() | TakeEdit():
                await asyncio.to_thread(self._decide, wanted)
            case Export():
                return await asyncio.to_thread(self._export, self._session(wanted.session))
            case Call():
                await self._caller.call(wanted.alert, self._config().notify)
            case Tell():
                return await self._tell(wanted)
        return ""

    async def _config_in(self, folder: str, agent: str) -> Config:
        """The config as it is in force for a session of *agent* in *folder*."""
        return (await asyncio.to_thread(for_session, self._places, self._config(), folder, agent)).config

    async def _tell(self, wanted: Tell) -> str:
        session = self._session(wanted.session)
        match wanted.wish:
            case Prompt() as prompt:
                receipt = await verb.send(self._places, session, prompt.text, prompt.when, anyway=prompt.anyway)
                return (
                    f"{session.name}: {RECEIPT_WORDS[receipt.state]}{f'; {receipt.reason}' if receipt.reason else ''}"
                )
            case Answer() as answer:
                await verb.answer(self._places, session, answer)
            case Interrupt():
                await verb.interrupt(self._places, session)
            case Stop() as stop:
                await verb.stop(self._places, session, stop.grace_s)
            case Configure() as configure:
                await verb.configure(self._places, session, configure)
            case Requeue() as requeue:
                await verb.requeue(self._places, session, requeue)
            case wish:
                from kasmon.tui import live_sandbox

                return await live_sandbox.carried_out(self._places, session, wish)
        return ""

    async def _forget(self, session: Session) -> str:
        """A sentence for the person, where a copy of its folder stays."""
        if session.mode is not Mode.INTERPRETER:
            kept = await verb.forget(self._places, session)
        else:
            from kasmon.tui import live_sandbox

            kept = await live_sandbox.forget(self._places, session)
        return verb.copy_stays(kept) if kept else ""

    def _export(self, session: Session) -> str:
        from kasmon.supervisor.export import as_markdown, write_beside  # seldom wanted

        path = write_beside(Path.cwd(), session, as_markdown(self._places, session))
        return f"{session.name} is written to {path}."

    def _decide(self, wanted: Steer | TakeEdit) -> None:
        from kasmon.supervisor.plans import acts  # with all that reads plans

        if isinstance(wanted, TakeEdit):
            acts.take_edit(self._places, self._config(), wanted.plan, wanted.digest)
        else:
            deed = (wanted.plan, wanted.deed, wanted.task, wanted.agent)
            acts.steer(self._places, self._config(), self._fleet(), *deed)

    def _session(self, session: SessionId) -> Session:
        known = self._fleet().get(session)
        if known is None:
            raise SessionNotFoundError(session)
        return known


async def _to_tmux(text: str) -> None:
    """Make *text* the newest buffer of the tmux that this process runs in, and the clipboard of its terminal.

    tmux takes no clipboard from a program inside it unless it is told to; from its own command line it does.
    """
    if not os.environ.get("TMUX"):
        return
    with contextlib.suppress(OSError, TimeoutError):
        tmux = await asyncio.create_subprocess_exec(*TAKE, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
        try:
            await asyncio.wait_for(tmux.communicate(text.encode("utf-8", "replace")), COPY_S)
        finally:
            if tmux.returncode is None:
                tmux.kill()
