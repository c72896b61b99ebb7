"""What a visit starts: it takes the terminal on its stdin, as a login does, and becomes what its arguments say.

It imports nothing of ours and is started without `site`: it is gone after a few milliseconds.
"""

import fcntl
import os
import sys
import termios

if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.execv(sys.argv[1], sys.argv[1:])
