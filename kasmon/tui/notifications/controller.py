"""When to alert a user who may be absent: the bell at once, desktop and command a little later."""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from textual.notifications import SeverityLevel

from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.tui.app_protocols import Dashboard
from kasmon.tui.notifications.alerts import Alert, Alerts
from kasmon.tui.notifications.toasts import Toast, shortened
from kasmon.tui.session_list.order import ListChange
from kasmon.tui.textual_ext.modal import Overlay

THERE_S: Final = 120.0
"""Without a key for this long, in seconds, the user may be absent although the window has the focus."""
TOAST_S: Final = 4.0
"""How long a toast is on the screen, in seconds."""
BELL_S: Final = 2.0
"""The bell rings at most once in this time, in seconds."""


class CardAutoOpen(Protocol):
    """The card of a request, which may open by itself."""

    @property
    def may_rise(self) -> bool: ...


class NotificationDashboard(Dashboard, Protocol):
    """What the alerts need."""

    @property
    def app_focus(self) -> bool: ...
    @property
    def permissions(self) -> CardAutoOpen: ...
    @property
    def is_too_small(self) -> bool: ...
    def quiet_for(self) -> float: ...
    def bell(self) -> None: ...
    def notify(self, message: str, /, *, title: str, severity: SeverityLevel, markup: bool) -> None: ...


class NotificationController:
    """The alerts of one dashboard. States from before it opened cause none, so a restart sends none."""

    def __init__(self, app: NotificationDashboard) -> None:
        self.app = app
        self.alerts = Alerts()
        self._rung_at = float("-inf")
        self._shown_at: dict[Toast, float] = {}

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

    def update(self, before: Mapping[SessionId, Session], change: ListChange) -> None:
        """Record *change* to the sessions, whose former values are in *before*."""
        now, seen = self.app.clock.ticking(), self.seen
        if seen is not None:
            self.alerts.acknowledge(seen)
        for gone in change.gone:
            self.alerts.forget(gone)
        if self.alerts.update(before, change.changed, seen, now):
            self._ring(now)

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
        for toast in shortened(toast for toast in toasts if toast.state != "asking" or not rises):
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
        """Whether the user seems to be at the dashboard."""
        return self.app.app_focus and self.app.quiet_for() <= THERE_S

    def tick(self) -> None:
        """Send the alerts that are due; called every second."""
        if (seen := self.seen) is not None:
            self.alerts.acknowledge(seen)
        for alert in self.alerts.due(self.app.clock.ticking()):
            self._send(alert)

    def _send(self, alert: Alert) -> None:
        self.app.run_operation(lambda operations: operations.send_alert(alert))

    def _ring(self, now: float) -> None:
        if self.app.settings.bell and now - self._rung_at >= BELL_S:
            self._rung_at = now
            self.app.bell()
