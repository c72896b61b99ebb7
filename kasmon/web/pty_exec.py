"""Start program of a page's dashboard: make the terminal on stdin its controlling one, and exec its arguments.

It imports nothing of kasmon and is started without `site`, so that it is replaced within a few milliseconds.
"""

import fcntl
import os
import sys
import termios

if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.execv(sys.argv[1], sys.argv[1:])
