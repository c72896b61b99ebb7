"""What an agent's sandbox gets, before it is made: as a policy, in words, and whether a person has agreed to it.

What is handed to a sandbox leaves kasmon's hands: so a person says once that it may, for exactly what a profile says.
"""

import hashlib
import os
from collections.abc import Mapping
from typing import Final

import msgspec

from kasmon.config import Resolved
from kasmon.errors import RefusedError, UsageError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import SIZES, Mount, Policy, Tier
from kasmon.paths import Places, expanded, write_private
from kasmon.sandbox import credential, handing
from kasmon.sandbox.network.allow import allowlist

AGREED: Final = "sandboxes-agreed.json"
"""In the state folder: what was agreed to -> the profile's name."""

TOLD: Final[Mapping[Tier, tuple[str, str]]] = {
    "jail": (
        "{}, the programs of this machine",
        "{} of memory where a control group is ours (each of its processes a few GB where none is)",
    ),
    "gvisor": ("{}, the programs of this machine", "as much memory as there is, since gVisor holds none to a limit"),
    "microvm": ("{} as /workspace, the programs of its image", "{} of memory"),
    "e2b": ("what is in {}, the programs of its template", "the memory that its template has"),
}
"""Tier -> what an agent in it sees, and what it may use: of its folder, and of its size's memory."""


def policy_of(resolved: Resolved) -> Policy:
    """The sandbox that *resolved* asks for, of a session that has no id yet.

    Raises:
        UsageError, RefusedError: if what its profile says of it makes no sense.
    """
    confined = resolved.confined
    where = f"agents.{resolved.agent}.confined"
    for described in confined.credentials:
        if why := credential.fault(described):
            raise UsageError(f"the sandbox cannot be made: {why}.", hint=f"See {where} in the config.")
    allowlist(confined.network)
    for file in confined.files:
        handing.place(file)
    for mount in confined.mounts:
        if not os.path.lexists(expanded(mount.source)):
            raise RefusedError(f"{mount.source!r} is not there.", hint=f"See {where}.mounts in the config.")
    return Policy(
        session=SessionId(""),
        tier=resolved.sandbox or "jail",
        size=confined.size,
        template=confined.template,
        project=str(expanded(confined.project)) if confined.project else "",
        project_writable=confined.project_writable,
        hosts=confined.network,
        mounts=tuple(_mount(mount) for mount in confined.mounts),
        credentials=confined.credentials,
        files=confined.files,
    )


def told(resolved: Resolved, workdir: str) -> tuple[str, ...]:
    """What the sandbox of an agent that works in *workdir* gets, a sentence each."""
    confined, size = resolved.confined, SIZES[resolved.confined.size]
    reaches = f"may reach {', '.join(confined.network)}" if confined.network else "reaches nobody by network"
    sees, memory = TOLD.get(resolved.sandbox or "jail", TOLD["jail"])
    lines = [
        f"It sees {sees.format(repr(workdir))}, and a home folder of its own; it {reaches}.",
        f"It may use {memory.format(f'{size.memory_bytes >> 20} MB')}, and {size.processes} processes.",
    ]
    if confined.project:
        lines.append(f"It sees {confined.project!r} as /project{', for writing' if confined.project_writable else ''}.")
    lines += [f"It sees {mount.source!r}{', for writing' if mount.writable else ''}." for mount in confined.mounts]
    return (*lines, *_handed(resolved))


def _handed(resolved: Resolved) -> tuple[str, ...]:
    """What it is handed, a sentence each."""
    lines = []
    if files := given(resolved):
        lines.append(f"It gets copies of {', '.join(files)}, which are taken away when it ends.")
    if renewed := [file.source for file in resolved.confined.files if file.renews and file.source in files]:
        lines.append(f"Tokens that it renews in {', '.join(renewed)} are brought back then.")
    for known in resolved.confined.credentials:
        source = known.variable or known.file or (known.command[0] if known.command else "")
        lines.append(f"It gets {', '.join((known.name, *known.aliases))}, from {source!r}.")
    return tuple(lines)


def given(resolved: Resolved) -> tuple[str, ...]:
    """Those of the files that its profile hands over that are there."""
    return tuple(file.source for file in resolved.confined.files if expanded(file.source).exists())


def is_agreed(places: Places, resolved: Resolved) -> bool:
    """Whether its sandbox is handed nothing, or a person has agreed to just this."""
    if not given(resolved) and not resolved.confined.credentials:
        return True
    return _digest(resolved) in _agreed(places)


def check_agreed(places: Places, resolved: Resolved, *, agrees: bool) -> None:
    """Note what a person agrees to now.

    Raises:
        RefusedError: if nobody has agreed, now or before, to what its sandbox is handed.
    """
    if is_agreed(places, resolved):
        return
    if not agrees:
        handed = [*given(resolved), *(known.name for known in resolved.confined.credentials)]
        raise RefusedError(
            f"the sandbox of {resolved.agent!r} is handed {', '.join(handed)}, and nobody has agreed to that yet.",
            hint=f"`kasmon new NAME --agent {resolved.agent} --sandbox {resolved.sandbox or 'jail'} --yes` does, once"
            f" for what the profile says. What is handed over stands in agents.{resolved.agent}.confined.",
        )
    places.make()
    known = _agreed(places) | {_digest(resolved): resolved.agent}
    write_private(places.state / AGREED, msgspec.json.encode(known))


def _digest(resolved: Resolved) -> str:
    """By which it is known later to be just this. Whom it may reach and what it sees belong to what is handed over."""
    confined = resolved.confined
    handed = [confined.files, confined.credentials, confined.network]
    seen = [confined.mounts, confined.project, confined.project_writable]
    return hashlib.sha256(msgspec.json.encode([resolved.agent, *handed, *seen])).hexdigest()


def _agreed(places: Places) -> dict[str, str]:
    try:
        return msgspec.json.decode((places.state / AGREED).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _mount(mount: Mount) -> Mount:
    source = str(expanded(mount.source))
    return msgspec.structs.replace(mount, source=source, target=mount.target or source)
