"""The registered machines."""

import pytest

from kasmon.errors import RefusedError, UsageError
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths
from kasmon.store.machines import ChildRegister, Machine, require_free, write_machine


@pytest.mark.parametrize("name", ["any", "local", "A", "../x", "gpu:1", ""])
def test_a_name_with_another_meaning_registers_no_machine(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a machine"):
        require_free(user_paths(), name)


def test_a_name_is_given_once() -> None:
    write_machine(user_paths(), Machine(name="gpu-1"), is_new=True)

    with pytest.raises(RefusedError, match="a machine 'gpu-1' is registered"):
        write_machine(user_paths(), Machine(name="gpu-1"), is_new=True)


def test_who_started_a_session_there_is_recorded_once_and_until_it_is_removed() -> None:
    write_machine(user_paths(), Machine(name="gpu-1"))
    register, child, lead = ChildRegister(user_paths(), "gpu-1"), SessionId("childaaa"), SessionId("leadaaaa")
    register.add(child, lead)
    assert lead == ChildRegister(user_paths(), "gpu-1").starter_of(child)
    register.add(child, SessionId("otheraaa"))
    register.note_delivered(child, 3)

    again = ChildRegister(user_paths(), "gpu-1")
    assert (lead, 3) == (again.starter_of(child), again.delivered(child))
    again.remove(child)
    assert (False, 0) == (
        bool(ChildRegister(user_paths(), "gpu-1")),
        ChildRegister(user_paths(), "gpu-1").delivered(child),
    )
