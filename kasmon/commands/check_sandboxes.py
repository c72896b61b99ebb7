"""What `kasmon doctor` says of sandboxes: whether a jail can be made, what it does not hold, what others have left."""

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

SHARED = "a jail shares this machine's kernel: it is no wall against an attack on that"
DISK = "how much its files take is looked at every few seconds, and what fills them further is interrupted"


def sandboxes(where: Places) -> Iterator[Check]:
    """Whether jails can be made, and what of them is left that no session knows. Makes none."""
    if sys.platform != "linux":
        yield Check(id="sandbox", level="ok", text="jails need Linux: there are none here")
        return
    yield _jail()
    with contextlib.suppress(KasmonError, OSError):
        yield from _left(where)


def _jail() -> Check:
    from kasmon.sandbox.jail import cgroup  # only where there can be one
    from kasmon.sandbox.jail.probing import lacking

    if found := lacking("bwrap"):
        return Check(id="sandbox", level="warn", text=f"no jail can be made: {found.why}", fix=found.hint)
    held = cgroup.holding()
    loose = [name for name, is_held in (("memory", held.memory), ("processor", held.cpus)) if not is_held]
    limits = f"no control group of ours limits {' and '.join(loose)} of all in it together" if loose else ""
    return Check(id="sandbox", level="ok", text="; ".join(filter(None, (SHARED, limits, DISK))))


def _left(where: Places) -> Iterator[Check]:
    from kasmon.sandbox.jail.stray import empty_groups, strays

    found = strays(where, {session.id for session in look_once(where).sessions})
    gone = [each for each in found if each.can_go]
    groups = empty_groups()
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
