"""A terminal of its own for one program, in a tmux server of its own: type, wait for what stands there, keep it."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.support.detection.golden import Shot
from tests.support.wait import until

CELLS: Final = (120, 40)
"""What a session of kasmon's own has."""
STILL_LOOKS: Final = 25
"""So often in a row a screen has to look the same before it is taken for whole; a look takes 10 ms and more."""
FACTS: Final = "#{pane_width} #{pane_height} #{cursor_x} #{cursor_y} #{cursor_flag} #{alternate_on} #{pane_title}"
CONFIGURATION: Final = """
set -s exit-empty off
set -s escape-time 0
set -s focus-events on
set -s extended-keys on
set -s default-terminal tmux-256color
set -g status off
set -gw remain-on-exit on
set -gw allow-rename off
set -gw automatic-rename off
"""


class Terminal:
    """*argv* in a pane of its own; gone, with its server, when the block ends."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], workdir: Path, cells: tuple[int, int] = CELLS
    ) -> None:
        self.argv, self.environment, self.workdir, self.cells = argv, environment, workdir, cells

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="kg-", dir="/tmp"))
        (self._folder / "conf").write_text(CONFIGURATION)
        columns, rows = self.cells
        self._tmux(
            *("new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(self.workdir), "--", *self.argv)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.shot().text)
        self._tmux("kill-server")
        shutil.rmtree(self._folder, ignore_errors=True)

    def type(self, text: str) -> None:
        """Type *text*, and wait until it is there."""
        self.type_now(text)
        self.still()

    def type_now(self, text: str) -> None:
        """Type *text* into a screen that does not stand still."""
        self._tmux("send-keys", "-l", "-t", "0", "--", text)

    def paste(self, text: str) -> None:
        """Paste *text* as a person does, and wait until it is there."""
        self._tmux("load-buffer", "-b", "golden", "-", given=text)
        self._tmux("paste-buffer", "-p", "-r", "-d", "-b", "golden", "-t", "0")
        self.still()

    def key(self, *names: str) -> None:
        """Press keys, by tmux's names for them."""
        self._tmux("send-keys", "-t", "0", *names)

    def press(self, key: str, gone: str, limit_s: float = 30.0) -> None:
        """Press *key* until *gone* is found no more: some dialogs hear nothing while they are new."""
        looks = 0

        def is_gone() -> bool:
            nonlocal looks
            if not re.search(gone, self.plain()):
                return True
            if looks % STILL_LOOKS == 0:
                self.key(key)
            looks += 1
            return False

        until(is_gone, limit_s, f"no {gone!r}")

    def say(self, prompt: str) -> None:
        """Paste *prompt* and send it."""
        self.paste(prompt)
        self.key("Enter")

    def until(self, pattern: str, limit_s: float = 30.0) -> None:
        """Wait for a row in which *pattern* is found."""
        wanted = re.compile(pattern, re.MULTILINE)
        until(lambda: wanted.search(self.plain()), limit_s, f"{pattern!r}")

    def gone(self, pattern: str, limit_s: float = 30.0) -> None:
        """Wait until *pattern* is found no more."""
        wanted = re.compile(pattern, re.MULTILINE)
        until(lambda: not wanted.search(self.plain()), limit_s, f"no {pattern!r}")

    def still(self, limit_s: float = 40.0) -> None:
        """Wait until the screen does not change for a moment."""
        seen: list[Any] = []

        def is_still() -> bool:
            seen.append(self.plain())
            return len(seen) > STILL_LOOKS and len(set(seen[-STILL_LOOKS:])) == 1

        until(is_still, limit_s, "a screen that stands still")

    def still_but_for(self, pattern: str, limit_s: float = 40.0) -> None:
        """Wait until nothing changes for a moment but rows in which *pattern* is found."""
        moving = re.compile(pattern)
        seen: list[tuple[str, ...]] = []

        def is_still() -> bool:
            seen.append(tuple(row for row in self.plain().splitlines() if not moving.search(row)))
            return len(seen) > STILL_LOOKS and len(set(seen[-STILL_LOOKS:])) == 1

        until(is_still, limit_s, "a screen that stands still")

    def plain(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "0")

    def shot(self) -> Shot:
        """The screen as it stands there now."""
        text = self._tmux("capture-pane", "-e", "-p", "-t", "0")
        fields = self._tmux("display-message", "-p", "-t", "0", FACTS).removesuffix("\n").split(" ", 6)
        columns, rows, x, y, visible, alternate = (int(number) for number in fields[:6])
        facts = {
            "columns": columns,
            "rows": rows,
            "cursor": [x, y],
            "cursor_visible": bool(visible),
            "alternate": bool(alternate),
        }
        return Shot(text, fields[6], facts)

    def shot_with(self, holds: str, lacks: str = "", limit_s: float = 30.0) -> Shot:
        """The first screen that holds the pattern *holds*, and not *lacks* where that is given."""
        wanted, unwanted = re.compile(holds, re.MULTILINE), re.compile(lacks or r"(?!)", re.MULTILINE)

        def right() -> Shot | None:
            shot = self.shot()
            plain = re.sub(r"\x1b\[[0-9;:]*m|[\x0e\x0f]", "", shot.text)
            return shot if wanted.search(plain) and not unwanted.search(plain) else None

        return until(right, limit_s, f"a screen with {holds!r} and without {lacks!r}")

    def _tmux(self, *arguments: str, given: str | None = None) -> str:
        folder = self._folder
        argv = ["tmux", "-u", "-S", str(folder / "t"), "-f", str(folder / "conf"), *arguments]
        run = subprocess.run(
            argv,
            input=given,
            env=self.environment,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if run.returncode:
            raise RuntimeError(f"tmux {arguments[0]}: {run.stderr.strip()}")
        return run.stdout
