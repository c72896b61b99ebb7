"""What an agent says of itself by `kasmon ctx` over its host's socket, as a fact."""

from kasmon.host.rpc.frames import ReportContext
from kasmon.model.events import ContextReported
from kasmon.model.task import declared


def said(frame: ReportContext, at: float) -> ContextReported:
    """The fact that *frame* tells of."""
    return declared(frame.waiting, frame.done, at)
