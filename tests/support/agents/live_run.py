"""A live run of an agent in a terminal: every 0.2 s what kasmon says of it, against what its model server knows.

`python -m tests.support.agents.live_run` prints the table of the last runs (`make test-more-agents`), and fails where
kasmon was sure of a wrong state.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from kasmon.model.session_state import SessionState
from tests.support.agents.real_agent import ROOT
from tests.support.model_stub import ModelStub
from tests.support.model_stub.script import TOOL_VERBS

EVERY_S: Final = 0.2
LAG_S: Final = 4.0
"""A state may be said so long after it ended: an agent draws, tmux tells, kasmon looks at a still screen each 3 s."""
FOUND: Final = ROOT / ".cache" / "more-evidence"
S = SessionState


class Sample(NamedTuple):
    at: float
    true: SessionState
    said: SessionState


class LiveRun:
    """Samples in a thread, for as long as the block runs.

    Without a sample is the time of which nothing certain is known: between a prompt and its first request, after an
    answer that may have ended the turn, after an error, which an agent may try again, and until the agent has drawn
    what the model server has sent.
    """

    def __init__(
        self, stub: ModelStub, read_state: Callable[[], SessionState], shows: Callable[[str], bool], ready: str
    ) -> None:
        """*read_state* returns the state that kasmon says now, *shows* whether a pattern is found on the screen.

        *ready* is the pattern of what the agent shows while it reads input.
        """
        self._stub, self._said, self._shows, self._ready = stub, read_state, shows, ready
        self._first, self._asks, self._works, self._answered = len(stub.turns), "", "", False
        self._known: list[tuple[float, SessionState | None]] = []
        self.samples: list[Sample] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def began(self, asks: str, works: str) -> None:
        """A prompt is sent now, to an idle agent.

        Args:
            asks: the pattern of what it asks before it does what its model calls; empty: it does not ask.
            works: the pattern of what it shows while it works; empty: it leaves that on the screen.
        """
        self._known.append((time.monotonic(), S.IDLE))
        self._first, self._asks, self._works, self._answered = len(self._stub.turns), asks, works, False

    def answered(self) -> None:
        """A key answered what the agent asked."""
        self._answered = True

    def true(self) -> SessionState | None:
        """The state by the model server's requests; None where it does not know."""
        turns = self._stub.turns[self._first :]
        if not turns or turns[-1]["reply"].startswith("fail"):
            return None
        if "took_s" not in turns[-1]:
            return S.WORKING
        if not any(step.verb in TOOL_VERBS for step in turns[-1].get("steps") or ()):
            return None if (self._works and self._shows(self._works)) or not self._shows(self._ready) else S.IDLE
        if not self._asks:
            return S.WORKING
        return S.ASKING if not self._answered and self._shows(self._asks) else None

    def has_begun(self) -> bool:
        """Whether the model was asked since the last prompt."""
        return len(self._stub.turns) > self._first

    def _sample(self) -> None:
        while not self._over.wait(EVERY_S):
            now, true = time.monotonic(), self.true()
            self._known.append((now, true))
            if true is not None:
                self.samples.append(Sample(now, true, self._said()))

    def counts(self) -> dict[str, int]:
        """How many samples were right, unsure and wrong; a state that was true `LAG_S` before counts as right."""
        unsure = sum(sample.said is S.UNSURE and not self._was_true(sample) for sample in self.samples)
        wrong = len(self.wrong())
        return {"right": len(self.samples) - unsure - wrong, "unsure": unsure, "wrong": wrong}

    def wrong(self) -> list[str]:
        """The samples of which kasmon was sure and wrong."""
        start = self.samples[0].at if self.samples else 0.0
        return [
            f"{sample.at - start:.1f} s: {sample.true} read as {sample.said}"
            for sample in self.samples
            if sample.said is not S.UNSURE and not self._was_true(sample)
        ]

    def _was_true(self, sample: Sample) -> bool:
        return any(sample.at - LAG_S <= at <= sample.at and true in (None, sample.said) for at, true in self._known)


def keep(agent: str, version: str, **figures: Any) -> None:
    """Add *figures* of one run to what is known of *agent*."""
    FOUND.mkdir(parents=True, exist_ok=True)
    file = FOUND / f"{agent}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**known, "agent": agent, "version": version, **figures}, indent=1))


COLUMNS: Final = ("agent", "version", "turn_s", "memory_mib", "right", "unsure", "wrong")


def table(folder: Path = FOUND) -> str:
    """The figures of the last runs as a Markdown table."""
    rows: Sequence[dict[str, Any]] = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    lines = [" | ".join(str(row.get(column, "")) for column in COLUMNS) for row in rows]
    return "\n".join(f"| {line} |" for line in (" | ".join(COLUMNS), "|".join(["---"] * len(COLUMNS)), *lines))


def main() -> int:
    print(table())
    return int(any(json.loads(file.read_text()).get("wrong") for file in FOUND.glob("*.json")))


if __name__ == "__main__":
    sys.exit(main())
