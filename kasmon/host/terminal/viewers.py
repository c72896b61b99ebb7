"""The viewers of one session's pane in the shared host."""

from typing import Final

from kasmon.host.rpc.connection import ClientConnection
from kasmon.host.rpc.frames import Blur, Focus, Scroll, Unwatch, ViewChange, Watch
from kasmon.host.terminal.screen_capture import ScreenCapture
from kasmon.host.terminal.screen_stream import ScreenStream
from kasmon.model.permission import SessionId

NO_PANE: Final = "its pane no longer exists"


class ScreenStreams:
    """The views of *session*, one for each viewer; *screen_capture* is of its pane, None without one."""

    def __init__(self, session: SessionId) -> None:
        self.screen_capture: ScreenCapture | None = None
        self._session = session
        self._views: dict[ClientConnection, ScreenStream] = {}

    @property
    def has_focus(self) -> bool:
        """Whether a user is focused on it."""
        return any(view.has_focus for view in self._views.values())

    def look(self, screen_capture: ScreenCapture) -> None:
        """View *screen_capture* from now on."""
        self.screen_capture = screen_capture
        for view in self._views.values():
            view.look(screen_capture)

    def show(self, connection: ClientConnection, frame: ViewChange) -> None:
        """Apply the view change *frame* of *connection*."""
        view = self._views.get(connection)
        match frame:
            case Watch(rate_hz=rate_hz):
                if view is not None:
                    view.push_all()
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
                    view.look(self.screen_capture)
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

    def scroll_down(self, connection: ClientConnection) -> None:
        """Scroll the view of *connection* to the end of the buffer."""
        if (view := self._views.get(connection)) is not None:
            view.scroll(0)

    def leave(self, connection: ClientConnection) -> None:
        """Remove the view of *connection*. Idempotent."""
        if (view := self._views.pop(connection, None)) is not None:
            view.close()

    def close(self) -> None:
        """Close all views. Idempotent."""
        for view in self._views.values():
            view.close()

    def _view(self, connection: ClientConnection) -> ScreenStream:
        view = self._views[connection] = ScreenStream(connection, self._session)
        return view

    def _begin(self, view: ScreenStream) -> None:
        if self.screen_capture is None:
            view.handle_end(NO_PANE)
        else:
            view.look(self.screen_capture)
