"""Feeds watcher sessions: follows the fleet, and sends what the rules of the config ask for, within their limits.

One process does it: it holds a lock, and ends when no other session runs.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.config import Config, load_or_default
from kasmon.config.schema import WatchRule
from kasmon.errors import KasmonError, LogMissingError, UsageError
from kasmon.host.journal.secrets import secrets_of
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.host.rpc.locked_process import begin_process, run_work
from kasmon.host.rpc.spawn import spawn_prompter
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE
from kasmon.model.watched_events import (
    MOST_EVENTS,
    WatchedEvent,
    WatchSent,
    build_prompt,
    find_events,
    is_ready,
    is_wanted,
    may_send,
)
from kasmon.paths import Paths, private_folder
from kasmon.sanitize import redact
from kasmon.store.event_log import EventLog
from kasmon.supervisor.finish.branch_operations import find_remote
from kasmon.supervisor.finish.pull_requests import find_pull_request
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import fleets
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.worktrees.branch_state import read_state
from kasmon.supervisor.worktrees.recognized_worktree import worktree_of

NEWS_S: Final = 0.5
"""The shortest time between two fleets, in seconds."""
LOOK_S: Final = 20.0
"""How often pull requests and the time are looked at, in seconds."""
KEPT: Final = 200
"""The most events that wait for one watcher; of more, the newest."""

log = logging.getLogger(__name__)


def start_feeder(paths: Paths) -> None:
    """Start the process if the config has rules and none runs. Blocks. Raises `OSError` if it cannot be started."""
    if load_or_default(paths).watch and lock_holder(paths.feeder_lock) is None:
        spawn_prompter(paths, "watch")


def main(argv: Sequence[str]) -> int:
    """Feed watchers until no other session runs; 0 also if another process does it."""
    if argv:
        return UsageError.exit_code
    paths = begin_process()

    def is_over() -> bool:
        return not is_feeder_needed(load_or_default(paths, log.warning), read_fleet(paths))

    return run_work(paths.watch, paths.feeder_lock, lambda: Feeder(paths).run(), is_over)


class Feeder:
    """Feeds the watchers of the config; the caller holds the lock, so that nothing is sent twice."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._before: Fleet | None = None
        self._waiting: dict[str, list[WatchedEvent]] = {}
        self._checks: dict[str, str] = {}
        """The last seen checks of each session's pull request."""
        self._looked_at = 0.0

    async def run(self) -> None:
        """Feed watchers until no other session runs."""
        async with fleets(self._paths, NEWS_S) as changes:
            upcoming = asyncio.ensure_future(anext(changes))
            try:
                while True:
                    await asyncio.wait([upcoming], timeout=LOOK_S)
                    if upcoming.done():
                        fleet = upcoming.result()
                        upcoming = asyncio.ensure_future(anext(changes))
                    else:
                        fleet = await asyncio.to_thread(read_fleet, self._paths)
                    config = await asyncio.to_thread(load_or_default, self._paths, log.warning)
                    if not is_feeder_needed(config, fleet):
                        return
                    await self.step(config, fleet, time.time())
            finally:
                await cancel_and_wait(upcoming)

    async def step(self, config: Config, fleet: Fleet, now: float) -> None:
        """Note what is new in *fleet*, and send what may be sent at *now*. The first call only notes the fleet."""
        names = [rule.session for rule in config.watch]
        events = find_events(self._before, fleet, names) if self._before is not None else []
        self._before = fleet
        if any("checks-failed" in rule.on for rule in config.watch):
            events += await self._find_failed_checks(fleet, names, now)
        for rule in config.watch:
            wanted = [event for event in events if is_wanted(event, rule.on, rule.tags)]
            waiting = self._waiting.setdefault(rule.session, [])
            known = {event.key for event in waiting}
            waiting += [event for event in wanted if event.key not in known]
            del waiting[:-KEPT]
        for rule in config.watch:
            if self._waiting[rule.session]:
                try:
                    await self._feed(config, rule, fleet, now)
                except (KasmonError, OSError) as error:
                    log.warning("the watcher %r was not fed: %s", rule.session, error)

    async def _feed(self, config: Config, rule: WatchRule, fleet: Fleet, now: float) -> None:
        """Send the waiting events to the watcher of *rule*, if it can take them and the limits of *rule* allow it."""
        sent = await asyncio.to_thread(read_sent, self._paths, rule.session)
        if not may_send(sent, rule.per_hour, rule.most, now):
            return
        watcher = next((each for each in fleet.here if each.name == rule.session), None)
        if watcher is not None and not is_ready(watcher):
            if watcher.exists or not rule.agent:
                return
            await session_operations.restart(self._paths, watcher)
        events, self._waiting[rule.session] = self._waiting[rule.session], []
        shown = [await asyncio.to_thread(self._without_secrets, event) for event in events[-MOST_EVENTS:]]
        prompt = build_prompt(rule.prompt, shown, len(events) - len(shown))
        if watcher is None:
            if not rule.agent:
                log.warning("there is no session %r to tell about %d events", rule.session, len(events))
                return
            new = NewSession(name=rule.session, agent=rule.agent, workdir=rule.folder or str(Path.home()))
            session = await session_operations.create(self._paths, config, new)
            watcher = next(
                each for each in (await asyncio.to_thread(read_fleet, self._paths)).sessions if each.id == session
            )
        fact = WatchSent(at=now, rule=rule.session, session=watcher.id, events=len(events))
        await asyncio.to_thread(_note, self._paths, fact)
        receipt = await session_operations.send(self._paths, watcher, prompt, "idle", "peer")
        log.info("told %s about %d events: %s", watcher.label, len(events), receipt.state)

    def _without_secrets(self, event: WatchedEvent) -> WatchedEvent:
        secrets = secrets_of(self._paths, event.session.id)
        return event._replace(text=redact(event.text, secrets)[0])

    async def _find_failed_checks(self, fleet: Fleet, names: Sequence[str], now: float) -> list[WatchedEvent]:
        """Return the pull requests whose checks have failed since the last look."""
        if 0 <= now - self._looked_at < LOOK_S:
            return []
        self._looked_at = now
        events = []
        for session in fleet.here:
            if session.name in names or session.worktree is None or session.state not in ALIVE:
                continue
            try:
                checks, text = await asyncio.to_thread(_read_checks, self._paths, session, now)
            except (KasmonError, OSError) as error:
                log.info("the pull request of %s cannot be read: %s", session.label, error)
                continue
            before, self._checks[session.id] = self._checks.get(session.id), checks
            if before is not None and checks.startswith("failed") and checks != before:
                events.append(WatchedEvent("checks-failed", session, f"checks {session.id} {checks}", text))
        return events


