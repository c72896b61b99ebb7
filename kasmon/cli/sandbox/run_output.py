"""The output of a sandbox run as it arrives. Imports little: every `sandbox run` waits for these imports."""

import contextlib
import sys
from typing import Final

from kasmon.cli.output.console import note
from kasmon.host.rpc.frames import RunOutputChunk
from kasmon.model.sandbox.policy import MIB, RunResult
from kasmon.sanitize import clean_block

REMEMBERED: Final = 4 * MIB
"""Printed output is remembered up to this many characters; the result contains no more than that."""


class RunOutput:
    """Prints a run's output to stdout and stderr, each piece once."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._printed = {"stdout": "", "stderr": ""}

    def print_chunk(self, printed: RunOutputChunk) -> None:
        """Print a chunk of output, unless quiet; report skipped characters on stderr."""
        if self._is_quiet:
            return
        if printed.skipped:
            note(f"{printed.skipped} characters of output were not shown.")
        self._print("stdout", printed.stdout)
        self._print("stderr", printed.stderr)

    def finish(self, ran: RunResult) -> None:
        """Print the output that was not printed before, and the run's hint."""
        for name, whole in (("stdout", ran.stdout), ("stderr", ran.stderr)):
            told = self._printed[name]
            if whole.startswith(told):
                self._print(name, whole[len(told) :])
        if ran.hint and ran.hint not in ran.stderr:
            note(ran.hint)
        elif ran.hint:
            self._print("stderr", "\n")

    def _print(self, name: str, text: str) -> None:
        if not text:
            return
        if len(self._printed[name]) <= REMEMBERED:
            self._printed[name] += text
        stream = sys.stdout if name == "stdout" else sys.stderr
        with contextlib.suppress(ValueError):
            print(clean_block(text) if stream.isatty() else text, end="", file=stream, flush=True)
