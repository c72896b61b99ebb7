"""Measures the prompt box: slash commands to the screen, and a picture of 4 MB from the key to the screen."""

import random
import struct
import time
import zlib
from collections.abc import Sequence

from kasmon.bench.support.figure import Figure, percentile, timed
from kasmon.bench.support.fleet import create_sessions, scratch
from kasmon.bench.support.terminal import BenchTerminal, environment, open_dashboard, read_for
from kasmon.model.events import CommandsAnnounced, SessionStarted, SlashCommand
from kasmon.paths import write_private
from kasmon.store.event_log import EventLog

COMMANDS = 120
"""So many commands an agent with plugins has."""
WIDTH, HEIGHT = 1300, 1050
"""The pixels of a PNG of noise with some 4 MB."""
BACK = b"\x7f"
LIMIT_S = 5.0


def measure_completion(rounds: int) -> list[Figure]:
    """Measure from `/` and from each further letter to the matching commands on the screen."""
    with scratch() as paths, create_sessions(paths, 1) as (session,):
        commands = [SlashCommand(command=f"task-{n:03d}", text=f"marked {n:03d} done") for n in range(COMMANDS)]
        log = EventLog(paths.log(session))
        log.append(CommandsAnnounced(at=time.time(), slash_commands=tuple(commands)))
        first, letters = list[float](), list[float]()
        with open_dashboard(environment(paths.environment_variables())) as terminal:
            _open(terminal)
            for number in range(rounds):
                wanted = 10 + number % (COMMANDS - 20)
                first.append(terminal.press_until(b"/", b"marked 000 done", LIMIT_S))
                terminal.press(b"task-")
                read_for(terminal, 0.2)
                for at, letter in enumerate(f"{wanted:03d}"[:2]):
                    shown = f"marked {f'{wanted:03d}'[: at + 1]:0<3} done"
                    if at == 1:
                        letters.append(terminal.press_until(letter.encode(), shown.encode(), LIMIT_S))
                    else:
                        terminal.press(letter.encode())
                        read_for(terminal, 0.2)
                terminal.press(BACK * 8)
                read_for(terminal, 0.2)
    note = f"of {COMMANDS} commands; 95th percentile of the first: {percentile(first, 0.95):.1f} ms"
    return [
        timed("slash commands, / to the screen, p50", first, 30, note, share=0.5),
        timed("slash commands, letter to the screen, p50", letters, 30, "", share=0.5),
    ]


def measure_picture(rounds: int) -> list[Figure]:
    """Measure from the key to a picture of 4 MB on the screen, as half cells; the first time, and later ones."""
    with scratch() as paths:
        folder = paths.state / "pictures"
        folder.mkdir(mode=0o700, parents=True)
        content = _noise()
        write_private(folder / "noise.png", content)
        with create_sessions(paths, 1, workdir=str(folder)) as (session,):
            started = SessionStarted(
                at=time.time(), backend="scripted", abilities=("receives_images",), workdir=str(folder)
            )
            EventLog(paths.log(session)).append(started)
            own = environment(paths.environment_variables()) | {"COLORTERM": "truecolor", "TERM": "xterm-256color"}
            first, later = list[float](), list[float]()
            for _ in range(rounds):
                with open_dashboard(own) as terminal:
                    _open(terminal)
                    terminal.press(b"@noise.png ")
                    terminal.until(b"shows it")
                    read_for(terminal, 0.3)
                    for times in (first, later, later):
                        times.append(terminal.press_until(b"\x1bp", "▀".encode(), LIMIT_S))
                        read_for(terminal, 0.3)
                        terminal.press(b"\x1b")
                        read_for(terminal, 0.5)
    note = f"a PNG of {len(content) / 1e6:.1f} MB, {WIDTH}×{HEIGHT} pixels"
    return [
        timed("picture of 4 MB, key to the screen, p50", later, 300, note, share=0.5),
        timed("picture of 4 MB, first one of a dashboard, p50", first, None, "with the import of Pillow", share=0.5),
    ]


def _open(terminal: BenchTerminal) -> None:
    """Open the first session, and wait until its prompt box is there."""
    terminal.until(b"session-0000")
    read_for(terminal, 1.0)
    terminal.press(b"\r")
    read_for(terminal, 1.0)


def _noise() -> bytes:
    """Return a PNG that hardly compresses."""
    source = random.Random(1)
    rows = b"".join(b"\0" + source.randbytes(WIDTH * 3) for _ in range(HEIGHT))
    chunks: Sequence[tuple[bytes, bytes]] = (
        (b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows, 1)),
        (b"IEND", b""),
    )
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
