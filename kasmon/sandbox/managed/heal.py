"""Heal a resumed sandbox: check it before it is used, report differences, and restore what is missing.

In this order: its clock; whether it responds; its interpreters' run counters; its volatile files; its services, which
are restarted in the background; and last whether it runs a command.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from kasmon.errors import KasmonError, SandboxError
from kasmon.model.sandbox.policy import Interpreter, SandboxPolicy, ServiceSpec, VolatileFile
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.guest_client.protocol import GuestStatus
from kasmon.sandbox.shared.credentials import CredentialFindings

PROBE_S: Final = 1.0
"""How long a service may take to answer a probe, in seconds."""
STARTED_S: Final = 30.0
"""How long a restarted service may take until it answers."""
BETWEEN_S: Final = 0.2
HEALTH_S: Final = 5.0
"""How long `echo ok` may take."""
LAG_S: Final = 1.0
"""A clock inside that is off by more is reported."""


class HealResult(msgspec.Struct, frozen=True, kw_only=True):
    why: str = ""
    """Why it cannot be trusted; empty if it can."""
    drift: tuple[str, ...] = ()
    """What differs from before, each as one sentence."""
    lost: str = ""
    """A loss that the check itself found and that is reported only once; empty if none."""
    down: tuple[ServiceSpec, ...] = ()
    """Services that did not answer and must be restarted."""


def heal(
    guest: GuestChannel,
    policy: SandboxPolicy,
    counters: Mapping[str, int],
    values: Mapping[str, str],
    *,
    was_asleep: bool = True,
) -> HealResult:
    """Check the sandbox behind *guest* and restore what it lacks. Blocks up to about 10 s; raises nothing.

    Args:
        counters: how many runs each interpreter had before; empty if unknown.
        values: the values of credentials, by their variable.
        was_asleep: whether it was paused; its volatile files are gone then.
    """
    drift: list[str] = []
    try:
        if abs(lag_s := guest.set_clock(time.time())) > LAG_S:
            drift.append(f"Its clock was {abs(lag_s):.1f} s {'behind' if lag_s > 0 else 'ahead'}.")
        nonce = secrets.token_hex(8)
        state = guest.ping(nonce)
        drift += _find_counter_drift(state, counters, was_asleep)
        if was_asleep:
            drift += rewrite(guest, policy.volatile, values)
        down = tuple(service for service in policy.services if not guest.listens(service.port, PROBE_S))
        drift += [f"The service {service.name!r} did not respond on port {service.port}." for service in down]
        why, lost = ("", "") if "bash" in state.busy else _check_health(guest)  # a busy shell is not disturbed
    except KasmonError as error:
        return HealResult(why=error.message.rstrip("."), drift=tuple(drift))
    return HealResult(why=why, drift=tuple(drift), lost=lost, down=down)


def rewrite(guest: GuestChannel, volatile: Sequence[VolatileFile], values: Mapping[str, str]) -> list[str]:
    """Write each of *volatile* again; return the failures, each as one sentence."""
    missing: list[str] = []
    for file in volatile:
        if file.source and file.source not in values:
            missing.append(f"{file.path!r} was not created: its credential {file.source!r} has no value.")
            continue
        content = values[file.source] if file.source else file.content
        try:
            guest.write_volatile(file.path, content.encode("utf-8", "surrogateescape"), file.mode)
        except KasmonError as error:
            missing.append(f"{file.path!r} could not be written: {error.message}")
    return missing


def remove_credentials(
    guest: GuestChannel, volatile: Sequence[VolatileFile], findings: CredentialFindings
) -> dict[str, tuple[str, ...]]:
    """Remove the values of credentials from *volatile* and from interpreters, before anything of the sandbox is stored.

    Returns the names of the variables that were removed, by interpreter.

    Raises:
        SandboxError: if they may not all be removed; nothing may be stored then.
    """
    for file in volatile:
        try:
            guest.write_volatile(file.path, b"", file.mode)
        except SandboxError as error:
            raise SandboxError("nothing of the sandbox is stored", f"{file.path!r} could not be emptied") from error
    if not findings.values:
        return {}
    gone = guest.forget(tuple(findings.values), findings.secrets)
    return {interpreter: tuple(names) for interpreter, names in gone.items() if names}


def prewarm(guest: GuestChannel, interpreters: Sequence[Interpreter]) -> threading.Thread:
    """Start *interpreters* in a thread; a failure is reported by the first run that needs the interpreter."""

    def work() -> None:
        with contextlib.suppress(KasmonError):
            guest.prewarm(interpreters)

    thread = threading.Thread(target=work, name="prewarm", daemon=True)
    thread.start()
    return thread


class ServiceReport(Protocol):
    """Takes a sentence about a service; a warning where the service does not respond."""

    def __call__(self, text: str, /, *, is_warning: bool) -> None: ...


def start_services(
    guest: GuestChannel, services: Sequence[ServiceSpec], report: ServiceReport
) -> threading.Thread | None:
    """Start *services* in a thread and pass a sentence on each to *report*; None if there are none."""
    if not services:
        return None
    thread = threading.Thread(target=_run_services, args=(guest, services, report), name="services", daemon=True)
    thread.start()
    return thread


def _run_services(guest: GuestChannel, services: Sequence[ServiceSpec], report: ServiceReport) -> None:
    for service in services:
        try:
            guest.spawn(service)
        except KasmonError as error:
            report(f"The service {service.name!r} could not be started: {error.message}", is_warning=True)
    for service in services:
        problem = _wait_for_service(guest, service, time.monotonic() + STARTED_S)
        report(problem or f"The service {service.name!r} responds on port {service.port}.", is_warning=bool(problem))


def _wait_for_service(guest: GuestChannel, service: ServiceSpec, deadline: float) -> str:
    """Return why *service* does not respond until *deadline*; empty once it does."""
    while True:
        try:
            if guest.listens(service.port, PROBE_S):
                return ""
        except KasmonError as error:
            return f"The service {service.name!r} cannot be checked: {error.message}"
        if time.monotonic() > deadline:
            return f"The service {service.name!r} does not respond on port {service.port} after {STARTED_S:g} s."
        time.sleep(BETWEEN_S)


def _find_counter_drift(state: GuestStatus, counters: Mapping[str, int], was_asleep: bool) -> list[str]:
    """Return which interpreters were restarted or ran more than was recorded; runs continue while there is no host."""
    moved: list[str] = []
    for name, before in counters.items():
        after = state.counters.get(name, 0)
        if after < before:
            moved.append(f"{name} was restarted and lost its state.")
        elif after > before and was_asleep:
            moved.append(f"{name} ran {after - before} more times than recorded.")
    return moved


def _check_health(guest: GuestChannel) -> tuple[str, str]:
    """Return why it runs nothing (empty if it does), and what its shell lost before, which is reported only once."""
    ran = guest.run("bash", "echo ok", timeout_s=HEALTH_S)
    lost = "" if ran.session_preserved else "bash had ended: its variables are lost"
    if ran.exit_code != 0 or ran.stdout.strip() != "ok":
        output = (ran.stderr or ran.hint or ran.stdout).strip().splitlines()
        return f"`echo ok` ended with {ran.exit_code}{f': {output[-1]}' if output else ''}", lost
    return "", lost
