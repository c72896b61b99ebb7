"""`kasmon agents conversations`: the conversations that an agent stores."""

from typing import Annotated

import msgspec

from kasmon.cli.arguments import Arg, Json
from kasmon.cli.output.console import note, print_json, say
from kasmon.cli.output.table import aligned
from kasmon.config import load
from kasmon.config.profile import parse_mode
from kasmon.model.commands import ConversationOffer
from kasmon.model.formatting import clock
from kasmon.paths import user_paths
from kasmon.sanitize import clean_line
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.folder_config import for_session

HEADS = ("ID", "LAST USED", "SESSION", "TITLE")


def list_all(
    name: Annotated[str, Arg("Profile, as `kasmon new --agent` takes it.", ("AGENT",), completer="agents")],
    /,
    *,
    folder: Annotated[str, Arg("Folder of the conversations (default: the current folder).", ("--dir",))] = "",
    everywhere: Annotated[bool, Arg("List those of all folders.", ("--all",))] = False,
    mode: Annotated[str | None, Arg("tmux or sdk (default: sdk, where it can).")] = None,
    account: Annotated[str, Arg("Account of the config whose conversations to list.")] = "",
    wants_json: Json = False,
) -> None:
    """List the conversations that an agent stores; `kasmon new --resume ID` opens one. An ACP agent is run for that."""
    import asyncio

    from kasmon.supervisor.recovery.stored_conversations import list_conversations

    where = user_paths()
    settings = for_session(where, load(where), folder, name)
    if settings.notice:
        note(settings.notice)
    wanted = NewSession(name="", agent=name, mode=parse_mode(mode), workdir=folder, account=account)
    offers = asyncio.run(list_conversations(where, settings.config, wanted, everywhere=everywhere))
    if wants_json:
        listed = msgspec.to_builtins(offers.conversations)
        print_json(agent=name, conversations=listed, is_whole=offers.is_whole)
        return
    if not offers.conversations:
        say(f"{name} stores no conversation{'' if everywhere else ' of this folder'}.")
        return
    heads = (*HEADS[:3], "FOLDER", HEADS[3]) if everywhere else HEADS
    say(*aligned([heads, *(_row(each, everywhere=everywhere) for each in offers.conversations)]))
    if not offers.is_whole:
        note(f"{name} stores more; these are the last used ones.")


def _row(offer: ConversationOffer, *, everywhere: bool) -> tuple[str, ...]:
    used = clock(offer.used_at, day=True) if offer.used_at else "-"
    folder = (clean_line(offer.folder),) if everywhere else ()
    return (offer.id, used, clean_line(offer.session) or "-", *folder, offer.title or "-")
