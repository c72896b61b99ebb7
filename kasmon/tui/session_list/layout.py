"""How the user arranged the list, as it is kept for the next start. Pure."""

from enum import StrEnum
from typing import Final

import msgspec

COLUMNS: Final = {
    "machine": "machine",
    "agent": "agent",
    "mode": "mode",
    "wave": "wave",
    "branch": "branch",
    "tags": "tags",
    "since": "age",
    "line": "activity",
    "seen": "source",
    "tokens": "tokens",
    "cost": "cost",
}
"""The key of each column that can be hidden or moved, with its title, in the usual order."""
MOST_FILTERS: Final = 20
MOST_FOLDED: Final = 200
"""The most folded headings that are kept."""


class GroupKey(StrEnum):
    """By what the rows are grouped."""

    NONE = ""
    WAVE = "wave"
    TAG = "tag"
    FOLDER = "folder"
    PLAN = "plan"
    MACHINE = "machine"
    ACCOUNT = "account"


class SavedFilter(msgspec.Struct, frozen=True):
    """A filter of the list that is shown as a tab."""

    name: str
    text: str


class ListLayout(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of the settings of the list."""

    group: GroupKey = GroupKey.NONE
    folded: tuple[str, ...] = ()
    filters: tuple[SavedFilter, ...] = ()
    """The saved filters, in the order of their tabs."""
    columns: tuple[str, ...] = ()
    """The columns after state and name, by key, in their order; empty for the usual ones."""
