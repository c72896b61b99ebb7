"""An agent inside a sandbox that is reached over a line and keeps its memory: its front, its sleep, what stays of it.

Its home and its folder outlive each sandbox. Its memory on disk is gone on from where it fits, in the same process; a
new sandbox begins with the same home, in which the agent finds its conversation by its own id.
"""

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kasmon.errors import KasmonError, SandboxError, SandboxUnreachableError
from kasmon.model.command import Launch, Mode
from kasmon.model.sandbox import Policy, Runtime
from kasmon.paths import Places
from kasmon.sandbox import credential, handing, renewal
from kasmon.sandbox.base import Elsewhere, Sandbox, Slept
from kasmon.sandbox.belongings import OURS, SHIM, Belongings, context
from kasmon.sandbox.far import carried, quarters
from kasmon.sandbox.far.quarters import BIN, CONTEXT, FOLDER, Gift, Lodging, Quarters, Stay, lodging


class Lodged(NamedTuple):
    """An agent that is to be started inside."""

    command: tuple[str, ...]
    """What is started in its place."""
    home: Path
    notes: Path
    secrets: tuple[str, ...]


def kept_back(tier: Sandbox) -> str:
    """Why a sandbox of *tier* keeps no memory of an agent that was handed something."""
    return handing.AT_A_SERVICE if isinstance(tier, Elsewhere) else handing.ON_DISK


def can_sleep(tier: Sandbox, policy: Policy) -> bool:
    """Whether the sandbox of *policy* can be put to sleep: elsewhere its memory is kept then."""
    return not isinstance(tier, Elsewhere) or handing.keeps_memory(policy)


def confined(
    places: Places,
    launch: Launch,
    policy: Policy,
    argv: Sequence[str],
    variables: Mapping[str, str],
    around: Mapping[str, str],
) -> Lodged:
    """*argv* of the agent of *launch* inside. One that sleeps on disk is gone on with; any other that is left is ended.

    Args:
        places: where the session is kept.
        launch: whose agent it is.
        policy: what its sandbox is.
        argv: the program and its arguments.
        variables: all that it is to have.
        around: where its credentials' variables are looked up.

    Raises:
        KasmonError: if it cannot be started there.
        OSError: likewise.
    """
    tier = lodging(places, policy)
    ground = tier.ground.of(launch.session)
    if isinstance(tier, Elsewhere):
        tier.learn(around)
    words, theirs = carried.adapted(argv, variables)
    fitted = tier.fitted(policy, words, launch.workdir, theirs)
    looked = credential.looked_up(policy.credentials, around)
    known = _joinable(tier, policy, ground) if launch.mode is Mode.TMUX else None
    home, brought = tier.ground.home(launch.session), tuple[str, ...]()
    if known is None:
        handed = renewal.noted(ground)  # whoever had it before may have been killed
        quarters.wait_no_more(ground)
        tier.destroy(policy, None)
        ground = tier.ground.make(launch.session)
        brought = renewal.bring_back(policy.files, home, handed)
        renewal.note(policy.files, ground)
        handing.hand(policy.files, home, tier.ground.owner)
        if carried.SCRIPTED in argv:
            carried.put(home, tier.ground.owner)
    belongings = Belongings(ground)
    belongings.make(tier.ground.owner, context(places, launch))
    own = {**fitted.variables, **looked.values, "KASMON_CONTEXT": CONTEXT}
    why_not = () if handing.keeps_memory(policy) else (kept_back(tier),)
    notices = (*brought, *fitted.notices, *looked.missing, *why_not)
    told = Quarters(
        policy=policy,
        fitted=msgspec.structs.replace(fitted, variables=own, notices=notices),
        run=known.run if known else secrets.token_hex(8),
        ground=str(ground),
        joins=known is not None,
        gifts=(
            Gift(path=f"{FOLDER}/emit.py", content=OURS.read_bytes()),
            Gift(path=f"{BIN}/kasmon", content=SHIM.encode(), mode=0o755),
        ),
        notes=str(belongings.notes),
        context=str(belongings.context),
        marks=(variables.get("KASMON_GENERATION", ""), variables.get("KASMON_NONCE", "")),
        environment=quarters.environment() | fitted.front,
    )
    return Lodged(tuple(quarters.command(told)), home, belongings.notes, looked.secrets)


