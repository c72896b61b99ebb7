"""No code runs twice: a run that is asked for again by its own word gets the answer of the first time."""

from kasmon.sandbox.guest.turn import GuestTurn

ANSWERS = 64
BYTES = 8 * 1024 * 1024
WORDS = 4096


class RunResultCache:
    """The last answers, each by its run's word; of older ones only that they were given."""

    def __init__(self) -> None:
        self.going: dict[str, GuestTurn] = {}
        self._answers: dict[str, dict[str, object]] = {}
        self._sizes: dict[str, int] = {}
        self._given: dict[str, None] = {}

    def keep(self, word: str, answer: dict[str, object]) -> None:
        """The run of *word* is done."""
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
        """Hold no answer any more, only that they were given."""
        self._answers.clear()
        self._sizes.clear()

    def answer(self, word: str) -> dict[str, object] | None:
        """What came of the run of *word*; None where it was never asked for, or still runs."""
        if word in self._answers:
            return self._answers[word]
        if word in self._given:
            why = "This run was already executed, and its output is no longer stored. It was not run again."
            return {"stdout": "", "stderr": why, "exit_code": 125, "session_preserved": True, "hint": why}
        return None
