"""When the dashboard calls a person who may be elsewhere: the bell at once, desktop and command a little later."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.tui.gateway.protocol import NotifyPerson
from kasmon.tui.notifications.alerts import Alert, Alerts
from kasmon.tui.session_list.order import ListChange

if TYPE_CHECKING:
    from kasmon.tui.app import Kasmon

THERE_S: Final = 120.0
"""Who pressed no key for so long may not be there, though the window has the focus."""
BELL_S: Final = 2.0
"""The bell rings at most once in so long."""


class NotificationController:
    """The calls of one dashboard. What was so when it opened is no news, so a restart calls nobody."""

    def __init__(self, app: "Kasmon") -> None:
        self.app = app
        self.alerts = Alerts()
        self._rung_at = float("-inf")

    @property
    def seen(self) -> SessionId | None:
        """The session that a person looks at now: it is on the screen, nothing lies over it, and somebody is there."""
        app = self.app
        if not self.is_there or len(app.screen_stack) > 1 or app.is_too_small:
            return None
        main_view = app.main_view
        shown = (
            main_view.preview.session if main_view.focused_inside or not main_view.has_class("-no-preview") else None
        )
        return shown.id if shown is not None else main_view.table.selected

    def take(self, before: Mapping[SessionId, Session], change: ListChange) -> None:
        """Learn what *change* brought to the sessions that were as *before* says."""
        now, seen = self.app.clock.ticking(), self.seen
        if seen is not None:
            self.alerts.looked_at(seen)
        for gone in change.gone:
            self.alerts.forget(gone)
        if self.alerts.take(before, change.changed, seen, now):
            self._ring(now)

    def tell(self, alert: Alert) -> None:
        """Make this call at once, and ring."""
        self._ring(self.app.clock.ticking())
        self.app.want(NotifyPerson(alert=alert))

    @property
    def is_there(self) -> bool:
        """Whether somebody sits before the dashboard."""
        return self.app.app_focus and self.app.quiet_for() <= THERE_S

    def tick(self) -> None:
        """A second passed: make the calls that are due."""
        if (seen := self.seen) is not None:
            self.alerts.looked_at(seen)
        for alert in self.alerts.due(self.app.clock.ticking()):
            self.app.want(NotifyPerson(alert=alert))

    def _ring(self, now: float) -> None:
        if self.app.settings.bell and now - self._rung_at >= BELL_S:
            self._rung_at = now
            self.app.bell()
