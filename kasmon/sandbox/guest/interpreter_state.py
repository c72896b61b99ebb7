"""Saves the state of the interpreters as bytes, name by name, with a reason for each that is lost; and loads it.

The interpreters themselves write and parse it; the host stores it unread.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence

from kasmon.sandbox.guest.interpreter import Interpreter
from kasmon.sandbox.guest.private_folder import PrivateFolder
from kasmon.sandbox.guest.turn import GuestTurn

PART_BYTES = 4 * 1024 * 1024
TIME_S = 60.0
FORMAT = 1

JsonObject = dict[str, object]


def unpacked(data: object) -> bytes:
    """Return the bytes of a base64 text. Raises `OSError` if *data* is no base64."""
    if not isinstance(data, str):
        raise OSError("'data' is base64")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise OSError("'data' is base64") from None


class StateSaver:
    """Lets each interpreter save its state; `send` gets `part`s, then the answer."""

    MOST_BYTES = 32 * 1024 * 1024

    def __init__(self, place: PrivateFolder, asked: Sequence[Interpreter], secrets: Sequence[str]) -> None:
        self._place, self._asked, self._secrets = place, asked, secrets
        self._said: dict[str, JsonObject] = {}
        self._blobs: dict[str, bytes] = {}

    def begin(self, send: Callable[[JsonObject], None]) -> None:
        self._send = send
        if not self._asked:
            self._finish()
        for each in self._asked:
            path = self._place.write(f"{each.name}.state", b"")
            turn = GuestTurn({"path": path, "secrets": list(self._secrets)}, do="save", timeout_s=TIME_S)
            turn.waiting.append(lambda said, name=each.name: self._handle_reply(name, said))  # type: ignore[misc]
            if not each.submit(turn):
                self._handle_reply(each.name, {"lost": f"{each.name} is busy"})

    def _handle_reply(self, name: str, said: JsonObject) -> None:
        blob = self._place.read(f"{name}.state")
        self._place.drop(f"{name}.state")
        if isinstance(said.get("lost"), str):  # all of it
            said = {"kept": [], "lost": {name: said["lost"]}}
        elif sum(map(len, self._blobs.values())) + len(blob) > self.MOST_BYTES:
            said = {"kept": [], "lost": {name: f"its state is too large: {len(blob)} bytes"}}
        elif any(secret.encode() in blob for secret in self._secrets if secret):
            said = {"kept": [], "lost": {name: "its state contains a credential"}}
        else:
            self._blobs[name] = blob
        self._said[name] = {"kept": said.get("kept", []), "lost": said.get("lost", {})}
        if len(self._said) == len(self._asked):
            self._finish()

    def _finish(self) -> None:
        head = json.dumps({"format": FORMAT, "sizes": {name: len(blob) for name, blob in self._blobs.items()}})
        whole = head.encode() + b"\n" + b"".join(self._blobs.values())
        for at in range(0, len(whole), PART_BYTES):
            self._send({"type": "part", "data": base64.b64encode(whole[at : at + PART_BYTES]).decode()})
        self._send({"type": "answer", "interpreters": self._said})


class StateLoader:
    """Lets each interpreter load the saved state of its kind; the answer has the names restored in each."""

    def __init__(self, place: PrivateFolder, interpreters: Mapping[str, Interpreter], state: bytes) -> None:
        self._place, self._interpreters, self._state = place, interpreters, state
        self._said: dict[str, JsonObject] = {}

    def begin(self, send: Callable[[JsonObject], None]) -> None:
        self._send = send
        head, _, rest = self._state.partition(b"\n")
        try:
            told = json.loads(head)
            sizes = {name: int(size) for name, size in told["sizes"].items() if name in self._interpreters}
            if told["format"] != FORMAT or sum(sizes.values()) != len(rest):
                raise ValueError("another format")
        except (ValueError, TypeError, KeyError, AttributeError):
            send({"stdout": "", "stderr": "this is not interpreter state", "exit_code": 1})
            return
        self._expected = len(sizes)
        if not sizes:
            send({"type": "answer", "interpreters": {}})
        for name, size in sizes.items():
            blob, rest = rest[:size], rest[size:]
            path = self._place.write(f"{name}.state", blob)
            turn = GuestTurn({"path": path}, do="load", timeout_s=TIME_S)
            turn.waiting.append(lambda said, name=name: self._handle_reply(name, said))  # type: ignore[misc]
            if not self._interpreters[name].submit(turn):
                self._handle_reply(name, {"lost": f"{name} is busy"})

    def _handle_reply(self, name: str, said: JsonObject) -> None:
        self._place.drop(f"{name}.state")
        lost = said.get("lost", {})
        self._said[name] = {"kept": said.get("kept", []), "lost": {name: lost} if isinstance(lost, str) else lost}
        if len(self._said) == self._expected:
            self._send({"type": "answer", "interpreters": self._said})
