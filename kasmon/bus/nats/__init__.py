"""Machines of a team over NATS JetStream; the extra `nats`, and `nats-server` where the server runs.

`cluster.py` has what a cluster is. `server_config.py` makes the server's configuration from it, `service.py` runs the
server and admits machines and people, `enrolment.py` joins with a token, `leaf.py` makes a server of a laptop's own.
`connection.py` connects, `signatures.py` signs and verifies commands. `machine.py` serves a machine's bus, and `bus.py`
opens that of another machine, both over `tunnel.py`. Start with `cluster.py`; docs/decisions/078 has the trust model.
"""

import contextlib
import sys

if "aiohttp" not in sys.modules:
    # nats-py 2.16 imports aiohttp where that is installed, for web sockets, which kasmon does not use: 11 MB a process
    sys.modules["aiohttp"] = None  # type: ignore[assignment]  # None makes an import fail
    try:
        with contextlib.suppress(ImportError):  # who needs the package says so
            import nats.aio.client  # noqa: F401 - loaded here, without aiohttp
    finally:
        del sys.modules["aiohttp"]
