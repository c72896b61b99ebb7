"""Runs of code: each has a key, is executed once, and can be recalled and interrupted by its key."""

from collections.abc import Callable

from kasmon.sandbox.guest.client import GuestConnection, InvalidRequestError, JsonObject, number, variables_of
from kasmon.sandbox.guest.interpreter import GuestInterpreter
from kasmon.sandbox.guest.outcome import not_run
from kasmon.sandbox.guest.turn import CAP_BYTES, TIME_S, GuestTurn

LONGEST_S = 7 * 86400.0


class GuestRuns:
    """Request handlers: each takes a request, and returns its answer or sends that later."""

    def __init__(self, interpreter: Callable[..., GuestInterpreter]) -> None:
        """*interpreter*: returns the one that a request names, else the one of the given default name."""
        self._interpreter = interpreter
        self._remembered = RunResultCache()

    def forget_output(self) -> None:
        """Delete all stored results; only that they were given stays known."""
        self._remembered.forget()

    def execute(self, client: GuestConnection, message: JsonObject) -> None:
        """Queue the code for execution; where its key is known, attach the client to that run instead."""
        interpreter = self._interpreter(message, "bash")
        if self.recalled(client, message):
            return
        key = message.get("once")
        turn = self._turn(message, interpreter.name)
        if isinstance(key, str):
            turn.key = key
            self._remembered.going[key] = turn
            turn.waiting.append(lambda words: self._remembered.store(key, words))
        self._attend(client, message, turn)
        if not interpreter.submit(turn):
            if isinstance(key, str):
                del self._remembered.going[key]
            raise InvalidRequestError(
                f"{interpreter.name} is busy, with {len(interpreter.queue)} runs queued. Run it later."
            )

    def recall(self, client: GuestConnection, message: JsonObject) -> JsonObject | None:
        """Attach the client to the run of a key, and run nothing; the state is `unknown` where there is none."""
        return None if self.recalled(client, message) else {"state": "unknown"}

    def recalled(self, client: GuestConnection, message: JsonObject) -> bool:
        """Send *client* the result of the run that *message* names, now or at its end; return whether it is known."""
        key = message.get("once")
        if not isinstance(key, str):
            return False
        if done := self._remembered.answer(key):
            _answer(client, message)(done)
        elif going := self._remembered.going.get(key):
            self._attend(client, message, going)
        else:
            return False
        return True

    def interrupt(self, client: GuestConnection, message: JsonObject) -> None:
        """Interrupt the current run of an interpreter, or only that with a given key."""
        key = message.get("once")
        self._interpreter(message).interrupt(
            lambda words: client.send({"id": message.get("id"), "type": "answer", **words}),
            key if isinstance(key, str) else "",
        )

    def _turn(self, message: JsonObject, interpreter: str) -> GuestTurn:
        code = message.get("code")
        if not isinstance(code, str):
            raise InvalidRequestError("'code' is missing, or is not text")
        if interpreter == "bash" and "\0" in code:
            raise InvalidRequestError("bash cannot run code with a NUL character in it. Write it as '\\0'.")
        return GuestTurn(
            {"code": code, "variables": variables_of(message)},
            timeout_s=number(message, "timeout_s", TIME_S, LONGEST_S),
            cap=int(number(message, "cap", CAP_BYTES, 1 << 40)),
            session=str(message.get("session") or "")[:200],
        )

    def _attend(self, client: GuestConnection, message: JsonObject, turn: GuestTurn) -> None:
        """Send *client* the result of *turn* at its end, and its live output and start if *message* requests those."""
        name = message.get("id")
        if message.get("stream") is True:
            turn.listeners.append(
                lambda stream, text: client.send_live({"id": name, "type": "stream", "name": stream, "data": text})
            )
        if message.get("began") is True:
            if turn.begun_at:
                client.send({"id": name, "type": "began"})
            else:
                turn.began.append(lambda: client.send({"id": name, "type": "began"}))
        turn.waiting.append(_answer(client, message))


def _answer(client: GuestConnection, message: JsonObject) -> Callable[[JsonObject], None]:
    """Return a callback that sends *client* the answer to *message*, with a type where the request has an id."""

    def answer(reply: JsonObject) -> None:
        client.send({"id": message.get("id"), "type": "result", **reply} if "id" in message else reply)

    return answer


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

    def store(self, key: str, answer: dict[str, object]) -> None:
        self.going.pop(key, None)
        self._answers[key] = answer
        self._sizes[key] = sum(len(value) for value in answer.values() if isinstance(value, str))
        self._given[key] = None
        while len(self._answers) > 1 and (len(self._answers) > ANSWERS or sum(self._sizes.values()) > BYTES):
            oldest = next(iter(self._answers))
            del self._answers[oldest], self._sizes[oldest]
        while len(self._given) > WORDS:
            del self._given[next(iter(self._given))]

    def forget(self) -> None:
        """Delete all results; only that they were given stays known."""
        self._answers.clear()
        self._sizes.clear()

    def answer(self, key: str) -> dict[str, object] | None:
        """Return the result of the run *key*; None where it is unknown, or still runs."""
        if key in self._answers:
            return self._answers[key]
        if key in self._given:
            return not_run("This run was already executed, and its output is no longer stored. It was not run again.")
        return None
