"""The field for the folder of a new session: completed while it is typed, recent ones by the arrow keys."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from textual import events
from textual.containers import Vertical
from textual.suggester import Suggester

from kasmon.errors import KasmonError
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.fields import DialogField
from kasmon.tui.key_names import shown_key
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Sentences

MOST_RECENT: Final = 5


class FolderSuggester(Suggester):
    """Completes a folder while it is typed: a recent one, else one of the machine. Nothing is suggested for existing or
    *recent* folders, since those are complete."""

    def __init__(self, recent: Sequence[str], folders: Callable[[str], Awaitable[Sequence[str]]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._recent, self._folders = recent, folders
        self.last = ("", "")
        """The text typed last, and its completion; empty if there is none."""

    async def get_suggestion(self, value: str) -> str | None:
        self.last = (value, "")
        if not value.strip() or value.endswith("/") or value in self._recent:
            return None
        try:
            folders = await self._folders(value)
        except KasmonError:
            return None
        if f"{value}/" in folders:
            return None
        recent = (folder for folder in self._recent if folder.startswith(value))
        found = next(recent, None) or next(iter(folders), None)
        self.last = (value, found or "")
        return found


class FolderField(DialogField):
    """The folder, the recent ones, and a notice on its config. *recent* are newest first."""

    def __init__(self, look: ThemeStyles, folder: str, recent: Sequence[str]) -> None:
        self.box = LineInput(folder, id="folder")
        self._recent = tuple(each for each in recent if each != folder)[:MOST_RECENT]
        self._choices = (folder, *self._recent)
        """The folders that the arrow keys choose among."""
        self._suggester: FolderSuggester | None = None
        self._offered, self._notice = Sentences(look, id="recent"), Sentences(look, id="brings")
        self._arrow = shown_key("down", look.utf8)
        super().__init__("Directory", Vertical(self.box, self._offered, self._notice))

    def on_mount(self) -> None:
        if self._recent:
            self._offered.say((f"{self._arrow} recent: {clean_line(', '.join(self._recent))}", Token.FAINT))

    @property
    def value(self) -> str:
        """The folder as it was written, without blanks around it."""
        return self.box.value.strip()

    def complete(self, folders: Callable[[str], Awaitable[Sequence[str]]]) -> None:
        """Complete what is typed; *folders* returns the folders of the machine that begin so."""
        self.box.suggester = self._suggester = FolderSuggester(self._choices, folders)

    def show_notice(self, notice: str = "") -> None:
        self._notice.say(*([(clean_line(notice), Token.NOTICE)] if notice else []))

    def takes(self, key: events.Key) -> bool:
        """Accept a completion by Tab, or choose a recent folder by the arrows; return whether there was one."""
        if key.key in ("up", "down") and self._recent:
            index = self._choices.index(self.box.value) if self.box.value in self._choices else 0
            self._write(self._choices[(index + (1 if key.key == "down" else -1)) % len(self._choices)])
            return True
        written, whole = self._suggester.last if self._suggester is not None else ("", "")
        if key.key == "tab" and whole and written == self.box.value:
            self._write(whole)
            return True
        return False

    def _write(self, folder: str) -> None:
        self.box.value = folder
        self.box.action_end()
