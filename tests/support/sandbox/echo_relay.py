"""A way into no sandbox: whoever comes hears what they said."""

import socket
from collections.abc import Mapping
from typing import Any


class Echo:
    def join(self, caller: socket.socket, /) -> None:
        while data := caller.recv(4096):
            caller.sendall(data)


def open_sandbox(given: Mapping[str, Any]) -> Echo:
    return Echo()
