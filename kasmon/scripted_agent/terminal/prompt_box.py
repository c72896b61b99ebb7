"""The prompt box: text of several lines with a cursor, and its rows at a width."""

from typing import Final

from kasmon.model.transcript.text import TextLine, Token, cells, wrap
from kasmon.sanitize import clean_block
from kasmon.scripted_agent.terminal.keyboard import Key

MARK: Final = "❯ "
DRAWN: Final = 4000
"""How many characters around the cursor are drawn; a longer draft is still stored whole."""


class ScriptedPromptBox:
    """The draft and its cursor."""

    def __init__(self) -> None:
        self.text = ""
        self._cursor = 0

    def pop_text(self) -> str:
        text, self.text, self._cursor = self.text, "", 0
        return text

    def press(self, key: Key) -> None:
        """Edit by *key*; no effect if it has no meaning here."""
        before, behind = self.text[: self._cursor], self.text[self._cursor :]
        match key.name:
            case "text" | "paste":
                self._set(before + key.text, behind)
            case "newline":
                self._set(before + "\n", behind)
            case "backspace":
                self._set(before[:-1], behind)
            case "delete":
                self._set(before, behind[1:])
            case "ctrl-u":
                self._set(before[: before.rfind("\n") + 1], behind)
            case "ctrl-k":
                self._set(before, behind[behind.find("\n") :] if "\n" in behind else "")
            case "ctrl-w":
                kept = before.rstrip()
                self._set(kept[: max(kept.rfind(" "), kept.rfind("\n")) + 1], behind)
            case "left":
                self._cursor = max(0, self._cursor - 1)
            case "right":
                self._cursor = min(len(self.text), self._cursor + 1)
            case "home":
                self._cursor = before.rfind("\n") + 1
            case "end":
                self._cursor = len(before) + (behind.find("\n") if "\n" in behind else len(behind))

    def rows(self, width: int, most: int) -> tuple[list[TextLine], tuple[int, int]]:
        """Return at most *most* rows around the cursor, and the cursor's row and column among them."""
        above = self._fitted(self.text[max(0, self._cursor - DRAWN) : self._cursor], width)
        whole = self._fitted(self.text[max(0, self._cursor - DRAWN) : self._cursor + DRAWN], width)
        row, column = len(above) - 1, cells(above[-1].text)
        if column >= width:
            row, column = row + 1, 0
        whole += [TextLine()] * (row + 1 - len(whole))
        first = max(0, min(row - most + 1, len(whole) - most))
        return whole[first : first + most], (row - first, column)

    def _set(self, before: str, behind: str) -> None:
        self.text, self._cursor = before + behind, len(before)

    def _fitted(self, text: str, width: int) -> list[TextLine]:
        rows: list[TextLine] = []
        for line in clean_block(text).split("\n"):
            mark = MARK if not rows else "  "
            margin = ((mark, Token.PROMPT),)
            rows += wrap([(line or " ", Token.TEXT)], width, margin, (("  ", Token.PROMPT),), words=False)
        if text.endswith("\n") or not text:
            rows[-1] = TextLine((rows[-1].spans[0],))
        return rows
