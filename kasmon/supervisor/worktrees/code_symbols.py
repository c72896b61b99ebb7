"""Where the code of a session's folder defines names, for completion: found by git's search, without an index."""

import re
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import KasmonError
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.git import git
from kasmon.sanitize import clean_line
from kasmon.supervisor.machines.dispatch import dispatch
from kasmon.supervisor.worktrees.file_listing import MOST_SENT

MOST: Final = 10_000
NAME_LENGTH: Final = 80
"""A longer name is generated code."""
KEYWORDS: Final = "class|def|enum|fn|func|function|interface|module|struct|trait|type"
DEFINITION: Final = (
    rf"^[ \t]*((export|default|public|private|protected|static|abstract|async|pub|pub\(crate\)|final|unsafe)[ \t]+)*"
    rf"({KEYWORDS})[ \t]+[A-Za-z_][A-Za-z0-9_]*"
)
"""A line of most languages that defines a name, for `git grep -E`."""
GO_RECEIVER: Final = r"^func[ \t]*\([^)]*\)[ \t]*[A-Za-z_][A-Za-z0-9_]*"
NAME: Final = re.compile(rf"(?:\b(?:{KEYWORDS})[ \t]+|^func[ \t]*\([^)]*\)[ \t]*)([A-Za-z_][A-Za-z0-9_]*)")


class CodeSymbol(msgspec.Struct, frozen=True):
    """Where a function, a class or another name is defined."""

    name: str
    file: str
    """Relative to the folder."""
    line: int


@dispatch
def list_symbols(paths: Paths, session: Session) -> list[CodeSymbol]:
    """Return the definitions in the session's folder, as `find_symbols`."""
    return find_symbols(Path(session.workdir or "."))


class _Symbols(msgspec.Struct, frozen=True):
    """What `kasmon show --symbols --json` prints."""

    symbols: tuple[CodeSymbol, ...]


@list_symbols.elsewhere
def _list_symbols_there(paths: Paths, session: Session) -> list[CodeSymbol]:
    from kasmon.supervisor.machines.link_client import parse_reply, run_for  # only for other machines

    found = parse_reply(session.via, run_for(paths, session, "show", session.id, "--symbols"), _Symbols).symbols
    return [each for each in found[:MOST_SENT] if clean_line(each.name + each.file) == each.name + each.file]


def find_symbols(folder: Path, most: int = MOST) -> list[CodeSymbol]:
    """Return at most *most* definitions in the files below *folder* that git does not ignore. Never raises. Blocks.

    Outside a repository there are none. A comment that looks like a definition counts as one.
    """
    arguments = ("-I", "-n", "--no-color", "--null", "--untracked", "-E", "-e", DEFINITION, "-e", GO_RECEIVER)
    try:
        output = git(folder, "grep", *arguments, fails=True)
    except KasmonError:
        return []
    symbols: list[CodeSymbol] = []
    for row in output.splitlines():
        file, _, rest = row.partition("\0")
        number, _, code = rest.partition("\0")
        if (found := NAME.search(code)) is None or not number.isdecimal() or clean_line(file) != file:
            continue
        if len(found[1]) <= NAME_LENGTH:
            symbols.append(CodeSymbol(found[1], file, int(number)))
        if len(symbols) >= most:
            break
    return symbols
