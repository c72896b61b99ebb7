"""Start the scripted agent's program; see `kasmon/scripted_agent/terminal`."""

import sys

from kasmon.scripted_agent.terminal.__main__ import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
