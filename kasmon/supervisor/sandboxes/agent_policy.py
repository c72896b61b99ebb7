"""What an agent's sandbox will get: as a policy, as text, and whether the user has confirmed it.

kasmon has no control over what a sandbox gets. So the user confirms once, for exactly the profile's settings.
"""

import hashlib
import os
from collections.abc import Mapping
from typing import Final

import msgspec

from kasmon.config import ResolvedProfile
from kasmon.errors import RefusedError, UsageError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SIZES, SandboxPolicy, Tier
from kasmon.paths import Paths, expanded, read_json, write_private
from kasmon.sandbox.agent import credential_files
from kasmon.sandbox.network.allowlist import allowlist
from kasmon.sandbox.shared import credentials

AGREED: Final = "sandboxes-agreed.json"
"""In the state folder: digest of the confirmed grants -> the profile's name."""

TOLD: Final[Mapping[Tier, tuple[str, str]]] = {
    "jail": (
        "{}, the programs of this machine",
        "{} of memory where kasmon may limit it with a control group; else a few GB for each process",
    ),
    "microvm": ("{} as /workspace, the programs of its image", "{} of memory"),
    "e2b": ("what is in {}, the programs of its template", "the memory that its template has"),
}
"""Tier -> what its agent sees, with a place for its folder, and what it may use, with a place for its memory."""


def policy_of(resolved: ResolvedProfile) -> SandboxPolicy:
    """Return the sandbox policy for *resolved*, of a session that has no id yet.

    Raises `UsageError` or `RefusedError` if the profile's sandbox settings are invalid.
    """
    confined = resolved.confined
    where = f"agents.{resolved.agent}.confined"
    for credential in confined.credentials:
        if why := credentials.fault(credential):
            raise UsageError(f"the sandbox cannot be created: {why}.", hint=f"See {where} in the config.")
    allowlist(confined.network)
    allowlist(confined.refuse)
    for file in confined.files:
        credential_files.target_path(file)
    mounts = []
    for mount in confined.mounts:
        source = expanded(mount.source)
        mounts.append(msgspec.structs.replace(mount, source=str(source), target=mount.target or str(source)))
        if not os.path.lexists(source):
            raise RefusedError(f"{mount.source!r} does not exist.", hint=f"See {where}.mounts in the config.")
    return SandboxPolicy(
        session=SessionId(""),
        tier=resolved.sandbox or "jail",
        size=confined.size,
        template=confined.template,
        project=str(expanded(confined.project)) if confined.project else "",
        project_writable=confined.project_writable,
        hosts=confined.network,
        refuse=confined.refuse,
        mounts=tuple(mounts),
        credentials=confined.credentials,
        files=confined.files,
    )


def describe_sandbox(resolved: ResolvedProfile, workdir: str) -> tuple[str, ...]:
    """Describe what the sandbox of an agent in *workdir* gets, a sentence each."""
    confined, size = resolved.confined, SIZES[resolved.confined.size]
    reaches = f"may reach {', '.join(confined.network)}" if confined.network else "has no network access"
    sees, memory = TOLD.get(resolved.sandbox or "jail", TOLD["jail"])
    lines = [
        f"It sees {sees.format(repr(workdir))}, and a home folder of its own; it {reaches}.",
        f"It may use {memory.format(f'{size.memory_bytes >> 20} MB')}, and {size.processes} processes.",
    ]
    if confined.network and confined.refuse:
        lines.append(f"Refused without a request: {', '.join(confined.refuse)}.")
    if confined.project:
        lines.append(f"It sees {confined.project!r} as /project{', for writing' if confined.project_writable else ''}.")
    lines += [f"It sees {mount.source!r}{', for writing' if mount.writable else ''}." for mount in confined.mounts]
    return (*lines, *_describe_files(resolved))


def _describe_files(resolved: ResolvedProfile) -> tuple[str, ...]:
    """Describe the files and credentials it gets, a sentence each."""
    lines = []
    if files := granted_files(resolved):
        lines.append(f"It gets copies of {', '.join(files)}, which are deleted when it ends.")
    if renewed := [file.source for file in resolved.confined.files if file.renews and file.source in files]:
        lines.append(f"Tokens that it renews in {', '.join(renewed)} are then copied back.")
    for known in resolved.confined.credentials:
        source = known.variable or known.file or (known.command[0] if known.command else "")
        lines.append(f"It gets {', '.join((known.name, *known.aliases))}, from {source!r}.")
    return tuple(lines)


def granted_files(resolved: ResolvedProfile) -> tuple[str, ...]:
    """Return those of the files granted by its profile that exist."""
    return tuple(file.source for file in resolved.confined.files if expanded(file.source).exists())


def is_agreed(paths: Paths, resolved: ResolvedProfile) -> bool:
    """Whether its sandbox gets no files or credentials, or the user has confirmed exactly these."""
    if not granted_files(resolved) and not resolved.confined.credentials:
        return True
    return _digest(resolved) in _read_agreements(paths)


def check_agreed(paths: Paths, resolved: ResolvedProfile, *, agrees: bool) -> None:
    """Check that the grants are confirmed; with *agrees*, record the confirmation.

    Raises `RefusedError` if the user has not confirmed, now or before, what its sandbox gets.
    """
    if is_agreed(paths, resolved):
        return
    if not agrees:
        handed = [*granted_files(resolved), *(known.name for known in resolved.confined.credentials)]
        raise RefusedError(
            f"the sandbox of {resolved.agent!r} would get {', '.join(handed)}, which has not been confirmed yet.",
            hint=f"`kasmon new NAME --agent {resolved.agent} --sandbox {resolved.sandbox or 'jail'} --yes` "
            f"confirms it, once per profile. The list is in agents.{resolved.agent}.confined.",
        )
    paths.make()
    known = _read_agreements(paths) | {_digest(resolved): resolved.agent}
    write_private(paths.state / AGREED, msgspec.json.encode(known))


def _digest(resolved: ResolvedProfile) -> str:
    """Return the digest of the confirmed grants. It includes the reachable hosts and the visible folders."""
    confined = resolved.confined
    handed = [confined.files, confined.credentials, confined.network]
    seen = [confined.mounts, confined.project, confined.project_writable]
    return hashlib.sha256(msgspec.json.encode([resolved.agent, *handed, *seen])).hexdigest()


def _read_agreements(paths: Paths) -> dict[str, str]:
    return read_json(paths.state / AGREED, dict[str, str], {})
