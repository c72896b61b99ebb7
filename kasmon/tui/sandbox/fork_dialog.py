"""The dialog to fork a sandbox: its name, its starting point, and what is not copied."""

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual.widget import Widget

from kasmon.model.sandbox.policy import COPYING
from kasmon.model.session import Session
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.fields import DialogField
from kasmon.tui.keymap import KeyMap
from kasmon.tui.sandbox.status import can_sleep, sleeps_on_disk
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Sentences

if TYPE_CHECKING:
    from kasmon.tui.gateway.operations import Operations


class ForkDialog(Dialog):
    """Forks *session* at *checkpoint* (empty: now), or replays everything that ran there in a new sandbox."""

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
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
        self.title_text = f"{'Replay' if replays else 'Fork'} {clean_line(session.label)}{where}"
        self.about = Sentences(look, id="about")

        self.box = LineInput(self._default_name(), id="another")

    def inside(self) -> Iterable[Widget]:
        yield DialogField("Name", self.box)
        yield self.about

    def _default_name(self) -> str:
        numbered = (f"{self.session.name}-{number}" for number in itertools.count(2))
        return next(name for name in numbered if name not in self.taken)

    def on_mount(self) -> None:
        if self.replays:
            self.about.say(
                ("A new sandbox repeats everything that ran here up to that point.", Token.NOTICE),
                ("Side effects outside the sandbox will be repeated.", Token.WARNING),
            )
        elif self.session.sandbox in COPYING and not self.checkpoint:
            name = clean_line(self.session.label)
            lines = [(f"Copies the files and all memory of {name}; programs keep running in both.", Token.NOTICE)]
            if not sleeps_on_disk(self.session):
                then = "then resumes at once" if can_sleep(self.session) else "and stays paused"
                lines.append((f"For the copy, {name} is paused to disk, {then}.", Token.NOTICE))
            self.about.say(*lines)
        else:
            self.about.say(
                ("Copies files and saved interpreter variables.", Token.NOTICE),
                ("Running processes and open files are not copied.", Token.NOTICE),
            )
        self.offer(("enter", "create"), ("esc", "close"))
        self.begin(self.box)

    def submit(self) -> None:
        name = self.box.value.strip() or self._default_name()
        if name in self.taken:
            self.complain(f"The name {clean_line(name)} is already in use.", "Choose another name.")
        elif self.replays:  # this takes long; the outcome is reported when it is done
            session, checkpoint = self.session.id, self.checkpoint
            self.dashboard.run_operation(lambda operations: operations.replay_sandbox(session, name, checkpoint))
            self.dismiss()
        else:
            self._fork(name)

    def _fork(self, name: str) -> None:
        async def fork(operations: "Operations") -> str:
            text = await operations.fork_sandbox(self.session.id, name, self.checkpoint)
            self.dashboard.main_view.table.await_name(name)
            return text

        self.run_operation(fork)
