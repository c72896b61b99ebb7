"""Calls of the service through its official SDK. Each raises as `converted_errors` if the service does not do it.

The SDK gets all settings with each call: this process keeps no state of it but open connections.
"""

import contextlib
import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kasmon.errors import ExtraMissingError, SandboxError, SandboxUnreachableError, SnapshotRefusedError

if TYPE_CHECKING:
    import e2b

REQUEST_S: Final = 30.0
HINT: Final = "Set E2B_API_KEY to a key of the service (https://e2b.dev) before you start kasmon."
EVERYWHERE: Final = "0.0.0.0/0"


class ServiceAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Address and key of the service. As it holds a key, it is passed to kasmon's processes by a pipe alone."""

    key: str
    api: str = ""
    sandbox: str = ""
    domain: str = ""

    def options(self) -> dict[str, Any]:
        """Return the SDK's keyword arguments."""
        settings = {"api_key": self.key, "api_url": self.api, "sandbox_url": self.sandbox, "domain": self.domain}
        return {**{name: value for name, value in settings.items() if value}, "request_timeout": REQUEST_S}

    def variables(self) -> dict[str, str]:
        """Return the environment variables from which `access` builds an equal value."""
        return {name: getattr(self, field) for field, name in VARIABLES.items() if getattr(self, field)}


VARIABLES: Final = {"key": "E2B_API_KEY", "api": "E2B_API_URL", "sandbox": "E2B_SANDBOX_URL", "domain": "E2B_DOMAIN"}
"""The SDK's own variables."""
_learned: list[ServiceAccess] = []
"""The access from the variables of the last caller that had a key."""


def access(variables: Mapping[str, str] = os.environ) -> ServiceAccess | None:
    """Return the access from the environment, else from a caller's variables; None where neither has a key."""
    return _from_variables(variables) or (_learned[-1] if _learned else None)


def add_access(variables: Mapping[str, str]) -> None:
    """Remember the access in a caller's *variables*, if they have a key: the host may have been started without one."""
    if (found := _from_variables(variables)) is not None:
        _learned[:] = [found]


def _from_variables(variables: Mapping[str, str]) -> ServiceAccess | None:
    if not variables.get(VARIABLES["key"]):
        return None
    return ServiceAccess(**{field: variables.get(name, "") for field, name in VARIABLES.items()})


@functools.cache
def sdk() -> Any:
    """Return the SDK's module. Raises `ExtraMissingError` if it is not installed."""
    try:
        import e2b
    except ImportError as error:
        raise ExtraMissingError("a sandbox at the service", "e2b") from error
    return e2b


@contextlib.contextmanager
def converted_errors(what: str) -> Iterator[None]:
    """Convert the service's errors to kasmon's; *what* says what failed.

    Raises:
        SandboxMissingError: if the service has no such sandbox.
        SandboxUnreachableError: if it cannot be reached, or refuses now.
        SandboxError: if the sandbox's memory cannot be resumed.
    """
    errors = sdk()
    import httpx  # a dependency of the SDK, which lets some of its errors pass

    others = (httpx.HTTPError, OSError, json.JSONDecodeError)  # JSON: a proxy may answer with HTML
    try:
        yield
    except errors.SandboxNotFoundException as error:
        raise SandboxMissingError(what) from error
    except (errors.SandboxException, errors.AuthenticationException, errors.ServiceBusyException, *others) as error:
        is_rejected = isinstance(error, errors.AuthenticationException)
        hint = "Set E2B_API_KEY to a valid key of the service." if is_rejected else ""
        if isinstance(error, errors.RateLimitException):
            hint = "This key has too many sandboxes or requests: try again later, or remove some sandboxes."
        message = f"the service says: {_first_line(error)}"
        if isinstance(error, errors.GuestUnresponsiveException):
            raise SandboxError(what, message) from error
        raise SandboxUnreachableError(what, message, hint) from error


class SandboxMissingError(SnapshotRefusedError):
    """The service has no such sandbox."""

    def __init__(self, what: str) -> None:
        self.why = "the service no longer has it"
        SandboxError.__init__(self, what, self.why)


