"""`python -m tests.chaos [--seconds S] [--seed N] [--agents N] [--steps N]`: chaos, and whether the promises hold.

The seed is printed. The same seed does the same deeds in the same order; `--steps` ends after so many of them, so that
a failure can be done again. Exits with 1 where a promise was broken.
"""

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.support.chaos import promises
from tests.support.chaos.faults import DEEDS
from tests.support.chaos.fleet import CLOCK, AgentFleet
from tests.support.tui.dashboard import Home

SETTLE_S = 20.0
LAST = 400
"""So much of what a dashboard wrote last is told of one that ended."""
EVERY = 8
"""So many deeds between two looks at everything."""


def main(argv: Sequence[str]) -> int:
    wanted = _wanted(argv)
    print(f"chaos with seed {wanted.seed}: {wanted.agents} agents", flush=True)
    with Home() as home:
        os.environ["HOME"] = str(home.path)  # its clock is in there
        sys.path.insert(0, str(CLOCK))
        __import__("sitecustomize")
        ground = AgentFleet(home, wanted.agents)
        try:
            began = time.monotonic()
            ground.furnish()
            print(f"all are there after {time.monotonic() - began:.0f} s", flush=True)
            done = _rage(ground, Random(wanted.seed), wanted)
            _end(ground)
            code = _report(ground, done, wanted)
        except BaseException:
            _evidence(ground)
            raise
        finally:
            ground.close()
    return code


def _wanted(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--steps", type=int, default=10**9)
    return parser.parse_args(argv)


def _rage(ground: AgentFleet, dice: Random, wanted: argparse.Namespace) -> Counter[str]:
    """Do deeds until the time is over, the steps are done, or a promise is broken; how often each was done."""
    done: Counter[str] = Counter()
    names, weights = list(DEEDS), [deed.weight for deed in DEEDS.values()]
    until = time.monotonic() + wanted.seconds
    ground.remember_logs(ground.read_logs())
    while time.monotonic() < until and done.total() < wanted.steps and not ground.broken:
        (name,) = dice.choices(names, weights)
        said = DEEDS[name].do(ground, Random(dice.random()))  # what it draws does not move the dice of the others
        done[name] += 1
        print(f"{done.total():4}  {name:28} {said}", flush=True)
        _look(ground)
        if done.total() % EVERY == 0:
            _look_closely(ground)
    return done


def _look(ground: AgentFleet) -> None:
    before = ground.hosted()
    fleet = ground.fleet()
    after = ground.hosted()
    held = {session: is_held or after.get(session, True) for session, is_held in before.items()}
    ground.broken += promises.nobody_is_guessed(fleet.sessions, held)
    for number, dashboard in enumerate(ground.dashboards):
        if not dashboard.is_up:
            last = dashboard.seen.decode("utf-8", "replace")[-LAST:]
            ground.broken.append(f"dashboard {number} ended by itself; its last words: {last!r}")


def _look_closely(ground: AgentFleet) -> None:
    """What stands in logs, files and on terminals."""
    now = ground.read_logs()
    ground.broken += promises.logs_only_grow(ground.logs, now)
    ground.remember_logs(now)
    files = {path: _read(path) for path in ground.left}
    ground.broken += promises.foreign_files_stay(ground.left, files)
    every = {session.id: ground.events(session.id) for session in ground.fleet().sessions}
    facts = [event for events in every.values() for event in events]
    ground.broken += promises.nothing_is_approved_unseen(facts, ground.given)
    ground.broken += promises.one_answer_each(facts)
    planned = {session.id for session in ground.fleet().sessions if session.plan}
    ground.broken += promises.restarts_are_ours(
        {session: events for session, events in every.items() if session not in planned}, ground.wanted
    )
    for session in ground.talkers:
        ground.broken += promises.what_is_said_was_delivered(every.get(session, []))
    for session, record in ground.boxes.items():
        ground.broken += promises.what_is_said_was_delivered(every.get(session, []), ground.submitted(record))
    for seen in (*ground.seen, *(dashboard.seen for dashboard in ground.dashboards)):
        ground.broken += promises.nothing_foreign_acts(seen)
    for leaving in ground.leavings:
        ground.broken += promises.terminals_are_usable(leaving)
    ground.seen.clear()
    ground.leavings.clear()
    if (ground.home.path / "ran").exists():
        ground.broken.append("a name or a prompt was run as a command")


def _end(ground: AgentFleet) -> None:
    """Let the clock be right, and look a last time: both dashboards still show the fleet and can be left."""
    ground.clock.unlink(missing_ok=True)
    _look_closely(ground)
    for number, dashboard in enumerate(ground.dashboards):
        dashboard.resize(150, 40)
        dashboard.send(b"\x1b\x1b")
        try:
            dashboard.shows("talk-", limit_s=SETTLE_S)
        except AssertionError as error:
            ground.broken.append(f"dashboard {number} no longer shows the fleet: {error}")


def _evidence(ground: AgentFleet) -> None:
    """What kasmon itself wrote down lately."""
    for log in (ground.paths.tmux_host_log, ground.paths.own_log):
        for line in (_read(str(log)) or b"").decode("utf-8", "replace").splitlines()[-30:]:
            print(f"{log.name}: {line}")


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def _report(ground: AgentFleet, done: Counter[str], wanted: argparse.Namespace) -> int:
    late = sorted(ground.late)
    print(
        f"\n{done.total()} deeds with seed {wanted.seed}: " + ", ".join(f"{n} {name}" for name, n in done.most_common())
    )
    if ground.broken:
        _evidence(ground)
    if late:
        over = sum(bool(promises.truth_in_time(took)) for took in late)
        print(
            f"the truth about {len(late)} crashes: p50 {late[len(late) // 2]:.2f} s, longest {late[-1]:.2f} s,"
            f" {over} above {promises.TRUTH_S:g} s"
        )
    if not ground.without_events:
        print("no dashboard without events of files: this machine cannot make one")
    if not ground.jails:
        print("no sandbox: this machine makes none, or there are too few agents")
    for broken in dict.fromkeys(ground.broken):
        print(f"BROKEN: {broken}")
    if ground.broken:
        again = f"--seed {wanted.seed} --agents {wanted.agents} --steps {done.total()}"
        print(f"Again: python -m tests.chaos {again}")
        return 1
    print("The ten promises held.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
