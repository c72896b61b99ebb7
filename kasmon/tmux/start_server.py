"""Start and configure our tmux server with libtmux; run by path, as a program of its own.

    python start.py TMUX SOCKET CONF

A process of its own, because the server keeps the environment of whoever starts it, libtmux passes on all of its own,
and libtmux is too heavy to stay in a host for the sake of one call. Knows nothing of kasmon, so it needs no path to it.
Prints the server's pid, or says on stderr what tmux said and exits 1.
"""

import glob
import os
import sys


def main(program: str, socket: str, conf: str) -> int:
    """Start the server at *socket* with *conf*, or give *conf* to the one that runs there."""
    import libtmux

    os.umask(0o077)
    server = libtmux.Server(socket_path=socket, config_file=conf, tmux_bin=program)
    # A starting server keeps what it finds wrong in its conf to itself; source-file says it, and serves a running one.
    for command in (["start-server"], ["source-file", glob.escape(conf)], ["display-message", "-p", "#{pid}"]):
        answer = server.cmd(*command)
        if answer.stderr:
            sys.stderr.write(" ".join(answer.stderr))
            return 1
    sys.stdout.write(answer.stdout[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
