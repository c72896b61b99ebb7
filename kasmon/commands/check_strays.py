"""What `kasmon doctor` says of what sandboxes left that no session knows, and what `--fix` removes of it."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kasmon.commands.check import Check
from kasmon.errors import KasmonError
from kasmon.paths import Places
from kasmon.supervisor.look import look_once

if TYPE_CHECKING:
    from kasmon.sandbox.jail.stray import Stray


def strays(where: Places) -> Iterator[Check]:
    """Grounds, work and jails that no session knows; only Linux has any."""
    if sys.platform == "linux":
        with contextlib.suppress(KasmonError, OSError):
            yield from _left(where)


def _left(where: Places) -> Iterator[Check]:
    from kasmon.sandbox.jail import stray  # only where there can be one

    found = stray.strays(where, {session.id for session in look_once(where).sessions})
    gone = [each for each in found if each.can_go]
    groups = stray.empty_groups()
    if gone or groups:
        text = f"{len(gone)} folders and {len(groups)} empty control groups of sandboxes that no session knows"
        fix = "`kasmon doctor --fix` removes them."
        yield Check(id="sandbox-left", level="warn", text=text, fix=fix, mend=partial(_remove, gone, groups))
    if work := [str(each.folder / "workspace") for each in found if each.holds_work]:
        text = f"what was made in sandboxes that no session knows any more: {', '.join(work)}"
        yield Check(id="sandbox-work", level="warn", text=text, fix="Take from it what you want; `rm -r` deletes it.")
    if alive := [f"{each.folder} (process {each.process})" for each in found if each.process is not None]:
        text = f"sandboxes live that no session knows: {', '.join(alive)}"
        yield Check(id="sandbox-alive", level="warn", text=text, fix="`kill -9` of that process ends one, all of it.")


def _remove(strays: Sequence["Stray"], groups: Sequence[Path]) -> None:
    from kasmon.sandbox.jail.stray import remove

    for each in strays:
        with contextlib.suppress(OSError):  # the next look tells of it again
            remove(each)
    for group in groups:
        with contextlib.suppress(OSError):
            group.rmdir()
