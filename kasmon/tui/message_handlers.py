"""The app's handlers for the widgets' messages: each passes the message to the controller in charge.

The messages are in `messages.py`. `Kasmon` handles `KeyContextChanged` itself.
"""

from typing import TYPE_CHECKING

from textual.app import App

from kasmon.model.commands import Answer, Prompt, Requeue, Run
from kasmon.tui.action import KeyContext
from kasmon.tui.gateway.protocol import Gateway, KeepSplit, SendToAgent, UserCommand
from kasmon.tui.keymap import ROWS
from kasmon.tui.messages import (
    ActionRequested,
    CardClosed,
    CodeEntered,
    CommandRequested,
    DiffRequested,
    FilesRequested,
    FolderNoticeRequested,
    HitOpened,
    InboxClosed,
    NewAgentRequested,
    PlanBoardClosed,
    PromptEntered,
    SandboxActionRequested,
    SandboxPreviewRequested,
    SandboxRefreshRequested,
    SearchClosed,
    SearchRequested,
    SessionOpened,
    SplitChanged,
)

if TYPE_CHECKING:
    from kasmon.tui.actions.general import GeneralActions
    from kasmon.tui.command_runner import CommandRunner
    from kasmon.tui.main_view import MainView
    from kasmon.tui.permissions.controller import PermissionController
    from kasmon.tui.plan_board.controller import PlanBoardController
    from kasmon.tui.search.controller import SearchController
    from kasmon.tui.session_pane import SessionPane
    from kasmon.tui.terminal.view import FocusView


class MessageHandlers(App[None], inherit_bindings=False):
    """The message handlers of the app."""

    gateway: Gateway | None
    main_view: "MainView"
    actions: "GeneralActions"
    permissions: "PermissionController"
    session_pane: "SessionPane"
    search: "SearchController"
    plan_board: "PlanBoardController"
    commands: "CommandRunner"

    # Commands.

    def action_do(self, action: str) -> None:
        """Run the action with this id; while a session is open, ignore actions of the list."""
        if not self.main_view.focused_inside or ROWS[action].where is not KeyContext.LIST:
            getattr(self.actions, action)()

    def on_action_requested(self, message: ActionRequested) -> None:
        """Run what was clicked or chosen in the palette; an action of the list first leaves an open session."""
        message.stop()
        if self.main_view.focused_inside and ROWS[message.action].where is KeyContext.LIST:
            self.session_pane.leave()
        self.action_do(message.action)

    def want(self, wanted: UserCommand) -> None:
        """Execute *wanted*, and report its outcome in a notification."""
        self.post_message(CommandRequested(wanted))

    def on_command_requested(self, message: CommandRequested) -> None:
        message.stop()
        wanted = message.wanted
        if isinstance(wanted, SendToAgent) and isinstance(wanted.wish, Answer):
            self.permissions.sent(wanted.session, wanted.wish.request)
        if self.gateway is not None:
            self.run_worker(self.commands.execute(wanted, message.token), group="commands")

    # Messages of widgets.

    def on_split_changed(self, message: SplitChanged) -> None:
        message.stop()
        self.want(KeepSplit(split=message.split))

    def on_card_closed(self, message: CardClosed) -> None:
        message.stop()
        self.permissions.close(message.put_off)

    def on_inbox_closed(self, message: InboxClosed) -> None:
        message.stop()
        self.permissions.close(message.put_off)

    def on_plan_board_closed(self, message: PlanBoardClosed) -> None:
        message.stop()
        self.plan_board.close()

    def on_diff_requested(self, message: DiffRequested) -> None:
        message.stop()
        if (session := self.main_view.table.session(message.session)) is not None:
            self.actions.show_diff(session)

    def on_new_agent_requested(self, message: NewAgentRequested) -> None:
        message.stop()
        self.plan_board.replace(message.wanted)

    def on_focus_view_left(self, message: "FocusView.Left") -> None:
        message.stop()
        if self.main_view.focused_inside:
            self.session_pane.leave()

    def on_focus_view_read_wanted(self, message: "FocusView.ReadWanted") -> None:
        message.stop()
        if (session := self.main_view.table.session(message.session)) is not None:
            self.session_pane.read_terminal(session, message.up)

    def on_focus_view_waiting_clicked(self, message: "FocusView.WaitingClicked") -> None:
        message.stop()
        self.permissions.open()

    def on_session_opened(self, message: SessionOpened) -> None:
        message.stop()
        self.permissions.close(())
        self.plan_board.close()
        self.call_later(self.session_pane.enter, message.session)

    def on_search_requested(self, message: SearchRequested) -> None:
        message.stop()
        self.search.look_for(message.words)

    def on_hit_opened(self, message: HitOpened) -> None:
        message.stop()
        self.search.go_to(message.hit)

    def on_search_closed(self, message: SearchClosed) -> None:
        message.stop()
        self.search.close()

    def on_prompt_entered(self, message: PromptEntered) -> None:
        message.stop()
        wish: Prompt | Requeue = Prompt(text=message.text, when="idle" if message.later else "now")
        if message.changes is not None:
            wish = Requeue(receipt=message.changes, text=message.text)
        self.want(SendToAgent(session=message.session, wish=wish))

    def on_code_entered(self, message: CodeEntered) -> None:
        message.stop()
        self.want(SendToAgent(session=message.session, wish=Run(interpreter=message.interpreter, code=message.code)))

    def on_sandbox_preview_requested(self, message: SandboxPreviewRequested) -> None:
        message.stop()
        self.actions.show_sandbox_preview(message)

    def on_folder_notice_requested(self, message: FolderNoticeRequested) -> None:
        message.stop()
        self.actions.tell_folder(message.folder)

    def on_sandbox_action_requested(self, message: SandboxActionRequested) -> None:
        message.stop()
        self.actions.on_sandbox(message)

    def on_sandbox_refresh_requested(self, message: SandboxRefreshRequested) -> None:
        message.stop()
        self.actions.reload_history(message.session)

    def on_files_requested(self, message: FilesRequested) -> None:
        message.stop()
        self.session_pane.offer_files(message.session)
