"""Open a conversation with codex: check the log-in, open a thread, and verify a resumed one."""

import contextlib
import re
from typing import Final

import msgspec

from kasmon import __version__
from kasmon.backends.codex.items import words
from kasmon.backends.codex.transport import CallRefusedError, CodexTransport
from kasmon.backends.common.agent_version import advice
from kasmon.backends.common.json_access import Table, rows, text
from kasmon.errors import LaunchError, UnfitAgentError
from kasmon.model.commands import ConversationFork, Launch

CLIENT: Final = {"name": "kasmon", "title": "kasmon", "version": __version__}
CAPABILITIES: Final = {"experimentalApi": True, "requestAttestation": False}
"""Codex calls questions, plan mode and settings experimental."""
NO_SUCH_THREAD: Final = "no rollout found"
"""Prefix of codex's error for an unknown thread. A thread without any prompt is unknown as well."""
INVALID: Final = "Invalid request"
"""Prefix of codex's error for an unknown setting."""
CHECK: Final = "Check the profile's flags, which configure codex."
LOG_IN: Final = (
    "Run `codex login` (with a key: `printenv OPENAI_API_KEY | codex login --with-api-key`) and start again."
)
LOOKED_BACK: Final = (1, 10)
"""How many turns are searched for the last prompt: first the last one alone, for turns can be long."""
FORKED_TURNS: Final = 200
"""How many turns are searched for the prompt at which a thread is forked."""
CUT: Final = 16 * 1024
"""A longer prompt, in characters, is truncated in the log; see `host.journal.blobs`."""


class CodexThread(msgspec.Struct, frozen=True, kw_only=True):
    thread: str
    response: Table
    proof: str = ""
    """How it was verified to be the earlier conversation; empty for a new one."""
    notice: str = ""
    """A warning about that for the user."""


async def introduce(transport: CodexTransport) -> str:
    """Perform the handshake; return codex's version, empty if unknown. Raises `UnfitAgentError` if codex rejects it."""
    try:
        answer = await transport.call("initialize", {"clientInfo": CLIENT, "capabilities": CAPABILITIES})
    except CallRefusedError as error:
        raise UnfitAgentError(f"codex does not speak kasmon's protocol: {error.said}.") from error
    await transport.send_notification("initialized")
    version = re.search(r"/(\d+\.\d+\.\d+\S*)", text(answer, "userAgent"))
    return version[1] if version else ""


async def open_thread(transport: CodexTransport, launch: Launch, thread: Table, version: str) -> CodexThread:
    """Open the thread that *launch* requests, with the settings *thread*: resumed or new.

    Raises:
        LaunchError: if codex is not logged in, cannot open it, or opens another.
    """
    await _must_be_logged_in(transport)
    wanted = {**thread, "cwd": launch.workdir}
    if launch.fork is not None:
        return await _fork(transport, wanted, launch.fork, version)
    if launch.resume is None:
        return await _new(transport, wanted, version)
    try:
        response = await transport.call("thread/resume", {**wanted, "threadId": launch.resume, "excludeTurns": True})
    except CallRefusedError as error:
        if error.said.startswith(NO_SUCH_THREAD) and not launch.remembers:
            fresh = await _new(transport, wanted, version)
            notice = "The previous conversation was empty, so codex did not store it: this is a new one."
            return msgspec.structs.replace(fresh, notice=notice)
        raise LaunchError(
            f"codex cannot resume the conversation {launch.resume!r}: {error.said}.",
            hint="Its files may have been removed, or may be in another CODEX_HOME. `kasmon new` starts a new session.",
        ) from error
    found = text(response, "thread", "id")
    if found != launch.resume:
        raise LaunchError(
            f"codex opened the conversation {found!r} instead of {launch.resume!r}.", hint=advice("codex", version)
        )
    proof, notice = await _proof(transport, found, launch.remembers)
    return CodexThread(thread=found, response=response, proof=proof, notice=notice)


