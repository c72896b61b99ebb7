"""Program that writes the logs of working structured sessions, at a constant rate, without end.

    python -m kasmon.bench.dashboard.event_writer HZ SESSION...

The events are a message, a tool call, its result and the usage, in turn. The messages of the first session begin with
their time of writing: `T<nanoseconds>T`, by the monotonic clock, which all processes of a machine share. It is not in
the message's last line, so the list does not show it.
"""

import itertools
import sys
import time
from collections.abc import Iterator, Sequence

from kasmon.model.events import Event, MessageWritten, ToolFinished, ToolStarted, UsageReported
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths
from kasmon.store.event_log import EventLog

EVERY_MESSAGE = 4
"""One of this many events is a message."""


def talk(sessions: Sequence[SessionId], rate_hz: float) -> None:
    """Append *rate_hz* events a second to each of *sessions*, evenly spread; never returns."""
    paths = user_paths()
    logs = [EventLog(paths.log(session)) for session in sessions]
    stories = [generate_story(stamps=number == 0) for number in range(len(sessions))]
    step_s = 1 / (rate_hz * len(sessions))
    due = time.monotonic()
    for log, story in itertools.cycle(zip(logs, stories, strict=True)):
        due += step_s
        time.sleep(max(0.0, due - time.monotonic()))
        log.append(next(story))


def generate_story(*, stamps: bool) -> Iterator[Event]:
    """Yield a message, a tool call, its result and the usage, again and again; each message has a stamp if *stamps*."""
    for number in itertools.count():
        stamp = f"T{time.monotonic_ns()}T" if stamps else "No stamp"
        yield MessageWritten(
            at=time.time(), text=f"{stamp} is when I said this.\n\nOn with part {number} of the whole."
        )
        call = f"call-{number}"
        yield ToolStarted(
            at=time.time(), call=call, tool="Bash", title=f"make part-{number}", input='{"command":"make"}'
        )
        yield ToolFinished(at=time.time(), call=call, output=f"part {number}: compiled\npart {number}: linked\n")
        yield UsageReported(at=time.time(), input=1000 + number, output=number, context=900, limit=200_000)


if __name__ == "__main__":
    talk([SessionId(session) for session in sys.argv[2:]], float(sys.argv[1]))
