"""The registered machines."""

import pytest

from kasmon.errors import RefusedError, UsageError
from kasmon.paths import places
from kasmon.store.machines import Machine, require_free, write_machine


@pytest.mark.parametrize("name", ["any", "local", "A", "../x", "gpu:1", ""])
def test_a_name_that_means_something_else_registers_no_machine(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a machine"):
        require_free(places(), name)


def test_a_name_is_given_once() -> None:
    write_machine(places(), Machine(name="gpu-1"), is_new=True)

    with pytest.raises(RefusedError, match="a machine 'gpu-1' is registered"):
        write_machine(places(), Machine(name="gpu-1"), is_new=True)
