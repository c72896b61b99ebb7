"""An agent's own report by `kasmon ctx` over its host's socket, as an event."""

from kasmon.host.rpc.frames import ReportContext
from kasmon.model.events import ContextReported
from kasmon.model.task import declared


def said(frame: ReportContext, at: float) -> ContextReported:
    return declared(frame.waiting, frame.done, at)
