"""The filter, run here as the kernel would run it: what it lets pass on each processor, and what not."""

import functools
import re
import struct
from pathlib import Path
from typing import get_args

import pytest

from kasmon.errors import SandboxError
from kasmon.sandbox.jail.seccomp import (
    ALLOW,
    AUDIT,
    DENIED,
    EAFNOSUPPORT,
    ENOSYS,
    EPERM,
    FAMILIES,
    KILL,
    LOOKED_AT,
    TYPING,
    X32,
    Machine,
    program,
)

MACHINES: tuple[Machine, ...] = get_args(Machine)
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@functools.cache
def steps_for(machine: Machine) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("<HBBI", program(machine)))


def verdict(machine: Machine, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the filter for *machine* says of one call."""
    call = struct.pack("<IIQ6Q", number, AUDIT[machine] if audit is None else audit, 0, *(*arguments, *[0] * 6)[:6])
    steps = steps_for(machine)
    at = accumulator = 0
    while True:
        code, then, otherwise, value = steps[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", call, value)
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            at += then if holds else otherwise


def number_of(name: str, machine: Machine) -> int:
    found = {**DENIED, **LOOKED_AT}[name][MACHINES.index(machine)]
    assert found is not None
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_every_denied_call_is_refused_and_every_other_is_allowed(machine: Machine) -> None:
    denied = {both[MACHINES.index(machine)] for both in DENIED.values()} - {None}
    looked_at = {both[MACHINES.index(machine)] for both in LOOKED_AT.values()}

    assert {EPERM} == {verdict(machine, number) for number in denied if number is not None}
    assert {ALLOW} == {verdict(machine, number) for number in range(512) if number not in denied | looked_at}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_process_may_be_made_but_no_namespace_with_it(machine: Machine) -> None:
    clone = number_of("clone", machine)

    assert ALLOW == verdict(machine, clone, 0x01200011)
    assert {EPERM} == {verdict(machine, clone, 0x11 | 1 << bit) for bit in (17, 25, 26, 27, 28, 29, 30)}
    assert ENOSYS == verdict(machine, number_of("clone3", machine))


@pytest.mark.parametrize("machine", MACHINES)
def test_no_character_is_typed_into_a_terminal_whatever_the_upper_half_of_the_argument_says(machine: Machine) -> None:
    ioctl = number_of("ioctl", machine)

    assert ALLOW == verdict(machine, ioctl, 0, 0x5401)
    for request in TYPING:
        assert EPERM == verdict(machine, ioctl, 0, request)
        assert EPERM == verdict(machine, ioctl, 0, request | 1 << 32)


@pytest.mark.parametrize("machine", MACHINES)
def test_only_sockets_of_a_few_families_are_made(machine: Machine) -> None:
    made = {family for family in range(64) if verdict(machine, number_of("socket", machine), family) == ALLOW}

    assert set(FAMILIES) == made
    assert EAFNOSUPPORT == verdict(machine, number_of("socket", machine), 40)


def test_calls_in_the_numbering_of_another_machine_end_the_process_or_do_not_exist() -> None:
    assert KILL == verdict("x86_64", 0, audit=0x40000003)
    assert KILL == verdict("aarch64", 0, audit=AUDIT["x86_64"])
    assert {ENOSYS} == {verdict("x86_64", X32 | number) for number in (0, 41, 101, 512)}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernel(machine: Machine) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"{HEADERS[machine]} is not installed")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text())
    known = {name: int(number) for name, number in defined}
    ours = {name: both[MACHINES.index(machine)] for name, both in {**DENIED, **LOOKED_AT}.items()}

    assert {name: known.get(name) for name in ours} == ours


def test_a_machine_that_we_do_not_know_gets_no_jail() -> None:
    with pytest.raises(SandboxError, match="riscv64"):
        program("riscv64")
