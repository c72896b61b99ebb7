"""Which sandboxes can be made here: `kasmon doctor` tries each tier, and says how long that took and how to get it."""

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from kasmon.commands.check import Check, Level
from kasmon.config import load
from kasmon.errors import KasmonError
from kasmon.model.sandbox import Tier
from kasmon.paths import Places
from kasmon.sandbox import tiers
from kasmon.sandbox.base import Probe


def sandboxes(where: Places) -> Iterator[Check]:
    """A line for each tier; it is a warning only where the config's own cannot be made."""
    try:
        wanted: Tier = load(where).sandbox.tier
    except KasmonError:
        wanted = "jail"  # another line says so
    scratch = Path(tempfile.mkdtemp(prefix="kasmon-"))
    aside = Places(state=scratch / "s", config=scratch / "c", given_runtime=scratch / "r")
    try:
        with ThreadPoolExecutor(len(tiers.TIERS)) as pool:
            for probe in pool.map(partial(_tried, of=aside), tiers.TIERS):
                yield _told(probe, is_wanted=probe.tier == wanted)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _tried(tier: Tier, of: Places) -> Probe:
    try:
        return tiers.load(tier, of).probe()
    except (KasmonError, OSError) as error:
        why = error.message if isinstance(error, KasmonError) else str(error)
        return Probe(tier=tier, ok=False, why=why.rstrip("."), hint=getattr(error, "hint", ""))


def _told(probe: Probe, *, is_wanted: bool) -> Check:
    took = "" if probe.measured_ms is None else f"tried in {probe.measured_ms:.0f} ms"
    what = "works" if probe.ok else "cannot be used here"
    text = f"{what}: {'; '.join(part for part in (took, probe.why) if part)}".removesuffix(": ")
    level: Level = "ok" if probe.ok or not is_wanted else "warn"
    return Check(id=f"sandbox-{probe.tier}", level=level, text=text, fix="" if probe.ok else probe.hint)
