"""An agent inside a sandbox: what is started in its place, who it is on this machine, and what goes when it has ended.

The agent's command becomes one that makes a jail around it and ends with it. Its home outlives that, so that its next
jail can go on with its conversation; copies of files that it was handed do not.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import KasmonError, LaunchError, SandboxError, UnableError
from kasmon.model.command import Launch
from kasmon.model.permission import SessionId
from kasmon.model.sandbox import Mount, Policy, Runtime
from kasmon.paths import Places, write_private
from kasmon.sandbox import credential, handing, renewal
from kasmon.sandbox.base import Slept
from kasmon.sandbox.belongings import BIN, CONTEXT, Belongings, context
from kasmon.sandbox.jail.bubblewrap import Jail

NOTICES: Final = "notices.json"
"""In a ground: what a person should know of how its jail was made."""
SCRIPTED: Final = "kasmon.scripted"
KASMON: Final = Path(__file__).resolve().parent.parent
LOCATIONS: Final = (
    "CLAUDE_CONFIG_DIR", "CODEX_HOME", "CURL_CA_BUNDLE", "GEMINI_CLI_HOME", "NODE_EXTRA_CA_CERTS", "OPENCODE_CONFIG",
    "OPENCODE_CONFIG_DIR", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
)  # fmt: skip
"""Variables that name a file or folder of this machine, which is mostly not there inside."""
SEEN: Final = ("/usr/", "/etc/ssl/")


class Inmate(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that is to be started inside."""

    command: tuple[str, ...]
    """What is started in its place."""
    home: Path
    """What is its home folder inside."""
    notes: Path
    """The file of what its hooks and its `kasmon ctx` say."""
    secrets: tuple[str, ...] = ()
    """The values of its credentials."""


_secrets: dict[SessionId, tuple[str, ...]] = {}
"""The values of the credentials of agents that this process started."""


def secrets_of(session: SessionId) -> tuple[str, ...]:
    """What nobody may see of what the sandbox of *session* was given by this process."""
    return _secrets.get(session, ())


def policy_of(places: Places, session: SessionId) -> Policy:
    """What the sandbox of *session* is.

    Raises:
        SandboxError: if nothing says so.
    """
    path = places.sandbox(session)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Policy)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SandboxError(f"the sandbox of {session!r} is not known", f"{str(path)!r} does not say it: {error}") from (
            error
        )


def home_of(places: Places, session: SessionId) -> Path:
    """What is the home folder inside, whether it is there or not."""
    return Jail(places).ground.home(session)


def notes_of(places: Places, session: SessionId) -> Path:
    """The file of what those inside say to their host, whether it is there or not."""
    return Belongings(Jail(places).ground.of(session)).notes


def confined(
    places: Places,
    launch: Launch,
    argv: Sequence[str],
    variables: Mapping[str, str],
    around: Mapping[str, str] = os.environ,
) -> Inmate:
    """*argv* of the agent of *launch* inside; what is left of a jail that it had is ended. Blocks.

    Args:
        places: where the session is kept.
        launch: whose agent it is.
        argv: the program and its arguments.
        variables: all that it is to have.
        around: where its credentials' variables are looked up.

    Raises:
        LaunchError: if it cannot be started there; the message says why.
    """
    try:
        _must_be_jail(launch)
        policy, jail = policy_of(places, launch.session), Jail(places)
        if SCRIPTED in argv:  # it is a part of kasmon
            policy = msgspec.structs.replace(policy, mounts=(*policy.mounts, Mount(source=str(KASMON))))
        handed = renewal.noted(jail.ground.of(launch.session))  # whoever had it before may have been killed
        jail.destroy(policy, None)
        ground = jail.ground.make(launch.session)
        home = jail.ground.home(launch.session)
        looked = credential.looked_up(policy.credentials, around)
        brought = renewal.bring_back(policy.files, home, handed)
        renewal.note(policy.files, ground)
        handing.hand(policy.files, home, jail.ground.owner)
        belongings = Belongings(ground)
        belongings.make(jail.ground.owner, context(places, launch))
        outfit = jail.outfit(
            policy,
            argv,
            launch.workdir,
            seen_inside(policy, launch.workdir, variables) | looked.values,
            belongings=belongings.binds,
            path=(BIN,),
        )
        told = [notice for notice in outfit.notices if "control group" not in notice]  # who began it said that before
        notices = (*brought, *told, *looked.missing)
        write_private(ground / NOTICES, msgspec.json.encode(notices))
    except KasmonError as error:
        raise LaunchError(
            f"session {launch.name!r} cannot be started in its sandbox: {error.message}", hint=error.hint
        ) from error
    except OSError as error:
        raise LaunchError(f"session {launch.name!r} cannot be started in its sandbox: {error}.") from error
    _secrets[launch.session] = looked.secrets
    return Inmate(
        command=tuple(outfit.command),
        home=home,
        notes=belongings.notes,
        secrets=looked.secrets,
    )


def freeze(places: Places, session: SessionId, runtime: Runtime) -> None:
    """Stop all in the sandbox of an agent; it keeps its memory. Blocks.

    Raises:
        SandboxError: if it is gone, or somebody in it does not stop; all go on then.
    """
    Jail(places).pause(policy_of(places, session), runtime)


def thaw(places: Places, session: SessionId, runtime: Runtime) -> None:
    """Let all in it go on. Blocks.

    Raises:
        SandboxError: if it is gone.
    """
    Jail(places).resume(policy_of(places, session), runtime, Slept(held=True))


def left(places: Places, session: SessionId) -> tuple[str, ...]:
    """End what is left of the jail of an agent that has ended, and take away what it was handed. Blocks.

    What became of a log-in that it renewed, a sentence each.

    Raises:
        SandboxError: if something of it is left.
    """
    policy, jail = policy_of(places, session), Jail(places)
    handed = renewal.noted(jail.ground.of(session))
    jail.destroy(policy, None)
    home = jail.ground.home(session)
    if not home.is_dir():
        return ()
    told = renewal.bring_back(policy.files, home, handed)
    handing.take_away(policy.files, home)
    return told


def forget(places: Places, session: SessionId) -> str:
    """Remove the home of a session that is given up; where its work lies, if that is a copy, which stays. Blocks.

    Raises:
        SandboxError: if something of it is left.
    """
    left(places, session)
    workdir = "/"  # nobody's: a copy of what is not known stays
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        workdir = msgspec.json.decode(places.launch(session).read_bytes(), type=Launch).workdir
    return Jail(places).forget(policy_of(places, session), workdir)


def _must_be_jail(launch: Launch) -> None:
    if launch.sandbox != "jail":
        raise UnableError(f"no agent runs in a sandbox {launch.sandbox!r} with this version of kasmon.")


def seen_inside(policy: Policy, workdir: str, variables: Mapping[str, str]) -> dict[str, str]:
    """*variables*, without those that name what is not there inside."""
    targets = [workdir, *(mount.target or mount.source for mount in policy.mounts)]
    there = (*SEEN, *targets)
    kept = {
        name: value
        for name, value in variables.items()
        if name not in LOCATIONS or any(Path(value).is_relative_to(each) for each in there)
    }
    return kept | {"KASMON_CONTEXT": CONTEXT}
