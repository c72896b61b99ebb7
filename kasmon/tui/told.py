"""What the app does when a widget tells something: whoever knows about it is asked.

`messages.py` says what that is. Where an action changes the keys that count, `Kasmon` hears it itself.
"""

from typing import TYPE_CHECKING

from textual.app import App

from kasmon.model.command import Answer, Prompt, Requeue, Run
from kasmon.tui.action import Where
from kasmon.tui.keys import ROWS
from kasmon.tui.messages import (
    ActionWanted,
    BoardLeft,
    CardLeft,
    CodeEntered,
    CommandWanted,
    ConfinedWanted,
    DiffWanted,
    FilesWanted,
    FolderNamed,
    HitOpened,
    InboxLeft,
    NewAgentWanted,
    PromptEntered,
    SandboxDeed,
    SandboxLooked,
    SearchLeft,
    SearchWanted,
    SessionOpened,
)
from kasmon.tui.world import Tell, Wanted, World

if TYPE_CHECKING:
    from kasmon.tui.deeds import Deeds
    from kasmon.tui.desk import Desk
    from kasmon.tui.focus import FocusView
    from kasmon.tui.inbox import Inbox
    from kasmon.tui.inside import Inside
    from kasmon.tui.searching import Searching
    from kasmon.tui.waves import Waves
    from kasmon.tui.wishes import Wishes


class Told(App[None], inherit_bindings=False):
    """The ears of the app."""

    world: World | None
    desk: "Desk"
    deeds: "Deeds"
    inbox: "Inbox"
    inside: "Inside"
    searching: "Searching"
    waves: "Waves"
    wishes: "Wishes"

    # Wishes.

    def action_do(self, action: str) -> None:
        """Do what the key table calls by this id; while a session has the keyboard, nothing that is the list's."""
        if not self.desk.focused_inside or ROWS[action].where is not Where.LIST:
            getattr(self.deeds, action)()

    def on_action_wanted(self, message: ActionWanted) -> None:
        """What is chosen by name or by a click is meant: who is inside a session comes out for what is the list's."""
        message.stop()
        if self.desk.focused_inside and ROWS[message.action].where is Where.LIST:
            self.inside.leave()
        self.action_do(message.action)

    def want(self, wanted: Wanted) -> None:
        """Have *wanted* done; its outcome is told in a word."""
        self.post_message(CommandWanted(wanted))

    def on_command_wanted(self, message: CommandWanted) -> None:
        message.stop()
        wanted = message.wanted
        if isinstance(wanted, Tell) and isinstance(wanted.wish, Answer):
            self.inbox.sent(wanted.session, wanted.wish.request)
        if self.world is not None:
            self.run_worker(self.wishes.carry_out(wanted, message.token), group="wishes")

    # What widgets tell.

    def on_card_left(self, message: CardLeft) -> None:
        message.stop()
        self.inbox.close(message.put_off)

    def on_inbox_left(self, message: InboxLeft) -> None:
        message.stop()
        self.inbox.close(message.put_off)

    def on_board_left(self, message: BoardLeft) -> None:
        message.stop()
        self.waves.close()

    def on_diff_wanted(self, message: DiffWanted) -> None:
        message.stop()
        if (session := self.desk.table.session(message.session)) is not None:
            self.deeds.show_diff(session)

    def on_new_agent_wanted(self, message: NewAgentWanted) -> None:
        message.stop()
        self.waves.replace(message.wanted)

    def on_focus_view_left(self, message: "FocusView.Left") -> None:
        message.stop()
        if self.desk.focused_inside:
            self.inside.leave()

    def on_focus_view_read_wanted(self, message: "FocusView.ReadWanted") -> None:
        message.stop()
        if (session := self.desk.table.session(message.session)) is not None:
            self.inside.read_terminal(session, message.up)

    def on_focus_view_waiting_clicked(self, message: "FocusView.WaitingClicked") -> None:
        message.stop()
        self.inbox.open()

    def on_session_opened(self, message: SessionOpened) -> None:
        message.stop()
        self.inbox.close(())
        self.waves.close()
        self.call_later(self.inside.enter, message.session)

    def on_search_wanted(self, message: SearchWanted) -> None:
        message.stop()
        self.searching.look_for(message.words)

    def on_hit_opened(self, message: HitOpened) -> None:
        message.stop()
        self.searching.go_to(message.hit)

    def on_search_left(self, message: SearchLeft) -> None:
        message.stop()
        self.searching.close()

    def on_prompt_entered(self, message: PromptEntered) -> None:
        message.stop()
        wish: Prompt | Requeue = Prompt(text=message.text, when="idle" if message.later else "now")
        if message.changes is not None:
            wish = Requeue(receipt=message.changes, text=message.text)
        self.want(Tell(session=message.session, wish=wish))

    def on_code_entered(self, message: CodeEntered) -> None:
        message.stop()
        self.want(Tell(session=message.session, wish=Run(interpreter=message.interpreter, code=message.code)))

    def on_confined_wanted(self, message: ConfinedWanted) -> None:
        message.stop()
        self.deeds.tell_confined(message)

    def on_folder_named(self, message: FolderNamed) -> None:
        message.stop()
        self.deeds.tell_folder(message.folder)

    def on_sandbox_deed(self, message: SandboxDeed) -> None:
        message.stop()
        self.deeds.on_sandbox(message)

    def on_sandbox_looked(self, message: SandboxLooked) -> None:
        message.stop()
        self.deeds.look_again(message.session)

    def on_files_wanted(self, message: FilesWanted) -> None:
        message.stop()
        self.inside.offer_files(message.session)
