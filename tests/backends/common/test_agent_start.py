"""How long an agent may take to introduce itself: what a person set; else more where its processor is emulated."""

import pytest

from kasmon.backends.common.agent_start import EMULATED_S, HANDSHAKE_S, limit_s
from kasmon.model.commands import Launch, Mode
from kasmon.model.permission import SessionId


def launch(sandbox: str | None, handshake_s: float | None = None) -> Launch:
    return Launch(
        session=SessionId("abcdefgh"),
        name="one",
        agent="claude",
        mode=Mode.SDK,
        backend="claude",
        argv=("claude",),
        workdir="/",
        sandbox=sandbox,  # type: ignore[arg-type]
        handshake_s=handshake_s,
    )


@pytest.mark.parametrize("sandbox", [None, "jail", "e2b"])
def test_the_default_time_limit_is_the_usual_start_time(sandbox: str | None) -> None:
    assert HANDSHAKE_S == limit_s(launch(sandbox))


def test_in_a_virtual_machine_the_time_limit_is_longer() -> None:
    assert HANDSHAKE_S + EMULATED_S == limit_s(launch("microvm"))


@pytest.mark.parametrize("sandbox", [None, "microvm"])
def test_a_limit_that_the_user_set_applies_in_every_sandbox(sandbox: str | None) -> None:
    assert 3.0 == limit_s(launch(sandbox, 3.0))