def create(
    access: ServiceAccess,
    template: str,
    timeout_s: int,
    name: str,
    hosts: Sequence[str],
    attempt: str,
    *,
    keeps: bool = True,
) -> "e2b.Sandbox":
    """Create a sandbox that the service pauses, with its memory, after *timeout_s* without use, and resumes on use.

    Args:
        template: the template to create it from; empty is the service's default.
        timeout_s: in seconds.
        name: the name by which `find_named` finds it.
        hosts: the hosts that it may reach; none where empty. Its ports have no public address.
        attempt: idempotency key: repeated calls with the same one create one sandbox.
        keeps: whether its memory may be stored; else it is ended instead of being paused.
    """
    network: dict[str, Any] = {"allow_public_traffic": False}
    reach: dict[str, Any] = {"network": network}
    if hosts:
        network |= _egress(hosts)
    else:
        reach["allow_internet_access"] = False
    with converted_errors("cannot create a sandbox"):
        sandbox: e2b.Sandbox = sdk().Sandbox.create(
            template or None,
            timeout=timeout_s,
            metadata={"kasmon": name},
            lifecycle={"on_timeout": "pause", "auto_resume": True} if keeps else {"on_timeout": "kill"},
            idempotency_key=attempt,
            **reach,
            **access.options(),
        )
    return sandbox


def connect(access: ServiceAccess, identity: str, timeout_s: int) -> "e2b.Sandbox":
    """Return the sandbox *identity*, resumed, with a timeout of at least *timeout_s* from now."""
    with converted_errors("the sandbox cannot be resumed"):
        sandbox: e2b.Sandbox = sdk().Sandbox.connect(identity, timeout=timeout_s, **access.options())
    return sandbox


def state(access: ServiceAccess, identity: str) -> str:
    """Return `running` or `paused`; empty where the service has no such sandbox."""
    try:
        with converted_errors("the sandbox cannot be inspected"):
            return str(sdk().Sandbox.get_info(identity, **access.options()).state.value)
    except SandboxMissingError:
        return ""


def pause(access: ServiceAccess, identity: str) -> None:
    """Pause it, with its memory; no error where it is paused already."""
    with converted_errors("the sandbox was not paused"):
        sdk().Sandbox.pause(identity, **access.options())


def extend_timeout(access: ServiceAccess, identity: str, timeout_s: int) -> None:
    with converted_errors("the sandbox's lifetime was not extended"):
        sdk().Sandbox.set_timeout(identity, timeout_s, **access.options())


def set_hosts(access: ServiceAccess, identity: str, hosts: Sequence[str]) -> None:
    """Let it reach only *hosts* from now on."""
    with converted_errors("the hosts that the sandbox may reach were not changed"):
        sdk().Sandbox.update_network(identity, _egress(hosts), **access.options())


def _egress(hosts: Sequence[str]) -> dict[str, Any]:
    return {"allow_out": list(hosts), "deny_out": [EVERYWHERE]}


def create_snapshot(access: ServiceAccess, identity: str) -> str:
    """Create a snapshot of it, with its memory, at the service; return its id, usable as a template.

    The sandbox must be running, and keeps running.
    """
    with converted_errors("cannot create a snapshot"):
        return str(sdk().Sandbox.create_snapshot(identity, **access.options()).snapshot_id)


def delete_snapshot(access: ServiceAccess, snapshot: str) -> None:
    """Delete *snapshot* at the service. Idempotent."""
    with converted_errors("a snapshot was not removed at the service"):
        sdk().Sandbox.delete_snapshot(snapshot, **access.options())


def find_named(access: ServiceAccess, name: str) -> tuple[str, ...]:
    """Return the ids of all sandboxes created as *name*."""
    with converted_errors("cannot list the sandboxes at the service"):
        pages = sdk().Sandbox.list(query=sdk().SandboxQuery(metadata={"kasmon": name}), **access.options())
        found: list[str] = []
        while pages.has_next:
            found += [each.sandbox_id for each in pages.next_items() if each.metadata.get("kasmon") == name]
    return tuple(found)


def kill(access: ServiceAccess, identity: str) -> None:
    """End it and delete it at the service. Idempotent."""
    with contextlib.suppress(SandboxMissingError), converted_errors("the sandbox was not ended at the service"):
        sdk().Sandbox.kill(identity, **access.options())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(".")
