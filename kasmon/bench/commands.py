"""Measures the commands that people and scripts wait for, against bare Python, and a call of the fleet tools."""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.bench.dashboard.startup import BARE_PYTHON
from kasmon.bench.support.figure import Figure, percentile, ratio, timed, wait_until
from kasmon.bench.support.fleet import create_sessions, scratch
from kasmon.bench.support.process_cost import run_ms
from kasmon.bench.support.terminal import KASMON, environment
from kasmon.config import Config
from kasmon.errors import UnavailableError
from kasmon.model import fleet
from kasmon.model.commands import ActingAgent, Mode
from kasmon.paths import Paths, write_private
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.session_operations import create

TERMINAL, STRUCTURED, ASKING, STOPPED = "a-terminal", "structured", "asking", "stopped"
QUICK: Final[Mapping[str, tuple[Sequence[str], float]]] = {
    "--version": (["--version"], 3.0),
    "--help": (["--help"], 8.0),
    "show": (["show", STRUCTURED], 9.0),
    "inbox": (["inbox"], 9.0),
    "read": (["read", TERMINAL], 9.0),
    "send": (["send", TERMINAL, "a line"], 9.0),
    "stop": (["stop", STOPPED], 9.0),
    "wait": (["wait", STOPPED, "--for", "ended"], 9.0),
    "explain": (["explain", TERMINAL], 9.0),
    "completion of a word": (["__complete", "stop", "a-"], 8.0),
}
"""Each command, and its target as a multiple of bare Python."""
ANSWER: Final = 9.0
LIMIT_S: Final = 30.0
PROGRAM: Final = Path(__file__).parent / "programs" / "fleet_client.py"
CHILDREN: Final = 200
CALLS_S: Final = 60.0
"""How long all calls of the fleet tools may take, in seconds."""


def measure_commands(rounds: int) -> list[Figure]:
    """Measure each quick command *rounds* times, in turn, with two running sessions and their hosts.

    Raises:
        TimedOutError: if the scripted agent makes no request.
    """
    with scratch() as paths:
        own = environment(paths.environment_variables())
        asyncio.run(_create(paths, rounds))
        run_ms([*KASMON, "stop", STOPPED], own)
        bare: list[float] = []
        times: dict[str, list[float]] = {name: [] for name in (*QUICK, "answer")}
        for _ in range(rounds):
            bare.append(run_ms(BARE_PYTHON, own))
            for name, (arguments, _) in QUICK.items():
                times[name].append(run_ms([*KASMON, *arguments], own))
            times["answer"].append(run_ms([*KASMON, "answer", _request(paths), "allow"], own))
    targets = {name: target for name, (_, target) in QUICK.items()} | {"answer": ANSWER}
    return [
        ratio(f"kasmon {name}" if " " not in name else name, each, bare, "bare Python", targets[name])
        for name, each in times.items()
    ]


async def _create(paths: Paths, rounds: int) -> None:
    asks = "\n".join(f"ask make part-{number}" for number in range(rounds))
    for wanted in (
        NewSession(name=TERMINAL, mode=Mode.TMUX, argv=("cat",), workdir="/"),
        *(NewSession(name=name, agent="scripted", mode=Mode.SDK, workdir="/") for name in (STRUCTURED, STOPPED)),
        NewSession(name=ASKING, agent="scripted", mode=Mode.SDK, workdir="/", prompt=asks),
    ):
        await create(paths, Config(), wanted)


def _request(paths: Paths) -> str:
    wait_until(lambda: fleet.requests(read_fleet(paths)), LIMIT_S, "no request was opened")
    return fleet.requests(read_fleet(paths))[0].id


def measure_list(calls: int) -> Figure:
    """Measure *calls* calls of an agent in a terminal, all of whose children run.

    Raises:
        UnavailableError: if the program of the agent fails, as without the package `mcp`.
    """
    with scratch() as paths:
        folder = paths.state / "calls"
        folder.mkdir(mode=0o700, parents=True)
        variables = (f"{name}={value}" for name, value in paths.environment_variables().items())
        argv = ("env", *variables, sys.executable, "-P", str(PROGRAM), str(folder), str(calls))
        new = NewSession(name="lead", mode=Mode.TMUX, argv=argv, workdir="/", tools=("fleet",))
        lead = asyncio.run(create(paths, Config(), new))
        with create_sessions(paths, CHILDREN, actor=ActingAgent(session=lead)):
            write_private(folder / "go", b"")
            _wait_for((folder / "times.json").exists, folder / "error.txt")
        times, count = msgspec.json.decode((folder / "times.json").read_bytes(), type=tuple[list[float], int])
    assert count == CHILDREN + 1, count
    note = f"from the client to the answer, over stdin; 95th percentile: {percentile(times, 0.95):.1f} ms"
    return timed(f"fleet tool `list` of {CHILDREN} running children, p50", times, 30, note)


def _wait_for(condition: Callable[[], bool], error: Path) -> None:
    """Wait until *condition* holds. Raises `UnavailableError` with the text of the file *error* if there is one."""
    deadline = time.monotonic() + CALLS_S
    while not condition():
        if error.exists() or time.monotonic() > deadline:
            why = error.read_text().strip() if error.exists() else f"it took longer than {CALLS_S:g} s"
            raise UnavailableError(f"the fleet tools cannot be measured: {why}.")
        time.sleep(0.01)
