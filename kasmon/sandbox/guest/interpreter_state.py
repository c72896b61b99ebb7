"""Saves the state of the interpreters as bytes, name by name, with a reason for each that is lost; and loads it.

The interpreters themselves write and parse it; the host stores it unread.
"""

import base64
import itertools
import json
from collections.abc import Callable, Mapping, Sequence

from kasmon.sandbox.guest.interpreter import GuestInterpreter
from kasmon.sandbox.guest.private_folder import PrivateFolder
from kasmon.sandbox.guest.turn import GuestTurn

MOST_BYTES = 32 * 1024 * 1024
PART_BYTES = 4 * 1024 * 1024
TIME_S = 60.0
FORMAT = 1

JsonObject = dict[str, object]
_numbers = itertools.count()


def unpacked(data: object) -> bytes:
    """Return the bytes of a base64 text. Raises `OSError` if *data* is no base64."""
    if not isinstance(data, str):
        raise OSError("'data' is base64")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise OSError("'data' is base64") from None


def ask_all(
    turns: Sequence[tuple[GuestInterpreter, GuestTurn]],
    finish: Callable[[dict[str, JsonObject]], None],
    receive: Callable[[str, JsonObject], JsonObject] = lambda name, said: said,
) -> None:
    """Submit each turn to its interpreter; call *finish* with all answers, by the interpreters' names, after the last.

    *receive* returns what an answer becomes. It is called before the interpreter's next turn, which may use the same
    file. The answer of a busy interpreter is that all is `lost`.
    """
    answers: dict[str, JsonObject] = {}

    def handle_reply(name: str, reply: JsonObject) -> None:
        answers[name] = receive(name, reply)
        if len(answers) == len(turns):
            finish(answers)

    for each, turn in turns:
        turn.waiting.append(lambda said, name=each.name: handle_reply(name, said))  # type: ignore[misc]
        if not each.submit(turn):
            handle_reply(each.name, {"lost": f"{each.name} is busy"})
    if not turns:
        finish({})


def save_state(
    place: PrivateFolder, asked: Sequence[GuestInterpreter], secrets: Sequence[str], send: Callable[[JsonObject], None]
) -> None:
    """Let each of *asked* save its state; *send* gets `part`s, then the answer."""
    blobs: dict[str, bytes] = {}
    number = next(_numbers)  # two saves at once use different files

    def receive(name: str, reply: JsonObject) -> JsonObject:
        blob, lost = place.read(f"{name}-{number}.state"), reply.get("lost", {})
        place.drop(f"{name}-{number}.state")
        if not isinstance(lost, str) and sum(map(len, blobs.values())) + len(blob) > MOST_BYTES:
            lost = f"its state is too large: {len(blob)} bytes"
        elif not isinstance(lost, str) and any(secret.encode() in blob for secret in secrets if secret):
            lost = "its state contains a credential"
        if isinstance(lost, str):  # all of it
            return {"kept": [], "lost": {name: lost}}
        blobs[name] = blob
        return {"kept": reply.get("kept", []), "lost": lost}

    def finish(answers: dict[str, JsonObject]) -> None:
        head = json.dumps({"format": FORMAT, "sizes": {name: len(blob) for name, blob in blobs.items()}})
        whole = head.encode() + b"\n" + b"".join(blobs.values())
        for at in range(0, len(whole), PART_BYTES):
            send({"type": "part", "data": base64.b64encode(whole[at : at + PART_BYTES]).decode()})
        send({"type": "answer", "interpreters": answers})

    paths = {each: place.write(f"{each.name}-{number}.state", b"") for each in asked}
    ask_all([(each, _turn("save", path=path, secrets=list(secrets))) for each, path in paths.items()], finish, receive)


def load_state(
    place: PrivateFolder, interpreters: Mapping[str, GuestInterpreter], state: bytes, send: Callable[[JsonObject], None]
) -> None:
    """Let each interpreter load the saved state of its kind; the answer has the names restored in each."""
    head, _, rest = state.partition(b"\n")
    try:
        header = json.loads(head)
        sizes = {name: int(size) for name, size in header["sizes"].items() if name in interpreters}
        if header["format"] != FORMAT or sum(sizes.values()) != len(rest):
            raise ValueError("another format")
    except (ValueError, TypeError, KeyError, AttributeError):
        send({"stdout": "", "stderr": "this is not interpreter state", "exit_code": 1})
        return

    def receive(name: str, reply: JsonObject) -> JsonObject:
        place.drop(f"{name}.state")
        lost = reply.get("lost", {})
        return {"kept": reply.get("kept", []), "lost": {name: lost} if isinstance(lost, str) else lost}

    turns = []
    for name, size in sizes.items():
        blob, rest = rest[:size], rest[size:]
        turns.append((interpreters[name], _turn("load", path=place.write(f"{name}.state", blob))))
    ask_all(turns, lambda answers: send({"type": "answer", "interpreters": answers}), receive)


def _turn(do: str, **message: object) -> GuestTurn:
    return GuestTurn(message, do=do, timeout_s=TIME_S)
