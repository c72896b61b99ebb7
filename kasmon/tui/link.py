"""What a terminal on the screen needs of the host that holds it: somewhere to send its wishes."""

from typing import Protocol, TypeAlias

from kasmon.host.wire import Blur, Focus, Keys, Paste, Scroll, Unwatch, Watch

TerminalWish: TypeAlias = Watch | Unwatch | Focus | Blur | Keys | Paste | Scroll


class TerminalLink(Protocol):
    """Where wishes about terminals go. What comes of them arrives as `Rows` and `Gone`, by the app's hands."""

    def tell(self, wish: TerminalWish, /) -> None:
        """Send *wish* at once; what is told first arrives first. Never blocks; a host that is gone is no error here.

        `Keys`, `Paste` and `Scroll` come from the thread that reads stdin, the others from the app's loop.
        """
