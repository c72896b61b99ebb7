"""The process that pushes notifications: it follows the fleet, and sends what `push_schedule` says.

It holds `notifier.lock`, so each message is sent by one process, however many dashboards are open. The dashboard and
each start of a session start it where the config has targets (`start_notifier`). It ends when no session runs any more.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon import __version__
from kasmon.asyncio_tasks import TaskSet, cancel_and_wait, wait_within
from kasmon.backends.common.agent_version import numbers
from kasmon.config import Config, load
from kasmon.config.schema import NotifyTarget
from kasmon.errors import ConfigError, KasmonError, UnavailableError
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.host.rpc.locked_process import begin_process, run_work
from kasmon.model.fleet import Fleet, difference
from kasmon.model.permission import Request
from kasmon.model.session_state import ALIVE
from kasmon.paths import Paths, private_folder, read_json, read_stamp, write_private
from kasmon.store.push_subscriptions import PushSubscription, PushSubscriptions
from kasmon.supervisor.fleet.watch import FleetWatch
from kasmon.supervisor.notifications import presence, push_sender
from kasmon.supervisor.notifications.alerts import machine_alert, plan_alert
from kasmon.supervisor.notifications.push_schedule import GATHER_S, Push, PushSchedule, SentRecord
from kasmon.supervisor.notifications.push_sender import PushReceipt
from kasmon.supervisor.request_links import link_of

if TYPE_CHECKING:
    from kasmon.supervisor.plans.boards import PlanBoard, PlanBoards

TICK_S: Final = 1.0
"""How often time, presence and the config are checked, in seconds."""
LOCKED_S: Final = 10.0
"""How often logind is asked whether the screen is locked, in seconds."""
LINGER_S: Final = 60.0
"""How long it stays after the last session ended, in seconds."""
SEND_S: Final = 60.0
CONTACT: Final = "mailto:kasmon@localhost"
"""By which services of Web Push could ask who sends, where `web.link_url` is not set."""
ENDING_S: Final = 5.0

log = logging.getLogger(__name__)


class TargetStatus(msgspec.Struct, kw_only=True):
    """What the notifier last did for a target."""

    service: str = ""
    sent_at: float = 0.0
    failed_at: float = 0.0
    why: str = ""
    """Why the last message failed; empty if it was sent."""


class NotifierStatus(msgspec.Struct, kw_only=True):
    """What the notifier reports."""

    pid: int = 0
    kasmon: str = ""
    targets: dict[str, TargetStatus] = {}


def read_status(paths: Paths) -> NotifierStatus:
    """Return what the notifier reported last; an empty one if there is no readable report."""
    status: NotifierStatus = read_json(paths.notifications / "status.json", NotifierStatus, NotifierStatus())
    return status


def start_notifier(paths: Paths, config: Config | None = None) -> None:
    """Start the notifier if there is a target or a subscribed browser, and none runs; an older one is replaced. Blocks.

    *config*: where it was read already. Raises `UnavailableError` if it cannot be started.
    """
    try:
        notify = (config or load(paths)).notify
    except ConfigError:
        return  # every command says so
    if not notify.targets and not PushSubscriptions(paths).active(time.time()):
        return
    try:
        private_folder(paths.notifications)
        if (holder := lock_holder(paths.notifier_lock)) is not None:
            status = read_status(paths)
            if status.pid != holder or numbers(status.kasmon) >= numbers(__version__):
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder, signal.SIGTERM)
            deadline = time.monotonic() + ENDING_S
            while lock_holder(paths.notifier_lock) is not None and time.monotonic() < deadline:
                time.sleep(0.05)
        from kasmon.host.rpc.spawn import spawn_notifier  # rarely needed

        spawn_notifier(paths, [target.url_env for target in notify.targets.values() if target.url_env])
    except OSError as error:
        raise UnavailableError(f"the notifier cannot be started: {error.strerror or error}.") from error


def main(argv: Sequence[str]) -> int:
    """Run the notifier; 0 also if another process runs it."""
    del argv
    paths = begin_process()
    return run_work(
        paths.notifications,
        paths.notifier_lock,
        lambda: Notifier(paths).run(),
        lambda: not Notifier(paths).has_work(),
    )


class Notifier:
    """Pushes to the targets of the config; the caller holds `notifier.lock`."""

    def __init__(
        self,
        paths: Paths,
        *,
        clock: Callable[[], float] = time.time,
        is_locked: Callable[[], bool] = presence.is_screen_locked,
    ) -> None:
        self._paths, self._clock, self._is_locked = paths, clock, is_locked
        self._writing = threading.Lock()
        self._delivered = read_json(paths.notifications / "sent.json", SentRecord, {})
        self._schedule = PushSchedule(self._delivered)
        self._status = NotifierStatus(pid=os.getpid(), kasmon=__version__)
        self._config = Config()
        self._config_stamp: tuple[int, int, int] | None = None
        self._subscriptions = PushSubscriptions(paths)
        self._browsers: dict[str, PushSubscription] = {}
        """The browsers that are subscribed, by the name of the target that each is."""
        self._fleet: Fleet | None = None
        self._machines: dict[str, str] = {}
        self._boards: dict[str, PlanBoard] | None = None
        self._plans: PlanBoards | None = None
        self._locked, self._locked_at = False, float("-inf")
        self._idle_since: float | None = None
        self._queues: dict[str, asyncio.Queue[Push]] = {}
        self._tasks = TaskSet()
        self._news = asyncio.Event()

    @property
    def _targets(self) -> dict[str, NotifyTarget]:
        return self._config.notify.targets | dict.fromkeys(self._browsers, NotifyTarget())

    def has_work(self) -> bool:
        """Return whether the config has targets, or a browser is subscribed, and a session runs. Blocks."""
        self._read_browsers()
        with contextlib.suppress(ConfigError):
            self._config = load(self._paths)
        watch = FleetWatch(self._paths, writes=False)
        return bool(self._targets) and any(session.state in ALIVE for session in watch.refresh().sessions)

    async def run(self) -> None:
        """Run until no session has run for `LINGER_S` and nothing is left to push, or the config has no targets."""
        await asyncio.to_thread(self._read_config)
        watch = FleetWatch(self._paths, writes=False)
        self._tasks.start(self._load_services())
        following, ticked_at = asyncio.ensure_future(self._follow(watch)), time.monotonic()
        try:
            while self._targets and not following.done():
                await wait_within(TICK_S, self._news)
                if self._news.is_set():
                    self._news.clear()
                    await asyncio.sleep(GATHER_S + 0.01)  # a storm is one message
                if time.monotonic() - ticked_at >= TICK_S:
                    await self._tick(watch)
                    ticked_at = time.monotonic()
                    if self._is_over():
                        return
                self._push()
            if following.done():
                following.result()
        finally:
            self._tasks.cancel()
            await cancel_and_wait(following)
            await self._tasks.aclose()

    async def _follow(self, watch: FleetWatch) -> None:
        async for fleet in watch.changes():
            if self._fleet is None:
                self._schedule.begin(fleet.sessions)
                is_new = True
            else:
                change = difference(self._fleet, fleet)
                before = {session.id: session for session in self._fleet.sessions}
                for gone in change.gone:
                    self._schedule.forget(gone)
                is_new = self._schedule.update(before, change.changed, self._clock())
            self._fleet = fleet
            if is_new:
                self._news.set()

    async def _tick(self, watch: FleetWatch) -> None:
        await asyncio.to_thread(self._read_config)
        now = self._clock()
        wants_lock = any(target.when != "always" for target in self._targets.values())
        if wants_lock and not self._has_no_key(now) and time.monotonic() - self._locked_at >= LOCKED_S:
            self._locked_at = time.monotonic()
            self._tasks.start(self._check_lock())
        for status in watch.machines or ():
            name, state = status.machine.name, status.state
            if state in ("connected", "unreachable"):
                if state == "unreachable" and self._machines.get(name) == "connected":
                    self._schedule.add(machine_alert(name, status.presence.why), f"machine:{name}:{now:.3f}", now)
                self._machines[name] = state
        for board in await asyncio.to_thread(self._read_boards):
            was = None if self._boards is None else self._boards.get(board.id)
            if self._boards is not None and (news := plan_alert(was, board)) is not None:
                self._schedule.add(news, f"plan:{board.id}:{now:.3f}", now)
            self._boards = {**(self._boards or {}), board.id: board}
        self._boards = self._boards or {}

    async def _check_lock(self) -> None:
        self._locked = await asyncio.to_thread(self._is_locked)

    def _read_boards(self) -> "tuple[PlanBoard, ...]":
        with contextlib.suppress(OSError):
            if self._plans is None and any(self._paths.plans.iterdir()):
                from kasmon.supervisor.plans.boards import PlanBoards  # half a megabyte, and most have no plans

                self._plans = PlanBoards(self._paths, lambda: self._fleet or Fleet(), lambda: self._config)
            if self._plans is not None:
                return self._plans.read()
        return ()

    def _has_no_key(self, now: float) -> bool:
        return now - presence.last_key_at(self._paths) >= 60 * self._config.notify.away_after_minutes

    def _push(self) -> None:
        """Hand what is due to the targets' own queues: a slow service delays no other."""
        now = self._clock()
        is_away = self._locked or self._has_no_key(now)
        for push in self._schedule.pop_due(self._targets, is_away=is_away, now=now):
            if push.target not in self._queues:
                self._queues[push.target] = asyncio.Queue()
                self._tasks.start(self._work(self._queues[push.target]))
            self._queues[push.target].put_nowait(push)

    async def _work(self, queue: asyncio.Queue[Push]) -> None:
        while True:
            push = await queue.get()
            receipt = await self._deliver(push)
            now, status = self._clock(), self._status.targets.setdefault(push.target, TargetStatus())
            status.service, status.why = receipt.service or status.service, receipt.why
            if receipt.is_sent:
                status.sent_at = now
                self._delivered.setdefault(push.target, {}).update(dict.fromkeys(push.keys, now))
                log.info("pushed %s to %r in %d ms", push.alert.kind, push.target, receipt.took_ms)
            else:
                status.failed_at = now
                again = "it is tried again" if self._schedule.fail(push, now) else "it is given up"
                log.warning("cannot push %s to %r: %s; %s", push.alert.kind, push.target, receipt.why, again)
            await asyncio.to_thread(self._write_status)

    async def _deliver(self, push: Push) -> PushReceipt:
        try:
            if (browser := self._browsers.get(push.target)) is not None:
                async with asyncio.timeout(SEND_S):
                    return await asyncio.to_thread(self._send_to_browser, browser, push)
            target = self._config.notify.targets[push.target]
            address = await asyncio.to_thread(push_sender.read_address, self._paths, push.target, target)
            link = await asyncio.to_thread(self._link, push.request) if target.link and push.request is not None else ""
            async with asyncio.timeout(SEND_S):
                return await asyncio.to_thread(push_sender.send, push.target, address, push.alert, link)
        except TimeoutError:
            why = f"it did not answer within {SEND_S:g} s"
        except KasmonError as error:
            why = str(error)
        except KeyError:
            why = "it is no longer in the config"
        return PushReceipt(target=push.target, service="", is_sent=False, why=why)

    def _send_to_browser(self, browser: PushSubscription, push: Push) -> PushReceipt:
        """Send *push* by Web Push, and forget the browser if it ended its subscription. Blocks."""
        from kasmon.supervisor.notifications.web_push import send_web_push  # only where a browser is subscribed

        link = self._link(push.request, browser.login) if push.request is not None else ""
        contact = self._config.web.link_url or CONTACT
        receipt, is_over = send_web_push(browser, self._subscriptions.key(), contact, push.target, push.alert, link)
        if is_over:
            self._subscriptions.remove(browser.id)
        return receipt

    def _read_browsers(self) -> None:
        """Read which browsers are subscribed: a subscription ends with its login. Blocks."""
        self._browsers = {f"browser {each.id}": each for each in self._subscriptions.active(self._clock())}

    def _link(self, request: Request, login: str = "") -> str:
        """Return a link to *request*, or nothing where none can be made: the message is sent then too. Blocks."""
        try:
            return link_of(self._paths, self._config.web, request, self._clock(), login)
        except (OSError, UnavailableError) as error:
            log.warning("no link to request %r: %s", request.id, error)
            return ""

    async def _load_services(self) -> None:
        """Load apprise now: the first message would wait 2 s for it."""
        for name, target in self._config.notify.targets.items():
            with contextlib.suppress(KasmonError):
                address = await asyncio.to_thread(push_sender.read_address, self._paths, name, target)
                await asyncio.to_thread(push_sender.open_service, name, address)

    def _is_over(self) -> bool:
        if self._fleet is None:
            return False
        runs = any(session.state in ALIVE for session in self._fleet.sessions)
        if (
            runs
            or self._schedule.is_waiting(self._targets)
            or any(not queue.empty() for queue in self._queues.values())
        ):
            self._idle_since = None
            return False
        self._idle_since = time.monotonic() if self._idle_since is None else self._idle_since
        return time.monotonic() - self._idle_since >= LINGER_S

    def _read_config(self) -> None:
        """Read the config if its file changed; an invalid one leaves the last good one in effect."""
        self._read_browsers()
        stamp = read_stamp(self._paths.config_file)
        if stamp != self._config_stamp:
            self._config_stamp = stamp
            try:
                self._config = load(self._paths)
                self._schedule.reasons.finished_after_s = self._config.notify.finished_after_s
                for status in self._status.targets.values():
                    status.why = ""  # it may be corrected
            except ConfigError as error:
                log.warning("%s", error)
            self._write_status()

    def _write_status(self) -> None:
        folder = self._paths.notifications
        try:
            with self._writing:  # several threads write: the last one has what is newest
                write_private(folder / "sent.json", msgspec.json.encode(self._delivered))
                write_private(folder / "status.json", msgspec.json.encode(self._status))
        except OSError as error:
            log.warning("cannot record what was pushed: %s", error.strerror or error)
