"""Program that floods a port of loopback: PORT, and a request with escapes that is refused; or it only connects."""

import contextlib
import socket
import sys


def main() -> None:
    port, request = int(sys.argv[1]), sys.argv[2].encode().decode("unicode_escape").encode()
    print("flooding", flush=True)
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as line:
            for _ in range(100 if request else 0):
                line.sendall(request)
                if not line.recv(65536):
                    break


main()
