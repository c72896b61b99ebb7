"""Check which sandboxes can be made here: `kasmon doctor` tries each tier, and reports its time and how to get it."""

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from kasmon.cli.doctor.result import DoctorCheck, Level
from kasmon.config import load
from kasmon.errors import KasmonError
from kasmon.model.sandbox.policy import Tier
from kasmon.paths import Paths
from kasmon.sandbox import tiers
from kasmon.sandbox.base import TierProbe


def sandboxes(where: Paths) -> Iterator[DoctorCheck]:
    """Check each tier; only the config's own tier causes a warning."""
    try:
        wanted: Tier = load(where).sandbox.tier
    except KasmonError:
        wanted = "jail"  # another check reports it
    scratch = Path(tempfile.mkdtemp(prefix="kasmon-"))
    aside = Paths(state=scratch / "s", config=scratch / "c", given_runtime=scratch / "r")
    try:
        with ThreadPoolExecutor(len(tiers.TIERS)) as pool:
            for probe in pool.map(partial(_probe, of=aside), tiers.TIERS):
                yield _check(probe, is_wanted=probe.tier == wanted)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _probe(tier: Tier, of: Paths) -> TierProbe:
    try:
        return tiers.load(tier, of).probe()
    except (KasmonError, OSError) as error:
        why = error.message if isinstance(error, KasmonError) else str(error)
        return TierProbe(tier=tier, ok=False, why=why.rstrip("."), hint=getattr(error, "hint", ""))


def _check(probe: TierProbe, *, is_wanted: bool) -> DoctorCheck:
    took = "" if probe.measured_ms is None else f"tried in {probe.measured_ms:.0f} ms"
    what = "works" if probe.ok else "unavailable"
    text = f"{what}: {'; '.join(part for part in (took, probe.why) if part)}".removesuffix(": ")
    level: Level = "ok" if probe.ok or not is_wanted else "warn"
    return DoctorCheck(
        id=f"sandbox-{probe.tier}",
        level=level,
        text=text,
        fix="" if probe.ok else probe.hint,
        is_info=not probe.ok and not is_wanted,
    )
