"""What a terminal on the screen needs of the host that holds it: somewhere to send its wishes."""

from typing import Protocol, TypeAlias

from kasmon.host.rpc.frames import Blur, Focus, Paste, Scroll, SendKeys, Unwatch, Watch

TerminalWish: TypeAlias = Watch | Unwatch | Focus | Blur | SendKeys | Paste | Scroll


class TerminalLink(Protocol):
    """Sends commands about terminals. Results arrive as `TerminalRows` and `SubscriptionEnded`, through the app."""

    def tell(self, wish: TerminalWish, /) -> None:
        """Send *wish* at once; what is told first arrives first. Never blocks; a host that is gone is no error here.

        `SendKeys`, `Paste` and `Scroll` come from the thread that reads stdin, the others from the app's loop.
        """
