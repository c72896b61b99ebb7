"""Who looks at the pane of one session in the shared host."""

from typing import Final

from kasmon.host.camera import Camera
from kasmon.host.connection import Connection
from kasmon.host.view import View
from kasmon.host.wire import Blur, Focus, Scroll, Unwatch, Watch
from kasmon.model.permission import SessionId

NO_PANE: Final = "it has no pane any more"


class Viewers:
    """The views of *session*, one for each connection that looks; *camera* is of its pane, None while it has none."""

    def __init__(self, session: SessionId) -> None:
        self.camera: Camera | None = None
        self._session = session
        self._views: dict[Connection, View] = {}

    def look(self, camera: Camera) -> None:
        """Look through *camera* from now on."""
        self.camera = camera
        for view in self._views.values():
            view.look(camera)

    def show(self, connection: Connection, frame: Watch | Unwatch | Focus | Blur | Scroll) -> None:
        """Do what *connection* wants to see."""
        view = self._views.get(connection)
        match frame:
            case Watch(rate_hz=rate_hz):
                if view is not None:
                    view.anew()
                view = view or self._view(connection)
                view.rate_hz = max(rate_hz, 0.0)
                self._begin(view)
            case Focus():
                view = view or self._view(connection)
                view.has_focus = True
                self._begin(view)
            case Blur():
                if view is not None:
                    view.has_focus = False
                    view.scroll(0)
                    view.look(self.camera)
                    if view.rate_hz is None:
                        self.leave(connection)
            case Unwatch():
                if view is not None:
                    view.rate_hz = None
                    if not view.has_focus:
                        self.leave(connection)
            case Scroll(up=up):
                if view is not None:
                    view.scroll(up)

    def scroll_down(self, connection: Connection) -> None:
        """*connection* sees the end of the buffer again."""
        if (view := self._views.get(connection)) is not None:
            view.scroll(0)

    def leave(self, connection: Connection) -> None:
        """*connection* does not look any more. Idempotent."""
        if (view := self._views.pop(connection, None)) is not None:
            view.close()

    def close(self) -> None:
        """Nobody looks any more. Idempotent."""
        for view in self._views.values():
            view.close()

    def _view(self, connection: Connection) -> View:
        view = self._views[connection] = View(connection, self._session)
        return view

    def _begin(self, view: View) -> None:
        if self.camera is None:
            view.gone(NO_PANE)
        else:
            view.look(self.camera)
