"""The conversations that an agent stores: those that a new session can resume, and the deletion of a session's own."""

import os

import msgspec

from kasmon.backends.acp import backend as acp
from kasmon.backends.common.environment import load_variables
from kasmon.config import Config, resolve
from kasmon.config.profile import ResolvedProfile
from kasmon.errors import RefusedError, UnableError
from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.model.commands import ConversationOffer, ConversationOffers, Launch, Mode, build_offer
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths, expanded
from kasmon.store.session_reader import load_launch
from kasmon.supervisor.fleet.snapshot import read_fleet, require_free_conversation
from kasmon.supervisor.limits.agents import check_is_person
from kasmon.supervisor.recovery.sessions import read_conversations
from kasmon.supervisor.sessions.create import NewSession, agent_variables


async def list_conversations(
    paths: Paths, config: Config, new: NewSession, *, everywhere: bool = False
) -> ConversationOffers:
    """Return the conversations that the agent of *new* stores for its folder, the last used one first.

    A structured agent with ACP is asked itself, and runs for that; the files of others are read, where kasmon knows
    their format.

    Args:
        new: names agent, mode (default: structured, where it can), folder, account and variables.
        everywhere: those of all folders.

    Raises:
        RefusedError: if an agent requests it.
        UnableError: if its conversations cannot be listed.
        KasmonError: as `resolve`; or if the agent cannot be started, or requires a log-in.
    """
    await run_in_thread(check_is_person, paths, "list the conversations of an agent")
    await run_in_thread(paths.make)
    resolved, launch, own = await run_in_thread(_prepare, config, new)
    folder = "" if everywhere else launch.workdir
    offers: ConversationOffers | None = None
    problem = UnableError(f"kasmon cannot list the conversations of {resolved.agent!r}.")
    if resolved.backend == acp.name:
        try:
            offers = await acp.list_conversations(launch, own, folder)
        except UnableError as error:
            problem = error
    if offers is None:
        offers = await run_in_thread(_read_files, paths, launch, own, folder)
    if offers is None:
        raise problem
    return await run_in_thread(_with_sessions, paths, offers)


async def delete_conversation(paths: Paths, session: Session) -> None:
    """Have the agent of the ended *session* delete its own conversation; it runs for that alone.

    Raises:
        UnableError: if it cannot.
        RefusedError: if an agent requests it, or another session has the same conversation.
        KasmonError: if the agent cannot be started, or refuses.
    """
    await run_in_thread(check_is_person, paths, "delete a conversation")
    if not session.deletes_conversation:
        raise UnableError(f"the agent of {session.label!r} deletes no conversation for kasmon.")
    sharing = (
        each for each in (await run_in_thread(read_fleet, paths)).sessions if each.resume_id == session.resume_id
    )
    if (other := next((each for each in sharing if each.id != session.id and not each.forgotten), None)) is not None:
        raise RefusedError(f"session {other.label!r} has the same conversation.", hint="Remove that one first.")
    await run_in_thread(require_free_conversation, paths, session.resume_id or "", session.id)
    launch = await run_in_thread(load_launch, paths, session.id)
    own = await run_in_thread(load_variables, paths, session.id)
    await acp.delete_conversation(launch, own, session.resume_id or "")


def _prepare(config: Config, new: NewSession) -> tuple[ResolvedProfile, Launch, dict[str, str]]:
    resolved = resolve(config, new.agent, new.mode or Mode.SDK, sandbox=new.sandbox)
    if resolved.machine:
        raise UnableError(f"the conversations on {resolved.machine!r} are not known here.")
    if resolved.sandbox is not None:
        raise UnableError("a new sandbox has no earlier conversations.")
    launch = Launch(
        session=SessionId(""),
        name="",
        agent=resolved.agent,
        mode=resolved.mode,
        backend=resolved.backend,
        argv=resolved.argv,
        workdir=str(expanded(new.workdir or ".").absolute()),
    )
    return resolved, launch, agent_variables(config, new, resolved, os.environ)


def _read_files(paths: Paths, launch: Launch, own: dict[str, str], folder: str) -> ConversationOffers | None:
    """Return the conversations in the agent's files; None if their format is unknown."""
    stored = read_conversations(paths, launch, own=own)
    if stored is None:
        return None
    allowed = {folder, os.path.realpath(folder)}
    offers = (
        build_offer(each.id, each.directory, each.first, each.at)
        for each in sorted(stored, key=lambda each: -each.at)
        if not folder or each.directory in allowed
    )
    return ConversationOffers(conversations=tuple(offer for offer in offers if offer is not None))


def _with_sessions(paths: Paths, offers: ConversationOffers) -> ConversationOffers:
    names = {each.resume_id: each.label for each in read_fleet(paths).here if each.resume_id}

    def complete(offer: ConversationOffer) -> ConversationOffer:
        return msgspec.structs.replace(offer, session=names.get(offer.id, ""))

    return msgspec.structs.replace(offers, conversations=tuple(map(complete, offers.conversations)))
