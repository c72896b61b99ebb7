"""The dialog about another sandbox: its name, where it begins, and what is not taken along."""

from collections.abc import Iterable

from textual.widget import Widget
from textual.widgets import Input

from kasmon.clean import clean_line
from kasmon.model.sandbox import COPYING
from kasmon.model.session import Session
from kasmon.model.text import Token
from kasmon.tui.boxes import Line
from kasmon.tui.confined import can_sleep, sleeps_on_disk
from kasmon.tui.dialog import Dialog, Field
from kasmon.tui.keys import Keys
from kasmon.tui.look import Look
from kasmon.tui.messages import CommandWanted
from kasmon.tui.reader import Sentences
from kasmon.tui.world import ForkSandbox, ReplaySandbox


class AnotherSandbox(Dialog):
    """A sandbox that begins at *checkpoint* of *session* (empty: now), or in which all that ran there runs again."""

    def __init__(
        self,
        look: Look,
        keys: Keys,
        session: Session,
        checkpoint: str,
        taken: Iterable[str],
        *,
        replays: bool = False,
    ) -> None:
        super().__init__(look, keys)
        self.session, self.checkpoint, self.replays = session, checkpoint, replays
        self.taken = frozenset(taken)
        where = f" at {clean_line(checkpoint)}" if checkpoint else ""
        self.title_text = f"{'Replay' if replays else 'Fork'} {clean_line(session.name)}{where}"
        self.about = Sentences(look, id="about")

    def inside(self) -> Iterable[Widget]:
        yield Field("Name", Line(f"{self.session.name}-2", id="another"))
        yield self.about

    def on_mount(self) -> None:
        if self.replays:
            self.about.say(
                ("A new sandbox runs in order all that ran here until then.", Token.NOTICE),
                ("What that did outside of the sandbox it does a second time.", Token.WARNING),
            )
        elif self.session.sandbox in COPYING and not self.checkpoint:
            name = clean_line(self.session.name)
            told = [(f"It has the files and all memory of {name}; what runs there goes on in both.", Token.NOTICE)]
            if not sleeps_on_disk(self.session):
                then = "and goes on at once" if can_sleep(self.session) else "and stays there"
                told.append((f"For that {name} is put to sleep on disk, {then}.", Token.NOTICE))
            self.about.say(*told)
        else:
            self.about.say(
                ("It begins with the same files, and with what could be kept of the interpreters.", Token.NOTICE),
                ("Processes, open files and what has no name do not come along.", Token.NOTICE),
            )
        self.offer(("enter", "make it"), ("esc", "close"))
        self.begin(self.query_one("#another", Line))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        name = event.value.strip()
        if not name:
            self.complain("A session needs a name.", "It is how you find it in the list.")
        elif name in self.taken:
            self.complain(f"There is a session called {clean_line(name)} already.", "Names are unique.")
        elif self.replays:  # as long as that takes; its outcome is told to whoever is there then
            wanted = ReplaySandbox(session=self.session.id, name=name, checkpoint=self.checkpoint)
            self.post_message(CommandWanted(wanted))
            self.dismiss()
        else:
            self.want(ForkSandbox(session=self.session.id, name=name, checkpoint=self.checkpoint))
