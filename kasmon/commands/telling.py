"""`kasmon tell`: a message from one agent of a plan to others, or into the plan's notes."""

import asyncio
import os
import sys
import time

from kasmon.commands.ctx import own_session
from kasmon.commands.objects import answer, receipt_object
from kasmon.commands.output import say, tell
from kasmon.errors import KasmonError, UsageError
from kasmon.model.command import Receipt, ReceiptId, ReceiptState
from kasmon.model.figures import clock
from kasmon.paths import places
from kasmon.store.plan import PlanBook
from kasmon.supervisor.find import find
from kasmon.supervisor.look import look_once
from kasmon.supervisor.plans import telling

NOTES = "notes"


def tell_peer(wanted: str, text: str | None, *, wants_json: bool) -> None:
    """Give the peers that are *wanted* a message, and print the receipts.

    Raises:
        UsageError: if no session's agent runs this, or there is no text.
        NotFoundError: if there is no such peer.
        RefusedError: if the only one takes none now.
    """
    where = places()
    fleet = look_once(where)
    teller = find(fleet, own_session(os.environ))
    said = sys.stdin.read() if text == "-" else text or ""
    if not said.strip():
        raise UsageError("there is nothing to tell.", hint="kasmon tell PEER TEXT, or `-` to read it from stdin.")
    if wanted == NOTES:
        if teller.plan is None:
            raise UsageError(f"{teller.name!r} is of no plan, so it has no notes.")
        path = PlanBook(where, teller.plan).notes
        telling.write_note(path, teller, said, clock(time.time()))
        say(f"noted in {path}")
        return
    peers, receipts = telling.meant(fleet, teller, wanted), []
    for peer in peers:
        try:
            receipts.append(asyncio.run(telling.tell(where, teller, peer, said)))
        except KasmonError as error:
            if len(peers) == 1 or isinstance(error, UsageError):
                raise
            receipts.append(
                Receipt(id=ReceiptId(""), session=peer.id, state=ReceiptState.REFUSED, reason=error.message)
            )
    if wants_json:
        tell(answer(receipts=[receipt_object(receipt) for receipt in receipts]))
        return
    for peer, receipt in zip(peers, receipts, strict=True):
        say(f"{peer.name}: {receipt.state}{f', {receipt.reason}' if receipt.reason else ''}")