def asleep(places: Places, policy: Policy, runtime: Runtime, *, to_disk: bool, turn: int = 0) -> Slept:
    """Stop all in it; *to_disk* ends its processes and keeps their memory, as it is elsewhere at once. Its front waits
    then. Blocks.

    Raises:
        UnableError: if its memory must be kept for that, and may not be.
        SandboxError: if it is gone, or its memory cannot be kept; it can go on then.
        OSError: likewise.
    """
    tier = lodging(places, policy)
    ground = tier.ground.of(policy.session)
    if not to_disk and not isinstance(tier, Elsewhere):
        return tier.pause(policy, runtime)
    quarters.let_wait(ground)
    try:
        return tier.pause(policy, runtime, to_disk=True, turn=turn)
    except BaseException:
        quarters.wait_no_more(ground)
        raise


def awake(places: Places, policy: Policy, runtime: Runtime, slept: Slept | None) -> Runtime:
    """Let it go on; *slept* None: nobody knows how it sleeps, or whether it does. Blocks.

    Raises:
        SnapshotRefusedError: if its memory on disk may not be gone on from.
        SandboxError: if it is gone, or does not go on.
    """
    tier = lodging(places, policy)
    ground = tier.ground.of(policy.session)
    if slept is None and (there := tier.adopt(policy)) is not None:
        runtime, slept = there, Slept(held=True)
    elif slept is None:
        kept = tier.kept(policy)
        if kept is None:
            raise SandboxError(f"the sandbox of {policy.session!r} is gone", "nothing of it lives or was kept")
        slept = Slept(held=False, snapshot=kept.id)
    goes_on = tier.resume(policy, runtime, slept)
    quarters.wait_no_more(ground)
    if (known := quarters.stay(ground)) is not None:
        quarters.note(ground, msgspec.structs.replace(known, runtime=goes_on))
    return goes_on


def left(places: Places, policy: Policy, *, spares_memory: bool) -> tuple[str, ...]:
    """End what is left of the sandbox of an agent that has ended, and take away what it was handed. Blocks.

    *spares_memory*: the agent did not end, nobody sees it any more: what sleeps on disk stays for its next start.

    Raises:
        SandboxError: if something of it is left.
    """
    tier = lodging(places, policy)
    if spares_memory and tier.adopt(policy) is None and tier.kept(policy) is not None:
        return ()
    handed = renewal.noted(tier.ground.of(policy.session))
    quarters.wait_no_more(tier.ground.of(policy.session))
    if isinstance(tier, Elsewhere):
        with contextlib.suppress(KasmonError):  # it may be gone; what it had told by then is here
            tier.fetch(policy)
    tier.destroy(policy, None)
    return taken_back(policy, tier.ground.home(policy.session), handed)


def taken_back(policy: Policy, home: Path, handed: Mapping[str, str]) -> tuple[str, ...]:
    """Take away what was *handed* to an agent into *home*, its renewed log-ins back to where they belong; in words."""
    if not home.is_dir():
        return ()
    told = renewal.bring_back(policy.files, home, handed)
    handing.take_away(policy.files, home)
    return told


def forget(places: Places, policy: Policy) -> str:
    """Remove its home; where its work lies, if that is a copy, which stays. Blocks.

    Raises:
        SandboxError: if something of it is left.
    """
    left(places, policy, spares_memory=False)
    return lodging(places, policy).forget(policy)


def _joinable(tier: Lodging, policy: Policy, ground: Path) -> Stay | None:
    """The agent that lives, or sleeps on disk; None where there is none that can be gone on with.

    Raises:
        SandboxUnreachableError: if nobody can tell now.
    """
    known = quarters.stay(ground)
    if known is None:
        return None
    try:
        if tier.adopt(policy) is not None or tier.kept(policy) is not None:
            return known
    except SandboxUnreachableError:
        raise
    except (KasmonError, OSError):
        return None
    return None
