"""The filter, run here as the kernel would run it: what it lets pass on each processor, and what not."""

import functools
import re
import struct
from collections.abc import Iterable
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
    MODE_AT,
    NO_EFFECT,
    TYPING,
    X32,
    Architecture,
    build_filter,
)

MACHINES: tuple[Architecture, ...] = get_args(Architecture)
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@functools.cache
def steps_for(machine: Architecture) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("<HBBI", build_filter(machine)))


def verdict(machine: Architecture, number: int, *arguments: int, audit: int | None = None) -> int:
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


def number_of(name: str, machine: Architecture) -> int:
    found = {**DENIED, **LOOKED_AT}[name][MACHINES.index(machine)]
    assert found is not None
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_every_denied_call_is_refused_and_every_other_is_allowed(machine: Architecture) -> None:
    denied = {both[MACHINES.index(machine)] for both in DENIED.values()} - {None}
    looked_at = {both[MACHINES.index(machine)] for both in LOOKED_AT.values()} - {None}

    assert {EPERM} == {verdict(machine, number) for number in denied if number is not None}
    assert {ALLOW} == {verdict(machine, number) for number in range(512) if number not in denied | looked_at}


CHANGES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
"""System call -> which of its arguments, counted from 0, is the mode that a file gets."""
CREATES = {"creat": 1, "mknod": 1, "mknodat": 2, "open": 2, "openat": 3}
FLAGS = {"open": 1, "openat": 2}
"""Likewise the flags: a mode counts only with some of them."""
MODES = (0o4000, 0o2000, 0o6000, 0o4755, 0o2755, 0o6755, 0o2755 | 1 << 32, 0o4755 | 1 << 32)


def called(name: str, machine: Architecture, mode: int, flags: int = 0o100) -> int:
    """What the filter says of the call *name* with *mode*."""
    arguments = [0] * 6
    arguments[{**CHANGES, **CREATES}[name]] = mode
    if name in FLAGS:
        arguments[FLAGS[name]] = flags
    return verdict(machine, number_of(name, machine), *arguments)


def on(machine: Architecture, names: Iterable[str]) -> list[str]:
    return [name for name in names if LOOKED_AT[name][MACHINES.index(machine)] is not None]


@pytest.mark.parametrize("machine", MACHINES)
def test_no_mode_gets_setuid_or_setgid_by_any_call_and_every_other_mode_is_allowed(machine: Architecture) -> None:
    assert MODE_AT.keys() == CHANGES.keys() | CREATES.keys()
    for name in on(machine, MODE_AT):
        assert {ALLOW} == {called(name, machine, mode) for mode in range(0o2000)}
        assert ALLOW not in {called(name, machine, mode) for mode in MODES}
        assert {EPERM} == {called(name, machine, mode) for mode in MODES if mode & 0o4000}
    assert {NO_EFFECT} == {called(name, machine, 0o2755) for name in on(machine, CHANGES)}
    assert {EPERM} == {called(name, machine, 0o2755) for name in on(machine, CREATES)}
    assert ENOSYS == verdict(machine, number_of("openat2", machine))


@pytest.mark.parametrize("machine", MACHINES)
def test_the_mode_of_open_counts_only_where_it_creates(machine: Architecture) -> None:
    """Elsewhere it is whatever stands in that register."""
    for name in on(machine, FLAGS):
        assert {ALLOW} == {called(name, machine, 0o6755, flags) for flags in (0, 1, 2, 0o1000, 0o2000000)}
        assert {EPERM} == {called(name, machine, 0o6755, flags) for flags in (0o100, 0o101, 0o20000000, 0o20200001)}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_process_may_be_forked_but_no_namespace_with_it(machine: Architecture) -> None:
    clone = number_of("clone", machine)

    assert ALLOW == verdict(machine, clone, 0x01200011)
    assert {EPERM} == {verdict(machine, clone, 0x11 | 1 << bit) for bit in (17, 25, 26, 27, 28, 29, 30)}
    assert ENOSYS == verdict(machine, number_of("clone3", machine))


@pytest.mark.parametrize("machine", MACHINES)
def test_no_character_is_typed_into_a_terminal_for_any_upper_half_of_the_argument(
    machine: Architecture,
) -> None:
    ioctl = number_of("ioctl", machine)

    assert ALLOW == verdict(machine, ioctl, 0, 0x5401)
    for request in TYPING:
        assert EPERM == verdict(machine, ioctl, 0, request)
        assert EPERM == verdict(machine, ioctl, 0, request | 1 << 32)


@pytest.mark.parametrize("machine", MACHINES)
def test_only_sockets_of_a_few_families_are_created(machine: Architecture) -> None:
    made = {family for family in range(64) if verdict(machine, number_of("socket", machine), family) == ALLOW}

    assert set(FAMILIES) == made
    assert EAFNOSUPPORT == verdict(machine, number_of("socket", machine), 40)


def test_calls_of_another_architecture_end_the_process_or_do_not_exist() -> None:
    assert KILL == verdict("x86_64", 0, audit=0x40000003)
    assert KILL == verdict("aarch64", 0, audit=AUDIT["x86_64"])
    assert {ENOSYS} == {verdict("x86_64", X32 | number) for number in (0, 41, 101, 512)}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernel(machine: Architecture) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"{HEADERS[machine]} is not installed")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text())
    known = {name: int(number) for name, number in defined}
    ours = {name: both[MACHINES.index(machine)] for name, both in {**DENIED, **LOOKED_AT}.items()}

    older = {"fchmodat2"} - known.keys()  # it came with Linux 6.6
    assert {name: known.get(name) for name in ours.keys() - older} == {name: ours[name] for name in ours.keys() - older}


def test_an_unknown_architecture_gets_no_jail() -> None:
    with pytest.raises(SandboxError, match="riscv64"):
        build_filter("riscv64")
