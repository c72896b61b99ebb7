"""Which restores failed before anything ran: only those of which runsc itself says so, in words that were seen."""

import pytest

from kasmon.sandbox.gvisor.failing import never_ran

LOADS = 'starting container: restoring container "abcdefgh-1f": '


@pytest.mark.parametrize(
    "said",
    [
        "creating container: cannot create sandbox: cannot read client sync file: waiting for sandbox to start: EOF",
        "running container: creating container: cannot create sandbox: EOF",
        f"{LOADS}no such file or directory",
        f"running container: {LOADS}no such file or directory",
        f"{LOADS}input/output error",
    ],
)
def test_what_failed_while_it_was_made_or_loaded_let_nothing_run(said: str) -> None:
    assert never_ran(128, said)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (-9, f"{LOADS}no such file or directory"),
        (0, f"{LOADS}no such file or directory"),
        (128, f'{LOADS}urpc method "containerManager.Restore" failed: EOF'),
        (128, f"{LOADS}write unix @->@: Connection reset by peer"),
        (128, f"{LOADS}starting sandbox: no memory"),
        (128, f"{LOADS}timed out"),
        (128, 'restoring container "abcdefgh-1f": no such file or directory'),
        (128, "starting container: no space left on device"),
        (128, f"loading {LOADS}no such file or directory"),
        (137, "gs     0x0"),
        (1, ""),
    ],
)
def test_whatever_else_it_says_something_may_have_run(status: int, said: str) -> None:
    assert not never_ran(status, said)


def test_a_session_is_not_taken_for_what_is_said_of_it() -> None:
    assert never_ran(128, 'starting container: restoring container "eofclose-1f": no such file or directory')