def is_feeder_needed(config: Config, fleet: Fleet) -> bool:
    """Whether the config has rules, and a session runs that is no watcher itself."""
    names = {rule.session for rule in config.watch}
    return bool(names) and any(each.state in ALIVE and each.name not in names for each in fleet.sessions)


def read_sent(paths: Paths, rule: str) -> list[WatchSent]:
    """Return the prompts that were sent for the watcher named *rule*. Blocks."""
    decoder = msgspec.json.Decoder(WatchSent)
    sent: list[WatchSent] = []
    with contextlib.suppress(LogMissingError):
        for line, _ in EventLog(paths.watch / "sent.jsonl").lines():
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                sent.append(decoder.decode(line))
    return [each for each in sent if each.rule == rule]


def _note(paths: Paths, fact: WatchSent) -> None:
    private_folder(paths.watch)
    EventLog(paths.watch / "sent.jsonl").append(fact, durable=True)


def _read_checks(paths: Paths, session: Session, now: float) -> tuple[str, str]:
    """Return the checks of the pull request of *session* with its commit, and the names of those that failed."""
    tree = worktree_of(session)
    if tree is None or not Path(tree.path).is_dir():
        return "", ""
    path, state = Path(tree.path), read_state(tree)
    request, _ = find_pull_request(paths, path, find_remote(path, state.base_ref), state.name, now)
    if request is None or request.state != "open":
        return "", ""
    return f"{request.checks} {request.head}", "\n".join((request.words, *request.failed))
