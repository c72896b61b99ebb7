"""What `LiveGateway` reads about sandboxes; imported by the first reader."""

from kasmon.config import Config, ProfileOffer, offers, resolve
from kasmon.model.commands import Mode
from kasmon.model.sandbox.policy import SIZES
from kasmon.paths import Paths
from kasmon.supervisor.sandboxes import availability
from kasmon.supervisor.sandboxes.agent_policy import describe_sandbox, is_agreed
from kasmon.supervisor.sandboxes.create import CALLED
from kasmon.supervisor.sessions.folder_config import for_session, in_folder
from kasmon.tui.gateway.protocol import SandboxChoices, SandboxPreview, TierOffer


def list_offers(paths: Paths, config: Config, folder: str) -> tuple[ProfileOffer, ...]:
    """Return the choices for a new session in *folder*: the profiles, and interpreters in the config's sandbox tier."""
    found = offers(in_folder(paths, config, folder).config if folder else config)
    tier = config.sandbox.tier
    interpreters = ProfileOffer(name=CALLED, modes=(Mode.INTERPRETER,), confines=(Mode.INTERPRETER,), sandbox=tier)
    can = sum(not offer.problem for offer in found)
    return (*found[:can], interpreters, *found[can:])


def list_sandboxes(paths: Paths, config: Config) -> SandboxChoices:
    """Return the sandboxes that a new session may use, judged without trying them; blocks."""
    tiers = tuple(
        TierOffer(
            tier=each.tier,
            why_not=f"A {each.tier} sandbox is unavailable: {each.why_not}.\n{each.hint}".strip()
            if each.why_not
            else "",
            has_agents=each.has_agents,
        )
        for each in availability.list_tiers(paths)
    )
    usual = config.sandbox
    return SandboxChoices(tiers=tiers, sizes=tuple(SIZES), size=usual.size, hosts=usual.network, project=usual.project)


def preview(paths: Paths, config: Config, agent: str, mode: Mode | None, workdir: str, tier: str) -> SandboxPreview:
    """Return what the sandbox of *agent* would get in *workdir*, with *tier*; blocks.

    Raises:
        KasmonError: if it cannot have one.
    """
    resolved = resolve(for_session(paths, config, workdir, agent).config, agent, mode, sandbox=tier)
    availability.must_confine(paths, resolved, workdir)
    return SandboxPreview(lines=describe_sandbox(resolved, workdir), is_agreed=is_agreed(paths, resolved))
