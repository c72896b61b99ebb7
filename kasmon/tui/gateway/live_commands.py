"""Executes commands for `LiveGateway`; imported by the first command, as no frame needs it."""

import asyncio
import contextlib
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from kasmon.config import Config
from kasmon.config.edit import put
from kasmon.errors import SessionNotFoundError
from kasmon.model.commands import Answer, Configure, Continue, Interrupt, Mode, Prompt, Requeue, Stop
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths, write_private
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.folder_config import for_session
from kasmon.tmux.user_client import COPY_STDIN
from kasmon.tui.gateway.browser import open_address
from kasmon.tui.gateway.notification_delivery import NotificationDelivery
from kasmon.tui.gateway.protocol import (
    AdoptPane,
    ApplyPlanEdit,
    CopyText,
    CreateSession,
    DecideOnPlan,
    ExportSession,
    ForkSandbox,
    KeepSplit,
    KeepTheme,
    MarkViewed,
    MoveSession,
    NotifyPerson,
    OpenLink,
    RemoveSession,
    RenameSession,
    ReplaySandbox,
    RestartSession,
    SendToAgent,
    Split,
    UserCommand,
)
from kasmon.tui.theme.look import RECEIPT_WORDS

COPY_S: Final = 2.0
"""How long tmux may take to accept a text, in seconds."""


class LiveCommands:
    """Executes commands over the folders of one kasmon; *config* and *fleet* return the current ones."""

    def __init__(self, places: Paths, config: Callable[[], Config], fleet: Callable[[], Fleet]) -> None:
        self._places = places
        self._config = config
        self._fleet = fleet
        self._delivery = NotificationDelivery()

    async def execute(self, wanted: UserCommand) -> str:
        """Execute *wanted*; return a sentence for the user, or an empty string. See `Gateway.execute`."""
        places = self._places
        match wanted:
            case CreateSession(mode=Mode.INTERPRETER):
                from kasmon.tui.gateway import live_sandbox  # rarely needed

                await live_sandbox.create(places, self._config(), wanted)
            case CreateSession():
                new = NewSession(
                    name=wanted.name,
                    agent=wanted.agent,
                    mode=wanted.mode,
                    workdir=wanted.workdir,
                    prompt=wanted.prompt,
                    sandbox=wanted.sandbox,
                    agrees=wanted.agrees,
                )
                await session_operations.create(places, await self._config_in(wanted.workdir, wanted.agent), new)
            case RestartSession():
                await session_operations.restart(places, self._session(wanted.session))
            case MoveSession():
                from kasmon.supervisor.sessions.move import move  # rarely needed

                session = self._session(wanted.session)
                config = await self._config_in(session.workdir, session.agent)
                await move(places, config, session, wanted.to, changes_permissions=wanted.changes_permissions)
            case RenameSession():
                await session_operations.rename(places, self._session(wanted.session), wanted.name)
            case MarkViewed():
                await session_operations.mark_viewed(places, self._session(wanted.session))
            case RemoveSession():
                return await self._forget(self._session(wanted.session))
            case ForkSandbox():
                from kasmon.tui.gateway import live_sandbox

                return await live_sandbox.fork(places, self._session(wanted.session), wanted)
            case ReplaySandbox():
                from kasmon.tui.gateway import live_sandbox

                return await live_sandbox.replay(places, self._session(wanted.session), wanted)
            case KeepTheme():
                await asyncio.to_thread(put, places, "ui.theme", wanted.name)
            case KeepSplit():
                await asyncio.to_thread(self._store_split, wanted.split)
            case CopyText():
                await _copy_to_tmux(wanted.text)
            case OpenLink():
                await open_address(wanted.address)
            case AdoptPane():
                from kasmon.supervisor.sessions.adopt import adopt  # rarely needed

                await adopt(places, wanted.pane, wanted.name)
            case DecideOnPlan() | ApplyPlanEdit():
                await asyncio.to_thread(self._decide, wanted)
            case ExportSession():
                return await asyncio.to_thread(self._export, self._session(wanted.session))
            case NotifyPerson():
                await self._delivery.call(wanted.alert, self._config().notify)
            case SendToAgent():
                return await self._send(wanted)
        return ""

    def _store_split(self, split: Split) -> None:
        self._places.make()
        write_private(self._places.split, msgspec.json.encode(split))

    async def _config_in(self, folder: str, agent: str) -> Config:
        return (await asyncio.to_thread(for_session, self._places, self._config(), folder, agent)).config

    async def _send(self, wanted: SendToAgent) -> str:
        session = self._session(wanted.session)
        match wanted.command:
            case Prompt() as prompt:
                receipt = await session_operations.send(
                    self._places, session, prompt.text, prompt.when, anyway=prompt.anyway
                )
                return (
                    f"{session.name}: {RECEIPT_WORDS[receipt.state]}{f' ({receipt.reason})' if receipt.reason else ''}"
                )
            case Answer() as answer:
                await session_operations.answer(self._places, session, answer)
            case Interrupt():
                await session_operations.interrupt(self._places, session)
            case Continue():
                await session_operations.continue_stopped(self._places, session)
            case Stop() as stop:
                await session_operations.stop(self._places, session, stop.grace_s)
            case Configure() as configure:
                await session_operations.configure(self._places, session, configure)
            case Requeue() as requeue:
                await session_operations.requeue(self._places, session, requeue)
            case command:
                from kasmon.tui.gateway import live_sandbox

                return await live_sandbox.execute(self._places, session, command)
        return ""

    async def _forget(self, session: Session) -> str:
        """Remove *session*; return a sentence for the user if a copy of its folder remains."""
        if session.mode is not Mode.INTERPRETER:
            kept = await session_operations.forget(self._places, session)
        else:
            from kasmon.tui.gateway import live_sandbox

            kept = await live_sandbox.forget(self._places, session)
        return session_operations.copy_stays(kept) if kept else ""

    def _export(self, session: Session) -> str:
        from kasmon.supervisor.sessions.export import as_markdown, write_beside  # rarely needed

        path = write_beside(Path.cwd(), session, as_markdown(self._places, session))
        return f"Exported {session.name} to {path}."

    def _decide(self, wanted: DecideOnPlan | ApplyPlanEdit) -> None:
        from kasmon.supervisor.plans import decisions  # imports all plan modules

        if isinstance(wanted, ApplyPlanEdit):
            decisions.take_edit(self._places, self._config(), wanted.plan, wanted.digest)
        else:
            decision = (wanted.plan, wanted.decision, wanted.task, wanted.agent)
            decisions.record_decision(self._places, self._config(), self._fleet(), *decision)

    def _session(self, session: SessionId) -> Session:
        known = self._fleet().get(session)
        if known is None:
            raise SessionNotFoundError(session)
        return known


async def _copy_to_tmux(text: str) -> None:
    """Make *text* the newest buffer of the tmux that this process runs in, and the clipboard of its terminal.

    By default tmux ignores clipboard sequences of a program inside it, but not its own command line.
    """
    if not os.environ.get("TMUX"):
        return
    with contextlib.suppress(OSError, TimeoutError):
        tmux = await asyncio.create_subprocess_exec(*COPY_STDIN, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
        try:
            async with asyncio.timeout(COPY_S):
                await tmux.communicate(text.encode("utf-8", "replace"))
        finally:
            if tmux.returncode is None:
                tmux.kill()
