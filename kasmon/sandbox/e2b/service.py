"""What kasmon asks of the service, in its official SDK's words; its errors are ours from here on.

The SDK is told everything with each call: nothing of it is kept in this process but open connections.
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
    """How the service is reached, and as whom. It holds a key: it goes to processes of ours by a pipe alone."""

    key: str
    api: str = ""
    sandbox: str = ""
    domain: str = ""

    def options(self) -> dict[str, Any]:
        """As the SDK takes them."""
        given = {"api_key": self.key, "api_url": self.api, "sandbox_url": self.sandbox, "domain": self.domain}
        return {**{name: value for name, value in given.items() if value}, "request_timeout": REQUEST_S}

    def variables(self) -> dict[str, str]:
        """As `access` finds it."""
        return {name: getattr(self, field) for field, name in NAMED.items() if getattr(self, field)}


NAMED: Final = {"key": "E2B_API_KEY", "api": "E2B_API_URL", "sandbox": "E2B_SANDBOX_URL", "domain": "E2B_DOMAIN"}
"""The SDK's own variables."""
_learned: list[ServiceAccess] = []
"""As somebody who wanted something of this process said it last."""


def access(variables: Mapping[str, str] = os.environ) -> ServiceAccess | None:
    """As the environment says it, or who wanted something of us; None where nobody has a key."""
    return _in(variables) or (_learned[-1] if _learned else None)


def needed() -> ServiceAccess:
    """As `access`.

    Raises:
        SandboxError: if there is no key.
    """
    if (found := access()) is None:
        raise SandboxError("the service is unavailable", "no API key is set", HINT)
    return found


def learn(variables: Mapping[str, str]) -> None:
    """Remember what *variables* of who wants something of us say of it, if they do: a host may have been without."""
    if (found := _in(variables)) is not None:
        _learned[:] = [found]


def _in(variables: Mapping[str, str]) -> ServiceAccess | None:
    if not variables.get(NAMED["key"]):
        return None
    return ServiceAccess(**{field: variables.get(name, "") for field, name in NAMED.items()})


@functools.cache
def sdk() -> Any:
    """The SDK.

    Raises:
        ExtraMissingError: if it is not installed.
    """
    try:
        import e2b
    except ImportError as error:
        raise ExtraMissingError("a sandbox at the service", "e2b") from error
    return e2b


@contextlib.contextmanager
def ours(what: str) -> Iterator[None]:
    """The service's errors as ours; *what* did not happen then.

    Raises:
        MissingError: if the service has no such sandbox.
        SandboxUnreachableError: if it cannot be asked, or does not do it now.
        SandboxError: if the sandbox's memory cannot be gone on from.
    """
    known = sdk()
    import httpx  # the SDK brings it, and lets some of its errors pass

    others = (httpx.HTTPError, OSError, json.JSONDecodeError)  # a proxy answers with a page
    try:
        yield
    except known.SandboxNotFoundException as error:
        raise SandboxMissingError(what) from error
    except (known.SandboxException, known.AuthenticationException, known.ServiceBusyException, *others) as error:
        hint = (
            "Set E2B_API_KEY to a valid key of the service." if isinstance(error, known.AuthenticationException) else ""
        )
        if isinstance(error, known.RateLimitException):
            hint = "This key has too many sandboxes or requests: try again later, or remove some sandboxes."
        said = f"the service says: {_first_line(error)}"
        if isinstance(error, known.GuestUnresponsiveException):
            raise SandboxError(what, said) from error
        raise SandboxUnreachableError(what, said, hint) from error


class SandboxMissingError(SnapshotRefusedError):
    """The service has no such sandbox."""

    def __init__(self, what: str) -> None:
        self.why = "the service no longer has it"
        SandboxError.__init__(self, what, self.why)


