"""Create interpreter sessions: policy, files, announcement to the fleet; and clean up what is left of them."""

import contextlib
import shutil
import socket
import time
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from kasmon.config import Config, SandboxConfig
from kasmon.errors import KasmonError, SandboxError, UsageError
from kasmon.model.commands import Launch, Mode
from kasmon.model.events import SessionCreated, SessionForgotten
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import SandboxPolicy, Tier
from kasmon.model.sandbox.snapshot import ForkOrigin
from kasmon.paths import Paths, expanded, require_folder, write_private
from kasmon.sandbox import tiers
from kasmon.sandbox.managed.idle_policy import store_origin
from kasmon.sandbox.shared import credentials
from kasmon.sandbox.shared.cleanup import forget_removed_tier
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sandboxes.availability import must_be_there
from kasmon.supervisor.sessions.names import announce, check_name, claim_id, note

BACKEND: Final = "interpreter"
CALLED: Final = "interpreters"


class NewSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """The request for an interpreter sandbox; omitted settings come from the config."""

    name: str
    tier: Tier | None = None
    size: Literal["default", "build", "max"] | None = None
    folder: str = ""
    """The folder mounted as /workspace; empty for a folder of its own, which is deleted with the session."""
    project: str | None = None
    """The folder mounted as /project."""
    project_writable: bool | None = None
    hosts: Sequence[str] | None = None


def policy_of(config: SandboxConfig, session: SessionId, **given: object) -> SandboxPolicy:
    """Return the policy of the sandbox of *session* from *config*, overridden by *given*.

    Raises `UsageError` if the description of a credential is invalid.
    """
    for described in config.credentials:
        if why := credentials.fault(described):
            raise UsageError(f"the sandbox cannot be created: {why}.", hint="See the config's [sandbox].")
    policy = SandboxPolicy(
        session=session,
        tier=config.tier,
        size=config.size,
        template=config.template,
        project=str(expanded(config.project)) if config.project else "",
        project_writable=config.project_writable,
        hosts=config.network,
        refuse=config.refuse,
        mounts=config.mounts,
        volatile=config.volatile,
        services=config.services,
        credentials=config.credentials,
    )
    return msgspec.structs.replace(policy, **given)


def prepare(paths: Paths, config: Config, new_sandbox: NewSandbox, at: float) -> Launch:
    """Create the session and announce it to the fleet; return its launch.

    Raises:
        NoSandboxError: if no sandbox of its tier can be created here.
        KasmonError: as `sandbox_operations.create`.
    """
    name = check_name(new_sandbox.name)
    given: dict[str, object] = {
        "tier": new_sandbox.tier,
        "size": new_sandbox.size,
        "workspace": str(require_folder(new_sandbox.folder)) if new_sandbox.folder else None,
        "project": str(require_folder(new_sandbox.project)) if new_sandbox.project else None,
        "project_writable": new_sandbox.project_writable,
        "hosts": None if new_sandbox.hosts is None else tuple(new_sandbox.hosts),
    }
    given = {key: value for key, value in given.items() if value is not None}
    policy = policy_of(config.sandbox, SessionId(""), **given)
    must_be_there(paths, policy.tier)
    return create_session(paths, name, policy, at)


def create_session(
    paths: Paths, name: str, policy: SandboxPolicy, at: float, origin: ForkOrigin | None = None
) -> Launch:
    """Create and announce a session called *name* with a sandbox like *policy*; return its launch.

    *origin*: the snapshot that it is to be a copy of.
    """
    sandbox = tiers.load(policy.tier)
    with claim_id(paths) as session:
        policy = msgspec.structs.replace(policy, session=session)
        launch = Launch(
            session=session,
            name=name,
            agent=CALLED,
            mode=Mode.INTERPRETER,
            backend=BACKEND,
            workdir=sandbox.workspace(policy),
            sandbox=policy.tier,
            created_at=at,
        )
        write_private(paths.sandbox(session), msgspec.json.encode(policy))
        write_private(paths.launch(session), msgspec.json.encode(launch))
        if origin is not None:
            store_origin(paths, session, origin)
        announce(paths, SessionCreated(at=launch.created_at, launch=launch, machine=socket.gethostname()))
    return launch


def delete_unstarted(paths: Paths, session: SessionId) -> None:
    remove_sandbox(paths, session)
    note(paths, SessionForgotten(at=time.time(), session=session))
    shutil.rmtree(paths.folder(session), ignore_errors=True)


def remove_sandbox(paths: Paths, session: SessionId) -> str:
    """Remove what is left of an ended sandbox; return the path of its work if that is a copy, which stays."""
    kept = ""
    with contextlib.suppress(SandboxError):
        policy = tiers.policy_of(paths, session)
        if policy.tier in tiers.TIERS:
            sandbox = tiers.load(policy.tier)
            sandbox.destroy(policy, None)
            kept = sandbox.forget(policy)
        else:
            kept = forget_removed_tier(paths, policy)
    shutil.rmtree(paths.checkpoints(session), ignore_errors=True)
    paths.inherited(session).unlink(missing_ok=True)
    paths.socket(session).unlink(missing_ok=True)
    return kept


def remove_stray_jails(paths: Paths) -> tuple[str, ...]:
    """End and remove our jails that belong to no session; return the folders with work, which stay."""
    from kasmon.sandbox.jail.jail import Jail  # rarely needed
    from kasmon.sandbox.jail.strays import strays

    kept: list[str] = []
    jail, known = Jail(paths), {session.id for session in read_fleet(paths).sessions}
    for stray in strays(paths, known):
        if not stray.is_ours:
            continue
        policy = SandboxPolicy(session=SessionId(stray.folder.name))
        with contextlib.suppress(KasmonError):  # `kasmon doctor` reports what is left
            jail.destroy(policy, None)
            if stray.holds_work:
                kept.append(str(stray.folder / "workspace"))
            else:
                jail.forget(policy)
    return tuple(kept)
