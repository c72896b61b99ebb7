"""The slash commands that an agent announces, as one event."""

from collections.abc import Iterable
from typing import Final

from kasmon.model.events import CommandsAnnounced, SlashCommand
from kasmon.sanitize import clean_line, first_line

MOST: Final = 400
LONGEST: Final = 160
"""How many characters of each text are kept."""


def build_announcement(commands: Iterable[tuple[str, str, str]], at: float) -> CommandsAnnounced:
    """Return the event for *commands*: each its name, with or without the slash, its description and its arguments.

    A name with white space or unprintable characters is left out, since a prompt could not run it.
    """
    kept: dict[str, SlashCommand] = {}
    for given, text, hint in commands:
        name = given.strip().removeprefix("/")
        is_name = 0 < len(name) <= LONGEST and not any(character.isspace() for character in name)
        if is_name and clean_line(name) == name:
            shown = clean_line(first_line(text))[:LONGEST]
            command = SlashCommand(command=name, text=shown, hint=clean_line(hint)[:LONGEST])
            kept.setdefault(name, command)
        if len(kept) >= MOST:
            break
    return CommandsAnnounced(at=at, slash_commands=tuple(kept.values()))