async def models(transport: CodexTransport) -> tuple[str, ...]:
    """Return the models that codex offers; empty if it does not list them."""
    try:
        listed = rows(await transport.call("model/list", {}), "data")
    except CallRefusedError:
        return ()
    return tuple(text(model, "model") for model in listed if text(model, "model") and model.get("hidden") is not True)


async def _new(transport: CodexTransport, wanted: Table, version: str) -> CodexThread:
    try:
        response = await transport.call("thread/start", wanted)
    except CallRefusedError as error:
        hint = CHECK if error.said.startswith(INVALID) else advice("codex", version)
        raise LaunchError(f"codex cannot start a conversation: {error.said}.", hint=hint) from error
    thread = text(response, "thread", "id")
    if not thread:
        raise LaunchError("codex did not report which conversation it started.", hint=advice("codex", version))
    return CodexThread(thread=thread, response=response)


async def _fork(transport: CodexTransport, wanted: Table, fork: ConversationFork, version: str) -> CodexThread:
    """Open a copy of the thread up to the prompt of *fork*, or of all of it."""
    wanted = {**wanted, "threadId": fork.conversation, "excludeTurns": True}
    try:
        if fork.prompt:
            wanted["lastTurnId"] = await _find_turn_before(transport, fork)
        response = await transport.call("thread/fork", wanted)
    except CallRefusedError as error:
        raise LaunchError(
            f"codex cannot fork the conversation {fork.conversation!r}: {error.said}.", hint=advice("codex", version)
        ) from error
    return CodexThread(thread=text(response, "thread", "id"), response=response)


async def _find_turn_before(transport: CodexTransport, fork: ConversationFork) -> str:
    turns = await _list_turns(transport, fork.conversation, FORKED_TURNS)
    found = [number for number, turn in enumerate(turns) if _begins_with(turn, fork.prompt)]
    if len(found) <= fork.later or found[fork.later] + 1 >= len(turns):
        raise LaunchError(
            f"codex's conversation {fork.conversation!r} has no such prompt.",
            hint="It may have been sent during another turn, or too many turns ago.",
        )
    return text(turns[found[fork.later] + 1], "id")


def _begins_with(turn: Table, prompt: str) -> bool:
    echo = next((spoken for item in rows(turn, "items") if (spoken := words(item))), "")
    return _is_same(echo, prompt)


async def _must_be_logged_in(transport: CodexTransport) -> None:
    try:
        account = await transport.call("account/read", {})
    except CallRefusedError:
        return  # an older codex; the first turn reports a missing log-in
    if account.get("requiresOpenaiAuth") is True and account.get("account") is None:
        raise LaunchError("codex is not logged in.", hint=LOG_IN)


async def _proof(transport: CodexTransport, thread: str, remembers: str) -> tuple[str, str]:
    """Return how *thread* was verified to be the earlier conversation, and a warning if it was not."""
    if not remembers:
        return "codex reported the same id", ""
    for limit in LOOKED_BACK:
        with contextlib.suppress(CallRefusedError):
            turns = await _list_turns(transport, thread, limit)
            prompts = filter(None, (words(item) for turn in turns for item in reversed(rows(turn, "items"))))
            for place, prompt in enumerate(prompts):
                if _is_same(prompt, remembers):
                    how = "ends with" if place == 0 else "has"
                    return f"codex reported the same id, and its history {how} our last prompt", ""
    notice = "Codex resumed the conversation by its id, but its history does not contain our last prompt."
    return "codex reported the same id", notice


async def _list_turns(transport: CodexTransport, thread: str, limit: int) -> list[Table]:
    """Return the last *limit* turns of *thread*, the newest first."""
    listed = {"threadId": thread, "limit": limit, "sortDirection": "desc", "itemsView": "full"}
    return rows(await transport.call("thread/turns/list", listed), "data")


def _is_same(prompt: str, remembers: str) -> bool:
    return prompt.strip() == remembers.strip() or (len(remembers) > CUT and prompt.startswith(remembers[:CUT]))
