"""Complete `@` and a file's name in the prompt box: the text so far, the matching files, and their list."""

import re
from collections.abc import Sequence
from typing import Final

from textual import events

from kasmon.tui.theme.look import Span, ThemeStyles
from kasmon.tui.widgets.text_lines import DrawnLine, TextLines

MOST: Final = 6
"""How many files are offered at once."""
WRITTEN: Final = re.compile(r"(?:^|(?<=\s))@([^\s@]*)$")


def written(before: str) -> str | None:
    """Return the text after the `@` at the end of *before*; None if there is none."""
    found = WRITTEN.search(before)
    return None if found is None else found[1]


def fitting(files: Sequence[str], words: str, most: int = MOST) -> list[str]:
    """Return the best matches of *words*: by the beginning of the name, then of the path, then anywhere in it."""
    wanted = words.casefold()
    if not wanted:
        return [*files[:most]]
    ranks: tuple[list[str], ...] = ([], [], [], [])
    for file in files:
        path = file.casefold()
        if path.rstrip("/").rpartition("/")[2].startswith(wanted):
            ranks[0].append(file)
        elif path.startswith(wanted):
            ranks[1].append(file)
        elif wanted in path:
            ranks[2].append(file)
        elif _in_order(wanted, path):
            ranks[3].append(file)
    return [file for rank in ranks for file in rank][:most]


def mention(file: str) -> str:
    """Return *file* as agents read it after an `@`."""
    return f'@"{file}"' if " " in file else f"@{file}"


class FileSuggestions(TextLines):
    """The matching files, one of them chosen; hidden while there are none."""

    def __init__(self, look: ThemeStyles) -> None:
        super().__init__(look, "raised", id="offered")
        self.files: list[str] = []
        self.chosen = 0

    def offer(self, files: Sequence[str]) -> None:
        """Offer these, the first of them chosen."""
        self.files, self.chosen = [*files], 0
        self._update()

    def move(self, by: int) -> None:
        """Choose another one."""
        if self.files:
            self.chosen = (self.chosen + by) % len(self.files)
            self._update()

    def accept(self) -> str:
        """Return the chosen file, and close the list."""
        file = self.files[self.chosen]
        self.offer(())
        return file

    def _update(self) -> None:
        lines: list[DrawnLine] = []
        for number, file in enumerate(self.files):
            here = number == self.chosen
            mark = self.look.mark("cursor") if here else " "
            span: Span = (file, "text.bold" if here else "soft")
            lines.append(DrawnLine(((f" {mark} ", "accent"), span)))
        self.say(*lines)

    def on_click(self, event: events.Click) -> None:
        if event.y < len(self.files):
            event.stop()
            self.chosen = event.y
            self._update()


def _in_order(letters: str, path: str) -> bool:
    rest = iter(path)
    return all(letter in rest for letter in letters)
