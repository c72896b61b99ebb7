"""Complete what is typed in the prompt box: `/` commands, `@` files, sessions and symbols, and earlier prompts."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from textual import events

from kasmon.model.events import SlashCommand
from kasmon.model.prompts.image import NAMED
from kasmon.model.session import Session
from kasmon.sanitize import clean_line
from kasmon.supervisor.worktrees.code_symbols import CodeSymbol
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.text_lines import DrawnLine, TextLines

SHOWN: Final = 6
MOST: Final = 60
"""How many can be chosen from."""
SYMBOL_LETTERS: Final = 2
"""Symbols are suggested from this many letters on."""
LABEL_CELLS: Final = 28
"""The labels of suggestions with a description are padded to this width."""
WRITTEN: Final = re.compile(r"(?:^|(?<=\s))@([^\s@]*)$")
COMMAND: Final = re.compile(r"/(\S*)")


class Suggestion(NamedTuple):
    """What can be chosen: *text* replaces what was typed."""

    text: str
    label: str
    about: str = ""


def find_mention(before: str) -> str | None:
    """Return the text after the `@` at the end of *before*; None if there is none."""
    found = WRITTEN.search(before)
    return None if found is None else found[1]


def find_command(before: str) -> str | None:
    """Return the text after the `/` that *before*, the beginning of a prompt, consists of; None for other text."""
    found = COMMAND.fullmatch(before)
    return None if found is None else found[1]


def find_matches(files: Sequence[str], query: str, most: int = SHOWN) -> list[str]:
    """Return the best matches of *query*: by the beginning of the name, then of the path, then anywhere in it."""
    if not query:
        return [*files[:most]]
    ranks: tuple[list[str], ...] = ([], [], [], [])
    for file in files:
        if (rank := _rank(file.casefold(), query.casefold())) is not None:
            ranks[rank].append(file)
    return [file for rank in ranks for file in rank][:most]


def mention(file: str) -> str:
    """Return *file* as agents read it after an `@`."""
    return f'@"{file}"' if " " in file else f"@{file}"


def find_pasted_picture(text: str) -> str:
    """Return the absolute path of a picture that *text*, a whole paste, is; empty if it is something else.

    Terminals paste a dropped file quoted, with backslashes, or as an address.
    """
    path = text.strip()
    if path.startswith("file://"):
        path = unquote(path.removeprefix("file://").removeprefix("localhost"))
    elif path[:1] in ("'", '"') and path[-1:] == path[:1]:
        path = path[1:-1]
    else:
        path = re.sub(r"\\(.)", r"\1", path)
    is_file = path.startswith("/") and NAMED.search(path) is not None
    return path if is_file and '"' not in path and clean_line(path) == path else ""


def suggest_commands(commands: Iterable[SlashCommand], query: str) -> list[Suggestion]:
    """Return the commands that match *query*; none if that is the whole name of one."""
    by_name = {each.command: each for each in commands}
    if query in by_name:
        return []
    found = [by_name[name] for name in find_matches([*by_name], query, MOST)]
    return [Suggestion(f"/{each.command} ", f"/{each.command} {each.hint}".strip(), each.text) for each in found]


def suggest_mentions(
    files: Sequence[str], sessions: Iterable[Session], symbols: Iterable[CodeSymbol], query: str
) -> list[Suggestion]:
    """Return files, sessions and symbols that match *query*, the best matches first; none if *query* names a file."""
    matching = find_matches(files, query, MOST)
    if matching[:1] == [query]:
        return []
    wanted, ranked = query.casefold(), list[tuple[int, Suggestion]]()
    for file in matching:
        rank = _rank(file.casefold(), wanted) or 0
        ranked.append((rank, Suggestion(mention(file) + ("" if file.endswith("/") else " "), file)))
    for session in sessions:
        name, folder = clean_line(session.label), clean_line(session.workdir)
        if (rank_of := _rank(name.casefold(), wanted)) is not None and rank_of < 3:
            text = f'the session "{name}" ({folder}) ' if folder else f'the session "{name}" '
            ranked.append((rank_of, Suggestion(text, name, f"session · {clean_line(session.agent)} · {folder}")))
    if len(query) >= SYMBOL_LETTERS:
        for symbol in symbols:
            folded = symbol.name.casefold()
            if wanted in folded:
                where = f"{symbol.file}:{symbol.line}"
                text = f"`{symbol.name}` in {mention(symbol.file)} line {symbol.line} "
                ranked.append((0 if folded.startswith(wanted) else 2, Suggestion(text, symbol.name, where)))
    ranked.sort(key=lambda each: each[0])
    return [suggestion for _, suggestion in ranked[:MOST]]


def suggest_prompts(prompts: Iterable[str], query: str) -> list[Suggestion]:
    """Return the earlier *prompts*, the last one last, that contain *query*; the latest first."""
    wanted = query.strip().casefold()
    found = [prompt for prompt in reversed([*prompts]) if wanted in prompt.casefold()]
    return [Suggestion(prompt, clean_line(" ".join(prompt.split()))) for prompt in found[:MOST]]


class Suggestions(TextLines):
    """Suggestions, one of them chosen; hidden while there are none."""

    def __init__(self, look: ThemeStyles) -> None:
        super().__init__(look, "raised", id="offered")
        self.offered: list[Suggestion] = []
        self.chosen = 0

    def offer(self, suggestions: Iterable[Suggestion]) -> None:
        """Offer these, the first of them chosen. Nothing changes if they are the same as before."""
        suggestions = [*suggestions]
        if suggestions != self.offered:
            self.offered, self.chosen = suggestions, 0
            self._update()

    def move(self, by: int) -> None:
        if self.offered:
            self.chosen = (self.chosen + by) % len(self.offered)
            self._update()

    def accept(self) -> str:
        """Return the text of the chosen one, and close the list."""
        text = self.offered[self.chosen].text
        self.offer(())
        return text

    @property
    def _first(self) -> int:
        return max(0, min(self.chosen - SHOWN // 2, len(self.offered) - SHOWN))

    def _update(self) -> None:
        shown = self.offered[self._first : self._first + SHOWN]
        width = min(max((len(each.label) for each in shown), default=0), LABEL_CELLS)
        lines: list[DrawnLine] = []
        for number, each in enumerate(shown, self._first):
            is_selected = number == self.chosen
            mark = self.look.mark("cursor") if is_selected else " "
            label = f"{each.label:<{width}}" if each.about else each.label
            about = f"  {each.about}" if each.about else ""
            count = f"{number + 1}/{len(self.offered)} " if is_selected and len(self.offered) > SHOWN else ""
            lines.append(
                DrawnLine(
                    ((f" {mark} ", "accent"), (label, "text.bold" if is_selected else "soft"), (about, "faint")),
                    ((count, "faint"),),
                )
            )
        self.say(*lines)

    def on_click(self, event: events.Click) -> None:
        if self._first + event.y < len(self.offered):
            event.stop()
            self.chosen = self._first + event.y
            self._update()


def _rank(path: str, wanted: str) -> int | None:
    """Return how well *path* matches *wanted*, 0 best; None if it does not. Both are case-folded."""
    if path.rstrip("/").rpartition("/")[2].startswith(wanted):
        return 0
    if path.startswith(wanted):
        return 1
    if wanted in path:
        return 2
    return 3 if _in_order(wanted, path) else None


def _in_order(letters: str, path: str) -> bool:
    rest = iter(path)
    return all(letter in rest for letter in letters)
