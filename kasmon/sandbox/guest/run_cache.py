"""Results of recent runs: a run requested again by its key gets the first result, and is not executed again."""

from kasmon.sandbox.guest.turn import GuestTurn

ANSWERS = 64
BYTES = 8 * 1024 * 1024
WORDS = 4096


class RunResultCache:
    """The last results, by the runs' keys; of older runs only that they were executed."""

    def __init__(self) -> None:
        self.going: dict[str, GuestTurn] = {}
        self._answers: dict[str, dict[str, object]] = {}
        self._sizes: dict[str, int] = {}
        self._given: dict[str, None] = {}

    def keep(self, word: str, answer: dict[str, object]) -> None:
        """Store *answer* as the result of the run *word*."""
        self.going.pop(word, None)
        self._answers[word] = answer
        self._sizes[word] = sum(len(value) for value in answer.values() if isinstance(value, str))
        self._given[word] = None
        while len(self._answers) > 1 and (len(self._answers) > ANSWERS or sum(self._sizes.values()) > BYTES):
            oldest = next(iter(self._answers))
            del self._answers[oldest], self._sizes[oldest]
        while len(self._given) > WORDS:
            del self._given[next(iter(self._given))]

    def forget(self) -> None:
        """Delete all results; only that they were given stays known."""
        self._answers.clear()
        self._sizes.clear()

    def answer(self, word: str) -> dict[str, object] | None:
        """Return the result of the run *word*; None where it is unknown, or still runs."""
        if word in self._answers:
            return self._answers[word]
        if word in self._given:
            why = "This run was already executed, and its output is no longer stored. It was not run again."
            return {"stdout": "", "stderr": why, "exit_code": 125, "session_preserved": True, "hint": why}
        return None
