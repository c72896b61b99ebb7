"""The field of a new session that says where it works: in its folder, in a new git worktree, or in one that exists."""

from typing import Final, NamedTuple

from textual import events
from textual.containers import Vertical

from kasmon.model.commands import WorktreeChoices
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.fields import ChoiceField, DialogField
from kasmon.tui.error_text import sentence
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Sentences

FOLDER: Final = "this folder"
NEW: Final = "new worktree"
EXISTING: Final = "existing worktree"


class SessionLocation(NamedTuple):
    """Where a new session works, as `NewSession` has it."""

    workdir: str
    worktree: bool | None = None
    base: str = ""


class WorkInField(DialogField):
    """The choice, what belongs to it, and an explanation; hidden outside of git repositories."""

    def __init__(self, look: ThemeStyles) -> None:
        self.choice = ChoiceField(look, (), id="work-in")
        self.base = LineInput(id="base")
        self.existing = LineInput(id="existing-worktree")
        self.note = Sentences(look, id="work-in-note")
        super().__init__("Work in", Vertical(self.choice, self.base, self.existing, self.note))
        self.display = False
        self.folder = ""
        """The folder that the choices are for, as it was written."""
        self.is_chosen = False
        """Whether the user chose; else the agent's profile and the config do."""
        self._choices: WorktreeChoices | None = None
        self._preset: bool | None = None
        """Whether a template gives a new worktree, or none; None if it does not say."""

    @property
    def is_offered(self) -> bool:
        return self._choices is not None

    def offer(self, folder: str, choices: WorktreeChoices | None, *, is_default: bool) -> None:
        """Offer *choices* for *folder*; None if it is in no git repository. *is_default*: as `suggest`."""
        self.folder, self._choices = folder, choices
        if choices is None:
            self.choice.put(())
        else:
            chosen = self.choice.value if self.is_chosen else ""
            options = (FOLDER, NEW, *([EXISTING] if choices.others else []))
            self.choice.put(options, options.index(chosen) if chosen in options else 0)
            self.base.stand_in(f"{clean_line(choices.base)}; a branch, a tag, a commit or pr:NUMBER")
            self.existing.complete(tuple(choices.others), f"branch: {clean_line(', '.join(choices.others))}")
        self.suggest(is_default=is_default)

    def preset(self, worktree: bool | None, base: str) -> None:
        """Preselect what a template says, from the next `suggest` on: a *worktree* or none, and its *base*."""
        self._preset = True if base else worktree
        self.base.value = base

    def suggest(self, *, is_default: bool) -> None:
        """Preselect a new worktree if that is the default of the chosen agent or template, unless the user chose."""
        is_default = is_default if self._preset is None else self._preset
        if self._choices is not None and not self.is_chosen:
            self.choice.put(self.choice.options, self.choice.options.index(NEW if is_default else FOLDER))
        self.explain()

    def explain(self) -> None:
        self.base.display = self.choice.value == NEW
        self.existing.display = self.choice.value == EXISTING
        if self.choice.value == NEW and self._choices is not None:
            begins = sentence(self._choices.error) or f"A new branch begins at {self._choices.begins}."
            self.note.say((clean_line(begins), Token.ERROR if self._choices.error else Token.FAINT))
        else:
            self.note.say()

    def takes(self, key: events.Key) -> bool:
        """Choose by *key* at once: a Tab typed behind it is meant for the field of this choice."""
        if not self.choice.takes(key):
            return False
        self.is_chosen = True
        self.explain()
        return True

    def location(self, workdir: str) -> SessionLocation | None:
        """Return where a session in *workdir* works; None if the user must name an existing worktree first."""
        if self._choices is None:
            return SessionLocation(workdir)
        if self.choice.value != EXISTING:
            is_new = self.choice.value == NEW
            return SessionLocation(workdir, is_new, self.base.value.strip() if is_new else "")
        path = self._choices.others.get(self.existing.value.strip())
        return SessionLocation(path, False) if path else None
