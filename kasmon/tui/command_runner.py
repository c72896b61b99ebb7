"""Runs commands through the gateway and reports their outcome."""

from typing import TYPE_CHECKING, Protocol

from kasmon.errors import KasmonError
from kasmon.model.commands import Answer, Prompt, Requeue, Run
from kasmon.tui.app_protocols import Dashboard
from kasmon.tui.error_text import what_failed
from kasmon.tui.gateway.protocol import AdoptPane, CreateSession, ForkSandbox, MarkViewed, SendToAgent, UserCommand

if TYPE_CHECKING:
    from kasmon.tui.dialogs.base import Dialog
    from kasmon.tui.permissions.controller import PermissionController
    from kasmon.tui.session_pane import SessionPane


class CommandDashboard(Dashboard, Protocol):
    """What the commands need."""

    @property
    def session_pane(self) -> "SessionPane": ...
    @property
    def permissions(self) -> "PermissionController": ...


class CommandRunner:
    """Executes the app's commands."""

    def __init__(self, app: CommandDashboard) -> None:
        self.app = app

    async def execute(self, wanted: UserCommand, token: int) -> None:
        """Execute *wanted*, and give the outcome to the dialog waiting under *token* if that is still open."""
        assert self.app.gateway is not None
        try:
            word = await self.app.gateway.execute(wanted)
        except KasmonError as error:
            self._handle_refusal(wanted, token, error)
            return
        dialog = self._find_dialog(token)
        if dialog is not None:
            word = dialog.done(wanted, word)
        if isinstance(wanted, CreateSession | AdoptPane | ForkSandbox):
            self.app.main_view.table.await_name(wanted.name)
        if word and not self.app.session_pane.shows_outcome_of(wanted):
            self.app.say(word)

    def _handle_refusal(self, wanted: UserCommand, token: int, error: KasmonError) -> None:
        if isinstance(wanted, SendToAgent) and isinstance(wanted.command, Answer):
            self.app.permissions.mark_failed(wanted.session, wanted.command.request, error)
        elif isinstance(wanted, MarkViewed):
            self.app.session_pane.unmark_viewed(wanted.session)
        dialog = self._find_dialog(token)
        if dialog is not None:
            dialog.handle_refusal(wanted, error)
        else:
            if isinstance(wanted, SendToAgent) and isinstance(wanted.command, Prompt | Requeue) and wanted.command.text:
                self.app.session_pane.give_back(wanted.session, wanted.command.text)
            elif isinstance(wanted, SendToAgent) and isinstance(wanted.command, Run):
                self.app.session_pane.give_back(wanted.session, wanted.command.code)
            self.app.say(what_failed(error), severity="error")

    def _find_dialog(self, token: int) -> "Dialog | None":
        """The dialog waiting under *token*, if it is still open."""
        from kasmon.tui.dialogs.base import Dialog  # not before the first frame

        dialogs = (screen for screen in self.app.screen_stack if isinstance(screen, Dialog))
        return next((dialog for dialog in dialogs if dialog.token == token), None)
