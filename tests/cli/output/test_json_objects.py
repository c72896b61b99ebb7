"""Which fields of kasmon's own values are public: a field that is new is published on purpose only."""

from kasmon.cli.ctx import peers_of_plan
from kasmon.cli.output.json_objects import receipt_object, request_object
from kasmon.model.commands import Receipt, ReceiptId, ReceiptState
from kasmon.model.permission import SessionId
from kasmon.supervisor.plans.peers.context import TaskContext, TaskPeer
from tests.support.sample_events import request
from tests.support.sample_fleet import fleet, idle


def test_a_request_a_receipt_and_a_peer_in_a_plan_have_these_fields() -> None:
    assert " ".join(sorted(request_object(request()))) == (
        "answerable asked_at choices digest free_text id input is_diff kind later many may_be_cut "
        "option_notes options required rule session shown title tool why"
    )

    receipt = Receipt(id=ReceiptId("abcdefgh-r1"), session=SessionId("abcdefgh"), state=ReceiptState.QUEUED)
    assert " ".join(sorted(receipt_object(receipt))) == (
        "actor at by carried_by exit_code id reason session state text"
    )

    known = idle("parser")
    peers = (TaskPeer(task=1, id=str(known.id)), TaskPeer(task=2))
    context = TaskContext(plan="p", name="p", task=3, wave=1, peers=3, title="t", notes="n", peer_sessions=peers)
    names = "branch done files id machine name state task task_state title waits"
    shown = peers_of_plan(context, fleet(known))
    assert [names, names] == [" ".join(sorted(each)) for each in shown]
