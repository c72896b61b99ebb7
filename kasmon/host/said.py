"""What an agent says of itself by `kasmon ctx` over its host's socket, as a fact."""

from kasmon.host.wire import Say
from kasmon.model.declared import declared
from kasmon.model.event import ContextSaid


def said(frame: Say, at: float) -> ContextSaid:
    """The fact that *frame* tells of."""
    return declared(frame.waiting, frame.done, at)
