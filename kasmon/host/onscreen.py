"""The requests that stand on an agent's screen: what the menu offers is what they take, nothing is added to it."""

from kasmon.host.asks import Asks
from kasmon.host.pen import Pen
from kasmon.host.policy import Policy
from kasmon.model.command import Launch
from kasmon.model.permission import Request


class AsShown(Policy):
    """Standing rules neither answer nor extend what was read from a screen: they speak of tools, not of menus."""

    def offered(self, request: Request) -> Request:
        """*request* as it is."""
        return request


def screen_asks(pen: Pen, launch: Launch) -> Asks:
    """The requests of the agent of *launch*, which is in a terminal."""
    return Asks(pen, AsShown(pen.book.places, launch))
