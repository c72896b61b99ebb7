"""Measures the delivery of prompts to difficult terminals: what each program received, compared with the receipts."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.bench.support.figure import Figure, percentile
from kasmon.bench.support.fleet import scratch
from kasmon.bench.support.tmux_sessions import PROGRAMS, agent_program
from kasmon.config import Config
from kasmon.errors import KasmonError, PromptLostError, RefusedError
from kasmon.model.commands import Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.session import Session
from kasmon.paths import Paths, private_folder, write_private
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.session_operations import create, send

AGENT: Final = "promptbox"
LARGEST: Final = 64 * 1024
HOSTILE: Final[dict[str, tuple[str, ...]]] = {
    "plain": (),
    "drops Enter": ("drop=1",),
    "swallows Enter after a paste": ("swallow=0.12",),
    "no bracketed paste": ("bare=1",),
    "echoes late": ("late=0.3",),
    "reads late": ("busy=0.15",),
    "suggests": ("ghost=1", "fold=800"),
    "clears its screen": ("blank=0.3",),
    "asks in between": ("asks=0.1",),
}
"""The flags of the fake terminals (promptbox.py), by kind."""
WORDS: Final = (
    "the",
    "prompt",
    "of",
    "a",
    "person",
    "漢字",
    "한국어",
    "naïve",
    "#{pane_id}",
    "$(x)",
    "`y`",
    "'z'",
    "☃",
    "/",
)
TAKEN: Final = frozenset({ReceiptState.SUBMITTED, ReceiptState.STARTED, ReceiptState.FINISHED})
FAILED: Final = frozenset({ReceiptState.REFUSED, ReceiptState.LOST})
END_S: Final = 60.0


class DeliveryCount(NamedTuple):
    """The results of the prompts to one terminal."""

    sent: int
    taken: int
    """Prompts that were submitted, according to their receipts."""
    refused: int
    lost: int
    doubled: int
    """Prompts that the program received more often than they were sent."""
    false: int
    """Prompts that it did not receive although their receipts report it."""
    unsent: int
    """Texts that it received but that were not sent, or not in this form."""
    answered: int
    """Keys that were typed into a question."""
    took_s: tuple[float, ...]


def prompts(seed: int) -> Iterator[str]:
    """Yield prompts of one byte to 64 KB without end: several lines, wide characters, special ones at both ends."""
    dice = random.Random(seed)
    for number in itertools.count():
        size = dice.choice((0, 1, 4, 12, 40, 120, 400)) if number % 25 else dice.choice((2500, 9000))
        gaps = (" ", " ", " ", "\n") if dice.random() < 0.4 else (" ",)
        text = "".join(f"{dice.choice(WORDS)}{dice.choice(gaps)}" for _ in range(size)).strip()
        front, behind = dice.choice(("", "", "-", "!", "/", "-t ", "#")), dice.choice(("", "", ";", " ;", "\\", "…"))
        yield cut(f"{front}{text}{behind}") or dice.choice("y1;-漢")


def cut(text: str) -> str:
    """Return *text* cut to at most 64 KB."""
    return text.encode()[:LARGEST].decode("utf-8", "ignore").strip()


def measure_delivery(count: int) -> Figure:
    """Measure *count* prompts, in turn to one terminal of each kind."""
    with scratch() as paths:
        install_rules(paths)
        tallies = asyncio.run(_all(paths, count))
    bad = sum(tally.doubled + tally.false + tally.unsent + tally.answered for tally in tallies.values())
    took_ms = [1000 * took for tally in tallies.values() for took in tally.took_s]
    return Figure(
        name="prompts doubled, made up, put into a question, or said to be submitted and not",
        value=bad,
        unit="prompts",
        target=0,
        samples=count,
        note=f"{format_counts(tallies)}; from the command to `submitted` p50 {percentile(took_ms, 0.5):.0f} ms, "
        f"p95 {percentile(took_ms, 0.95):.0f} ms",
    )


def format_counts(tallies: Mapping[str, DeliveryCount]) -> str:
    """Return a summary of the results, by kind."""
    return "; ".join(
        f"{kind}: {tally.taken} of {tally.sent} taken"
        + "".join(f", {value} {name}" for name, value in tally._asdict().items() if name in COUNTED and value)
        for kind, tally in tallies.items()
    )


COUNTED: Final = ("refused", "lost", "doubled", "false", "unsent", "answered")


def install_rules(paths: Paths) -> None:
    """Install the program's screen rules for the kasmon in *paths*, as a user's own file."""
    private_folder(paths.config)
    private_folder(paths.config / "screens")
    write_private(paths.config / "screens" / f"{AGENT}.toml", (PROGRAMS / f"{AGENT}.toml").read_bytes())


def command(paths: Paths, record: Path, flags: Sequence[str]) -> list[str]:
    """Return the program's command line."""
    return agent_program(paths.state, AGENT, AGENT, str(record), *flags)