def made(
    access: ServiceAccess,
    template: str,
    timeout_s: int,
    name: str,
    hosts: Sequence[str],
    attempt: str,
    *,
    keeps: bool = True,
) -> "e2b.Sandbox":
    """Make one that is paused, with its memory, when nobody used it for *timeout_s*, and wakes when it is used.

    Args:
        access: where.
        template: what it is made from; empty is the service's own choice.
        timeout_s: in seconds.
        name: by which `named` finds it.
        hosts: whom it may reach; nobody where that is empty. Nobody reaches its ports by a public address.
        attempt: of two calls of one attempt only one makes a sandbox.
        keeps: its memory may be kept; else it is ended where it would be paused.

    Raises:
        SandboxError: if the service does not make it.
    """
    network: dict[str, Any] = {"allow_public_traffic": False}
    reach: dict[str, Any] = {"network": network}
    if hosts:
        network |= _egress(hosts)
    else:
        reach["allow_internet_access"] = False
    with ours("cannot create a sandbox"):
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


def connected(access: ServiceAccess, identity: str, timeout_s: int) -> "e2b.Sandbox":
    """The sandbox *identity*, awake; for *timeout_s* more at least.

    Raises:
        MissingError: if the service no longer has it.
        SandboxError: if it cannot be reached.
    """
    with ours("the sandbox cannot be resumed"):
        sandbox: e2b.Sandbox = sdk().Sandbox.connect(identity, timeout=timeout_s, **access.options())
    return sandbox


def state(access: ServiceAccess, identity: str) -> str:
    """`running` or `paused`; empty where the service has no such sandbox.

    Raises:
        SandboxError: if the service does not say.
    """
    try:
        with ours("the sandbox cannot be inspected"):
            return str(sdk().Sandbox.get_info(identity, **access.options()).state.value)
    except SandboxMissingError:
        return ""


def paused(access: ServiceAccess, identity: str) -> None:
    """Pause it, with its memory; it is no error where it is paused already.

    Raises:
        SandboxError: if it is not paused after this.
    """
    with ours("the sandbox was not paused"):
        sdk().Sandbox.pause(identity, **access.options())


def prolonged(access: ServiceAccess, identity: str, timeout_s: int) -> None:
    """Let it run for *timeout_s* from now on, unless it is used again."""
    with ours("the sandbox's lifetime was not extended"):
        sdk().Sandbox.set_timeout(identity, timeout_s, **access.options())


def reaching(access: ServiceAccess, identity: str, hosts: Sequence[str]) -> None:
    """Let it reach *hosts* and nobody else from now on.

    Raises:
        SandboxError: if the service does not do it.
    """
    with ours("the hosts that the sandbox may reach were not changed"):
        sdk().Sandbox.update_network(identity, _egress(hosts), **access.options())


def _egress(hosts: Sequence[str]) -> dict[str, Any]:
    return {"allow_out": list(hosts), "deny_out": [EVERYWHERE]}


def copied(access: ServiceAccess, identity: str) -> str:
    """Keep a snapshot of it, with its memory, at the service; its id, which is a template for others.

    It has to run for that, and goes on.

    Raises:
        SandboxError: if the service does not keep it.
    """
    with ours("cannot create a snapshot"):
        return str(sdk().Sandbox.create_snapshot(identity, **access.options()).snapshot_id)


def dropped(access: ServiceAccess, snapshot: str) -> None:
    """Leave nothing of *snapshot* at the service. Idempotent.

    Raises:
        SandboxError: if the service does not say that it is gone.
    """
    with ours("a snapshot was not removed at the service"):
        sdk().Sandbox.delete_snapshot(snapshot, **access.options())


def named(access: ServiceAccess, name: str) -> tuple[str, ...]:
    """The ids of all that were made as *name*."""
    with ours("cannot list the sandboxes at the service"):
        pages = sdk().Sandbox.list(query=sdk().SandboxQuery(metadata={"kasmon": name}), **access.options())
        found: list[str] = []
        while pages.has_next:
            found += [each.sandbox_id for each in pages.next_items() if each.metadata.get("kasmon") == name]
    return tuple(found)


def killed(access: ServiceAccess, identity: str) -> None:
    """Leave nothing of it at the service. Idempotent."""
    with contextlib.suppress(SandboxMissingError), ours("the sandbox was not ended at the service"):
        sdk().Sandbox.kill(identity, **access.options())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(".")
