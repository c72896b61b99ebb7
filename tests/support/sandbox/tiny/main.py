"""The smallest agent inside: it runs the Python that a connection brings, and says what that printed."""

import json
import os
import socket
import subprocess
import threading


def serve(link: socket.socket) -> None:
    with link, link.makefile("rb") as lines:
        code = lines.read().decode()
        done = subprocess.run(
            ["/usr/bin/python3", "-I", "-S", "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        link.sendall(json.dumps([done.stdout, done.stderr, done.returncode]).encode())


def main() -> None:
    listener = socket.socket(fileno=int(os.environ["KASMON_LISTEN_FD"]))
    listener.set_inheritable(False)
    ready = int(os.environ["KASMON_READY_FD"])
    os.write(ready, b"R")
    os.close(ready)
    while True:
        link, _ = listener.accept()
        threading.Thread(target=serve, args=(link,), daemon=True).start()


if __name__ == "__main__":
    main()
