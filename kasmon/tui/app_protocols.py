"""The parts of the app that controllers, actions and dialogs use: each takes a protocol of what it needs."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from textual.screen import Screen
from textual.widget import Widget
from textual.worker import Worker

from kasmon.errors import KasmonError
from kasmon.model.commands import Prompt, Requeue, Run
from kasmon.model.permission import SessionId
from kasmon.tui.clock import Clock
from kasmon.tui.gateway.protocol import DashboardSettings, Gateway, Operation
from kasmon.tui.keymap import KeyMap
from kasmon.tui.theme.look import ThemeStyles

if TYPE_CHECKING:
    from kasmon.model.fleet import Fleet
    from kasmon.store.machines import MachineStatus
    from kasmon.tui.main_view import MainView


BackgroundWork: TypeAlias = Coroutine[Any, Any, None] | Callable[[], Coroutine[Any, Any, None]]
OnDone: TypeAlias = Callable[[str], bool]
"""Handles the text of an operation that was done; returns whether the user has seen the outcome."""
OnFailure: TypeAlias = Callable[[KasmonError], bool]
"""Handles the error of an operation; returns whether the user has seen it."""


class ScreenStack(Protocol):
    """The open screens, and what a new one is drawn with."""

    @property
    def look(self) -> ThemeStyles: ...
    @property
    def keys(self) -> KeyMap: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def screen(self) -> Screen[Any]: ...
    @property
    def screen_stack(self) -> Sequence[Screen[Any]]: ...
    def push_screen(self, screen: Screen[None], /) -> object: ...


class BackgroundRunner(Protocol):
    """Runs work beside the handling of keys."""

    def run_worker(self, work: BackgroundWork, *, group: str, exclusive: bool = False) -> Worker[None]: ...
    def call_later(self, callback: Callable[..., object], /) -> object: ...


class Reporter(Protocol):
    """Tells the user something in a notification."""

    def say(self, text: str, *, severity: Literal["information", "warning", "error"] = "information") -> None: ...


class RequestNotice(Protocol):
    def show_notice(self) -> None: ...
    def check_soon(self) -> None: ...


class SuspendableApp(Protocol):
    """An app that can leave its terminal to another program."""

    def suspend(self) -> AbstractContextManager[None]: ...
    def refresh(self, *, layout: bool) -> object: ...


class PromptSender(Protocol):
    """Sends prompts; a rejected one returns to where the user can edit it."""

    def send_prompt(
        self, session: SessionId, prompt: Prompt, *, done: OnDone | None = None, failed: OnFailure | None = None
    ) -> None: ...
    def change_queue(self, session: SessionId, change: Requeue) -> None: ...
    def run_command(self, session: SessionId, command: str) -> None: ...
    def run_code(self, session: SessionId, code: Run) -> None: ...


class Dashboard(ScreenStack, BackgroundRunner, Reporter, Protocol):
    """The screens, the main view, and the gateway, which executes commands."""

    @property
    def gateway(self) -> Gateway | None: ...
    @property
    def main_view(self) -> "MainView": ...
    @property
    def fleet(self) -> "Fleet": ...
    @property
    def machines(self) -> "tuple[MachineStatus, ...]": ...
    @property
    def settings(self) -> DashboardSettings: ...
    @property
    def session_pane(self) -> PromptSender: ...
    def run_operation(
        self, operation: Operation, *, done: OnDone | None = None, failed: OnFailure | None = None
    ) -> None: ...
    def hold_still(self) -> None: ...


def dashboard_of(widget: Widget) -> Dashboard:
    """Return the app of *widget* as what its operations need."""
    return cast("Dashboard", widget.app)
