"""One session in the shared host: its agent while that runs, its pane as long as there is one, and who looks at it."""

import asyncio
from collections.abc import Mapping

from kasmon.backends.tmux import TmuxBackend
from kasmon.backends.tmux.adopted import AdoptedBackend
from kasmon.clean import clean_line
from kasmon.errors import RefusedError, SessionBusyError, SessionEndedError, UnavailableError
from kasmon.host import own_log
from kasmon.host.camera import Camera
from kasmon.host.connection import Connection
from kasmon.host.life import Life
from kasmon.host.reading import lines, wanted
from kasmon.host.view import View
from kasmon.host.window import Window
from kasmon.host.wire import Blur, Focus, Keys, Look, PaneSeen, Paste, Read, Say, Scroll, Text, Unwatch, Watch
from kasmon.model.command import Launch, Receipt, Requeue, Wish
from kasmon.model.permission import SessionId
from kasmon.model.stuck import StuckLimits
from kasmon.paths import Places
from kasmon.tmux import request as ask
from kasmon.tmux.facts import PaneFacts

NO_PANE = "it has no pane any more"


class Tenant:
    """The session *session* of the shared host."""

    def __init__(
        self, places: Places, backend: TmuxBackend, session: SessionId, stuck: StuckLimits | None = None
    ) -> None:
        self.session = session
        self._places = places
        self._backend = backend
        self._stuck = stuck or StuckLimits()
        self._life: Life | None = None
        self._camera: Camera | None = None
        self._window: Window | None = None
        self._views: dict[Connection, View] = {}
        self._is_starting = False

    @property
    def backend(self) -> TmuxBackend:
        """Whose panes it lives among."""
        return self._backend

    @property
    def foreign_place(self) -> tuple[str, str] | None:
        """Socket and pane of the user's own tmux, while it lives there."""
        if self._backend.owns or self._camera is None or not self.is_alive:
            return None
        return str(self._backend.line.server.socket), self._camera.pane

    @property
    def is_alive(self) -> bool:
        """Whether its agent runs, or begins to."""
        return self._is_starting or (self._life is not None and not self._life.agent.has_ended)

    # -- its agent

    async def start(self, variables: Mapping[str, str]) -> None:
        """Start its agent as its `launch.json` says; *variables* are of whoever wants it, see `TmuxBackend.open`.

        Raises:
            RefusedError: if it runs already.
            LaunchError, TmuxError: if it cannot be started.
        """
        if self.is_alive:
            raise RefusedError(f"session {self.session!r} runs already.", hint="Stop it first.")
        self._is_starting = True
        try:
            if self._life is not None:
                await self._life.over()
            self._live(await Life.start(self._places, self._backend, self.session, variables))
        finally:
            self._is_starting = False

    async def take_over(self, launch: Launch, facts: PaneFacts) -> None:
        """Go on with its agent, which runs or died in the pane of *facts* under a host before us.

        Raises:
            RefusedError: if another host has it.
        """
        self._live(await Life.found(self._places, self._backend, launch, facts))

    def lost(self, why: str) -> None:
        """The tmux server is gone."""
        if self._life is not None:
            self._life.agent.lost(why)
        self.vacate(why)

    async def let_go(self) -> None:
        """Leave everything as it is. Idempotent."""
        for view in self._views.values():
            view.close()
        if self._life is not None:
            await self._life.let_go()

    async def do(self, wish: Wish | Requeue) -> Receipt | None:
        """Carry *wish* to its agent; see `Life.do`."""
        if self._life is None:
            raise SessionEndedError(self.session)
        return await self._life.do(wish)

    async def say(self, frame: Say) -> None:
        """Note how its agent says that it stands; see `Life.say`."""
        if self._life is None:
            raise SessionEndedError(self.session)
        await self._life.say(frame)

    def _live(self, life: Life) -> None:
        self._life = life
        life.watch_over(self._stuck)
        self.settle(life.agent.pane, life.agent.window)

    # -- its pane

    def settle(self, pane: str, window: str) -> None:
        """*pane* is its pane from now on."""
        if self._camera is not None and self._camera.pane == pane:
            self._camera.renew()
            return
        self.vacate(NO_PANE)
        self._camera = Camera(self._backend.line, pane)
        self._camera.on_closed = lambda: self.vacate(NO_PANE)
        if self._backend.owns:
            self._window = Window(self._backend.line, window, self._camera.renew)
        for view in self._views.values():
            view.look(self._camera)

    def vacate(self, why: str) -> None:
        """It has no pane any more. Idempotent."""
        camera, self._camera = self._camera, None
        if self._window is not None:
            self._window.close()
            self._window = None
        if camera is not None:
            camera.close(why)

    async def read(self, read: Read) -> Text:
        """What stands in its pane.

        Raises:
            UnavailableError: if it has none.
        """
        captured = await self._backend.line.ask(wanted(self._pane(), read))
        return Text(n=read.n, lines=await asyncio.to_thread(lines, captured, read))

    async def look(self, look: Look) -> PaneSeen:
        """What tmux says of its pane.

        Raises:
            UnavailableError: if it has none.
        """
        pane, line = self._pane(), self._backend.line
        everywhere = await line.panes()
        screen, text = await line.ask(ask.screen_facts(pane)), await line.ask(ask.pane_text(pane))
        facts = everywhere.get(self.session)
        if facts is None:
            raise UnavailableError(f"session {self.session!r}: {NO_PANE}.")
        attach = line.server.attach_argv(facts.session_id, facts.window_id)
        return PaneSeen(
            n=look.n,
            width=screen.width,
            height=screen.height,
            cursor=(screen.cursor_x, screen.cursor_y),
            title=clean_line(own_log.hidden(text.title)),
            cwd=clean_line(text.workdir),
            window=facts.window_id,
            clients=facts.attached,
            attach=("env", "-u", "TMUX", *attach),
        )

    async def rename(self, name: str) -> None:
        """Show *name* on its window, if it has one."""
        if self._window is not None:
            await asyncio.to_thread(self._backend.line.server.rename, self._window.id, clean_line(name) or self.session)

    async def forget(self) -> None:
        """Give up the pane of its agent, which has ended; one of the user's own is let go, and runs on.

        Raises:
            SessionBusyError: if it runs.
        """
        if self.is_alive and self._backend.owns:
            raise SessionBusyError(self.session, "running")
        if self.is_alive and self._life is not None:
            self._life.agent.give_up()
            await self._life.over()
        window = self._window
        if isinstance(self._backend, AdoptedBackend) and self._camera is not None:
            self._backend.line.release(self._camera.pane)
        self.vacate("the session was forgotten")
        if window is not None:
            await self._backend.line.ask(ask.kill_window(window.id))

    def _pane(self) -> str:
        if self._camera is None:
            raise UnavailableError(
                f"session {self.session!r}: {NO_PANE}.", hint=f"`kasmon restart {self.session}` makes a new one."
            )
        return self._camera.pane

    # -- who looks at it

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
            case Focus(columns=columns, rows=rows):
                view = view or self._view(connection)
                view.has_focus = True
                if self._window is not None:
                    self._window.resize(columns, rows)
                self._begin(view)
            case Blur():
                if view is not None:
                    view.has_focus = False
                    view.scroll(0)
                    view.look(self._camera)
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

    def type(self, connection: Connection, frame: Keys | Paste) -> None:
        """Type what a person typed; dropped once the agent has ended."""
        if (view := self._views.get(connection)) is not None:
            view.scroll(0)
        if self._life is None or self._life.agent.has_ended:
            return
        if isinstance(frame, Keys):
            self._life.agent.typist.keys(frame.data)
        else:
            self._life.agent.typist.paste(frame.text)

    def leave(self, connection: Connection) -> None:
        """*connection* does not look any more. Idempotent."""
        if (view := self._views.pop(connection, None)) is not None:
            view.close()

    def _view(self, connection: Connection) -> View:
        view = self._views[connection] = View(connection, self.session)
        return view

    def _begin(self, view: View) -> None:
        if self._camera is None:
            view.gone(NO_PANE)
        else:
            view.look(self._camera)
