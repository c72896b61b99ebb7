"""A session moves only where nothing is lost by it; where it cannot, it stays as it is and says why."""

import asyncio
from collections.abc import Iterator

import pytest

from kasmon.config import Config, parse
from kasmon.errors import KasmonError, RefusedError, SessionBusyError, UnableError
from kasmon.model.command import Mode, ReceiptState
from kasmon.model.permission import SessionId
from kasmon.model.state import SessionState
from kasmon.supervisor.move import move
from tests.safety.dash import Home
from tests.waiting import until


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as home:
        yield home


def moved(home: Home, session: SessionId, to: Mode, config: Config | None = None) -> None:
    asyncio.run(move(home.places, config or Config(), home.session(session), to))


def test_where_it_is_already_it_does_not_move(home: Home) -> None:
    session = home.start("worker")
    with pytest.raises(RefusedError, match="in mode 'sdk' already"):
        moved(home, session, Mode.SDK)


def test_a_turn_is_never_cut_off(home: Home) -> None:
    session = home.start("worker", "hang")
    until(lambda: home.session(session).state is SessionState.WORKING)
    with pytest.raises(SessionBusyError, match="working"):
        moved(home, session, Mode.TMUX)

    assert SessionState.WORKING is home.session(session).state


def test_prompts_that_wait_are_not_lost(home: Home) -> None:
    session = home.start("worker", "hang")
    until(lambda: home.session(session).state is SessionState.WORKING)
    asyncio.run(_queue(home, session))
    with pytest.raises(RefusedError, match="1 prompts waiting"):
        moved(home, session, Mode.TMUX)


async def _queue(home: Home, session: SessionId) -> None:
    from kasmon.supervisor import verb

    await verb.send(home.places, home.session(session), "say later", "idle")


def test_a_program_that_cannot_go_on_in_a_terminal_stays(home: Home) -> None:
    """The scripted agent remembers nothing."""
    session = home.start("worker", "say hello")
    until(lambda: home.session(session).turns == 1 and home.session(session).state is SessionState.IDLE)
    with pytest.raises(UnableError, match="does not know how"):
        moved(home, session, Mode.TMUX)

    assert home.session(session).exists


def test_a_terminal_that_does_not_tell_its_conversation_stays(home: Home) -> None:
    session = home.start("worker", "say hello", mode=Mode.TMUX)
    until(lambda: [ReceiptState.FINISHED] == [receipt.state for receipt in home.session(session).receipts])
    until(lambda: home.session(session).state is SessionState.IDLE)
    with pytest.raises(UnableError, match="does not tell which conversation"):
        moved(home, session, Mode.SDK)

    assert home.session(session).exists


def test_a_terminal_of_which_nobody_can_tell_stays(home: Home) -> None:
    session = home.start("worker", agent="", mode=Mode.TMUX, argv=("cat",))
    config = parse('[agents.cat]\nprogram = "cat"\nprotocol = "codex"')
    until(lambda: home.session(session).state is SessionState.UNSURE)
    with pytest.raises(RefusedError, match="nobody can tell"):
        moved(home, session, Mode.SDK, config)


def test_a_program_without_a_protocol_stays(home: Home) -> None:
    session = home.start("worker", agent="", mode=Mode.TMUX, argv=("cat",))
    with pytest.raises(KasmonError, match="cat"):
        moved(home, session, Mode.SDK, parse('[agents.cat]\nprogram = "cat"'))

    assert home.session(session).exists
