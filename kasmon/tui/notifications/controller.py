"""When to alert a user who may be absent: the bell at once, desktop and command a little later."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kasmon.model.fleet import FleetDifference
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.sanitize import clean_line
from kasmon.supervisor.notifications.alerts import Alert, Alerts, machine_alert
from kasmon.tui.app_protocols import Dashboard
from kasmon.tui.notifications.toasts import Toast, shorten
from kasmon.tui.textual_ext.modal import Overlay

if TYPE_CHECKING:
    from kasmon.store.machines import MachineStatus

THERE_S: Final = 120.0
"""Without a key for this long, in seconds, the user may be absent although the window has the focus."""
TOAST_S: Final = 4.0
BELL_S: Final = 2.0
"""The bell rings at most once in this time, in seconds."""

NOTE_S: Final = 10.0
"""How often the time of the last key is recorded for other processes, in seconds."""


class NotificationController:
    """The alerts of one dashboard. States from before it opened cause none, so a restart sends none."""

    def __init__(self, app: Dashboard) -> None:
        self.app = app
        self.alerts = Alerts()
        self._rung_at = float("-inf")
        self._shown_at: dict[Toast, float] = {}
        self._noted_at = self._key_noted_at = float("-inf")
        self._machines: dict[str, str] = {}
        """Whether each registered machine was connected or unreachable when that was last known."""

    @property
    def seen(self) -> SessionId | None:
        """The session that the user looks at: it is on screen, no other screen covers it, and the user is present."""
        app = self.app
        if not self.is_there or len(app.screen_stack) > 1 or app.is_too_small:
            return None
        main_view = app.main_view
        shown = (
            main_view.preview.session if main_view.focused_inside or not main_view.has_class("-no-preview") else None
        )
        return shown.id if shown is not None else main_view.table.selected

    def update(self, before: Mapping[SessionId, Session], change: FleetDifference) -> None:
        """Record *change* to the sessions, whose former values are in *before*."""
        now, seen = self.app.clock.ticking(), self.seen
        if seen is not None:
            self.alerts.acknowledge(seen)
        for gone in change.gone:
            self.alerts.forget(gone)
        if self.alerts.update(before, change.changed, seen, now):
            self._ring(now)

    def update_machines(self, machines: Iterable["MachineStatus"]) -> None:
        """Notify the user of machines that were connected and are unreachable, and of those that are back."""
        machines = tuple(machines)
        names = {each.machine.name for each in machines}
        self._machines = {name: state for name, state in self._machines.items() if name in names}
        for each in machines:
            name, state, was = each.machine.name, each.state, self._machines.get(each.machine.name)
            if state not in ("connected", "unreachable"):
                continue  # it is not known yet which it will be
            self._machines[name] = state
            if was == "connected" and state == "unreachable":
                why = clean_line(each.presence.why)
                self.app.say(f"{name} is unreachable: {why}.", severity="warning")
                self.alert(machine_alert(name, why))
            elif was == "unreachable" and state == "connected":
                self.app.say(f"{name} is connected again.")

    def show(self, toasts: Iterable[Toast]) -> None:
        """Show *toasts* on the screen, unless the settings or the open screens forbid it."""
        app = self.app
        if not app.settings.toasts:
            return
        if any(isinstance(screen, Overlay) for screen in app.screen_stack):
            return  # no toast over a card or a dialog; the list shows the state, and the bell rang
        rises = app.permissions.may_rise  # a pending request opens a card in a moment
        now = app.clock.ticking()
        self._shown_at = {toast: at for toast, at in self._shown_at.items() if now - at < TOAST_S}
        for toast in shorten(toast for toast in toasts if toast.state != "asking" or not rises):
            if toast in self._shown_at:
                continue  # it is still on the screen: a request that was read again has another id
            self._shown_at[toast] = now
            app.notify(toast.text, title=toast.title, severity=toast.severity, markup=False)

    def alert(self, alert: Alert) -> None:
        """Send this alert at once, and ring."""
        self._ring(self.app.clock.ticking())
        self._send(alert)

    @property
    def is_there(self) -> bool:
        return self.app.app_focus and self.app.quiet_for() <= THERE_S

    def tick(self) -> None:
        """Send the alerts that are due; called every second."""
        if (seen := self.seen) is not None:
            self.alerts.acknowledge(seen)
        for alert in self.alerts.due(self.app.clock.ticking()):
            self._send(alert)
        self._maintain_notifier()

    def _maintain_notifier(self) -> None:
        """Have the process that pushes to services know that the user is here, and have it run."""
        now, quiet_s = self.app.clock.ticking(), self.app.quiet_for()
        is_back = now - quiet_s >= self._key_noted_at + NOTE_S
        if self.app.settings.has_targets and (is_back or now >= self._noted_at + NOTE_S):
            self._noted_at, self._key_noted_at = now, now - quiet_s
            self.app.run_operation(lambda operations: operations.maintain_notifier(quiet_s))

    def _send(self, alert: Alert) -> None:
        self.app.run_operation(lambda operations: operations.send_alert(alert))

    def _ring(self, now: float) -> None:
        if self.app.settings.bell and now - self._rung_at >= BELL_S:
            self._rung_at = now
            self.app.bell()
