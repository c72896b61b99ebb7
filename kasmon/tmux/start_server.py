"""Program that starts and configures our tmux server with libtmux; run by its path.

    python start_server.py TMUX SOCKET CONF

It is a separate process because the server keeps the environment of its starter and libtmux passes on all of its own;
libtmux is also too heavy to load into a host for one call. It imports nothing of kasmon, so it needs no path to it.
Prints the server's pid, or writes tmux's error to stderr and exits 1.
"""

import glob
import os
import sys


def main(program: str, socket: str, conf: str) -> int:
    """Start the server at *socket* with *conf*, or apply *conf* to the server that runs there."""
    import libtmux

    os.umask(0o077)
    server = libtmux.Server(socket_path=socket, config_file=conf, tmux_bin=program)
    # A starting server does not report errors in its conf; source-file does, and also configures a running server.
    for command in (["start-server"], ["source-file", glob.escape(conf)], ["display-message", "-p", "#{pid}"]):
        answer = server.cmd(*command)
        if answer.stderr:
            sys.stderr.write(" ".join(answer.stderr))
            return 1
    sys.stdout.write(answer.stdout[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
