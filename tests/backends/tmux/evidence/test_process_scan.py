"""The rounds over processes end when they are asked to, whatever happens in that moment."""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from kasmon.backends.tmux.evidence import process_scan
from kasmon.backends.tmux.evidence.process_evidence import ProcessEvidence
from kasmon.backends.tmux.evidence.process_scan import ProcessScanner
from kasmon.backends.tmux.evidence.screen_reader import ScreenReader
from kasmon.model.events import SignalSeen


class SilentTarget:
    """An agent that has printed nothing for long."""

    stirred_at = 0.0

    def __init__(self, evidence: ProcessEvidence) -> None:
        self.evidence = evidence

    def stir(self) -> None: ...

    def process_signals(self, signals: Sequence[SignalSeen]) -> None: ...


@pytest.mark.parametrize("turns", range(8))
async def test_a_scan_ends_although_output_arrives_meanwhile(tmp_path: Path, turns: int) -> None:
    """It is cancelled so many loop turns behind the print. Python 3.11's `wait_for` loses that in some of them."""
    scanner = ProcessScanner(ScreenReader(()))
    scanner.add(SilentTarget(ProcessEvidence("claude", 1, tmp_path, 1, "nonce", None)))
    for _ in range(20):
        await asyncio.sleep(0)
    scanner.stir()
    for _ in range(turns):
        await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await scanner.aclose()


class BusyTarget(SilentTarget):
    """An agent that prints all the time."""

    stirred_at = math.inf


class BackgroundTarget(SilentTarget):
    """The silent screen of a background session whose process was killed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(ProcessEvidence("claude", 1, folder, 1, "", background="86f99758"))
        self.stirred = asyncio.Event()

    def stir(self) -> None:
        self.stirred.set()


async def test_a_silent_agent_is_scanned_while_another_has_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_scan, "STOPPED_S", 0.3)
    scanner, silent = ProcessScanner(ScreenReader(())), BackgroundTarget(tmp_path)
    scanner.add(BusyTarget(ProcessEvidence("claude", 1, tmp_path, 1, "nonce", None)))
    scanner.add(silent)
    try:
        async with asyncio.timeout(10):
            await silent.stirred.wait()
    finally:
        await scanner.aclose()
