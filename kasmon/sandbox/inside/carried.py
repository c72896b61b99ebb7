"""The end inside of a line that is stdin and stdout: it carries connections in and out, and ends with the line.

It listens for those who look for their proxy once the other end says `THERE` of connection 0, and says the same then.
"""

import os
import select

from kasmon.sandbox.inside.records import THERE, Records, WrongRecordError, packed
from kasmon.sandbox.inside.ways import INSIDE, OUT, Ways, door, to_port

BLOCK_BYTES = 1 << 18


def carry() -> None:
    """Do it until the line ends."""
    poll, records = select.poll(), Records()
    ways = Ways(_say, INSIDE, to_port)
    poll.register(0, select.POLLIN)
    poll.register(ways, select.POLLIN)
    while True:
        ready = [file for file, _ in poll.poll()]
        if ways.fileno() in ready:
            ways.serve()
        if 0 not in ready:
            continue
        try:
            data = os.read(0, BLOCK_BYTES)
        except BlockingIOError:
            continue
        if not data:
            return
        try:
            for kind, channel, content in records.feed(data):
                if kind == THERE and not channel:
                    ways.listen(door(), OUT)
                    _say(THERE, 0, b"")
                else:
                    ways.heard(kind, channel, content)
        except (WrongRecordError, ValueError):
            return


def _say(kind: int, channel: int, content: bytes) -> None:
    left = memoryview(packed(kind, channel, content))
    while left:
        try:
            left = left[os.write(1, left) :]
        except BlockingIOError:  # whoever gave us the line may have made it one that does not wait
            room = select.poll()
            room.register(1, select.POLLOUT)
            room.poll()
