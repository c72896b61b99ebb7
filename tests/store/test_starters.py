"""Who started which session, also once sessions were removed."""

from collections.abc import Iterator

import pytest

from kasmon.errors import RefusedError
from kasmon.host.rpc.actor import require_started_elsewhere
from kasmon.model.commands import ActingAgent
from kasmon.model.events import SessionCreated, SessionForgotten
from kasmon.model.permission import SessionId
from kasmon.store.starters import StarterLog, find_ancestors, find_starter_elsewhere, read_starters
from tests.support.supervisor.env import NOW, Env, launch

TOP, MIDDLE, LOW, OTHER = map(SessionId, ("topaaaaa", "middleaa", "lowaaaaa", "otheraaa"))
DISTANT = ActingAgent(session=SessionId("leadaaaa"), machine="laptop")


@pytest.fixture
def state() -> Iterator[Env]:
    """The list of a kasmon whose sessions have no files: another machine's agent started TOP."""
    env = Env()
    starters = {
        TOP: DISTANT,
        MIDDLE: ActingAgent(session=TOP, depth=1),
        LOW: ActingAgent(session=MIDDLE, depth=2),
        SessionId("personal"): None,
        OTHER: ActingAgent(session=SessionId("personal")),
    }
    for session, actor in starters.items():
        env.says(SessionCreated(at=NOW, launch=launch(session, actor=actor)))
    for removed in (TOP, MIDDLE):
        env.says(SessionForgotten(at=NOW, session=removed))
    yield env
    env.close()


@pytest.mark.parametrize("session", [TOP, MIDDLE, LOW])
def test_the_agent_of_another_machine_is_found_through_removed_sessions(state: Env, session: SessionId) -> None:
    assert DISTANT == find_starter_elsewhere(session, read_starters(state.paths))
    require_started_elsewhere(state.paths, session)


def test_a_session_that_only_agents_here_started_has_no_starter_elsewhere(state: Env) -> None:
    assert find_starter_elsewhere(OTHER, read_starters(state.paths)) is None
    with pytest.raises(RefusedError, match=f"no agent of another machine started session '{OTHER}'"):
        require_started_elsewhere(state.paths, OTHER)


def test_sessions_that_started_each_other_or_none_end_the_search(state: Env) -> None:
    starters = {
        TOP: ActingAgent(session=LOW),
        LOW: ActingAgent(session=TOP),
        MIDDLE: ActingAgent(session=SessionId("")),
    }

    assert [LOW, TOP] == find_ancestors(LOW, starters)
    assert [MIDDLE] == find_ancestors(MIDDLE, starters)
    assert find_starter_elsewhere(LOW, starters) is None


def test_starters_are_copied_while_no_other_thread_reads_the_log_again(state: Env) -> None:
    log, was_held = StarterLog(state.paths), list[bool]()

    class Watched(dict[SessionId, ActingAgent | None]):
        def __iter__(self) -> Iterator[SessionId]:  # so that `dict` copies it by its keys
            return super().__iter__()

        def __getitem__(self, session: SessionId) -> ActingAgent | None:
            was_held.append(log._lock.locked())
            return super().__getitem__(session)

    log._starters = Watched()

    assert read_starters(state.paths) == log.read()
    assert {True} == set(was_held)
