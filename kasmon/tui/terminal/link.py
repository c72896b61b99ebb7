"""The interface between a terminal widget and the host of its session."""

from typing import Protocol, TypeAlias

from kasmon.host.rpc.frames import Blur, Focus, Paste, Scroll, SendKeys, Unwatch, Watch

TerminalCommand: TypeAlias = Watch | Unwatch | Focus | Blur | SendKeys | Paste | Scroll


class TerminalLink(Protocol):
    """Sends commands about terminals. Results arrive as `TerminalRows` and `SubscriptionEnd`, through the app."""

    def send(self, command: TerminalCommand, /) -> None:
        """Send *command* at once and in order. Never blocks; a missing host is not an error here.

        `SendKeys`, `Paste` and `Scroll` come from the thread that reads stdin, the others from the app's loop.
        """