async def _all(paths: Paths, count: int) -> dict[str, DeliveryCount]:
    texts = list(itertools.islice(prompts(1), count))
    jobs = {
        kind: _one(paths, kind, flags, texts[at :: len(HOSTILE)]) for at, (kind, flags) in enumerate(HOSTILE.items())
    }
    return dict(zip(jobs, await asyncio.gather(*jobs.values()), strict=True))


async def _one(paths: Paths, kind: str, flags: Sequence[str], texts: Sequence[str]) -> DeliveryCount:
    record = paths.state / f"{kind.replace(' ', '-')}.jsonl"
    write_private(record, b"")
    argv = tuple(command(paths, record, flags))
    id_ = await create(paths, Config(), NewSession(name=kind, mode=Mode.TMUX, argv=argv, workdir="/"))
    receipts, took_s = list[Receipt](), list[float]()
    for text in texts:
        session = read_fleet(paths).get(id_)
        assert session is not None
        began = time.monotonic()
        receipts.append(await deliver(paths, session, text))
        took_s.append(time.monotonic() - began)
    return tally(texts, receipts, record, took_s)


async def deliver(paths: Paths, session: Session, text: str) -> Receipt:
    """Send *text* and return its receipt once it is taken, refused or lost."""
    try:
        receipt = await send(paths, session, text)
    except PromptLostError as error:
        return _build_failure(session, ReceiptState.LOST, error)
    except RefusedError as error:
        return _build_failure(session, ReceiptState.REFUSED, error)
    async with asyncio.timeout(END_S):
        while receipt.state not in TAKEN | FAILED:
            await asyncio.sleep(0.1)
            now = read_fleet(paths).get(session.id)
            known = now.receipts if now is not None else ()
            receipt = next((one for one in known if one.id == receipt.id), receipt)
    return receipt


def _build_failure(session: Session, state: ReceiptState, error: KasmonError) -> Receipt:
    return Receipt(id=ReceiptId(""), session=session.id, state=state, reason=error.message)


def tally(texts: Sequence[str], receipts: Sequence[Receipt], record: Path, took_s: Sequence[float]) -> DeliveryCount:
    """Return the results of *texts*, from their *receipts* and from the program's own record."""
    records = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
    got = [one["submitted"].strip("\n") for one in records if "submitted" in one]
    states = [receipt.state for receipt in receipts]
    kept = list(got)
    false = 0
    for text, state in zip(texts, states, strict=True):
        if text in kept:
            kept.remove(text)
        elif state in TAKEN:
            false += 1
    doubled = sum(text in texts for text in kept)
    return DeliveryCount(
        sent=len(texts),
        taken=sum(state in TAKEN for state in states),
        refused=states.count(ReceiptState.REFUSED),
        lost=states.count(ReceiptState.LOST),
        doubled=doubled,
        false=false,
        unsent=len(kept) - doubled,
        answered=sum("answered" in one for one in records),
        took_s=tuple(took for took, state in zip(took_s, states, strict=True) if state in TAKEN),
    )
