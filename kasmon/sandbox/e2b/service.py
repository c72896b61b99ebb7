"""What kasmon asks of the service, in its official SDK's words; its errors are ours from here on.

The SDK is told everything with each call: nothing of it is kept in this process but open connections.
"""

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kasmon.errors import ExtraMissingError, SandboxError, SandboxUnreachableError

if TYPE_CHECKING:
    import e2b

REQUEST_S: Final = 30.0
EVERYWHERE: Final = "0.0.0.0/0"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How the service is reached, and as whom. It holds a key: it goes to processes of ours by a pipe alone."""

    key: str
    api: str = ""
    sandbox: str = ""
    domain: str = ""

    def options(self) -> dict[str, Any]:
        """As the SDK takes them."""
        given = {"api_key": self.key, "api_url": self.api, "sandbox_url": self.sandbox, "domain": self.domain}
        return {**{name: value for name, value in given.items() if value}, "request_timeout": REQUEST_S}


def access(variables: Mapping[str, str] = os.environ) -> Access | None:
    """As the environment says it, in the SDK's own variables; None where that has no key."""
    if not (key := variables.get("E2B_API_KEY", "")):
        return None
    named = {"api": "E2B_API_URL", "sandbox": "E2B_SANDBOX_URL", "domain": "E2B_DOMAIN"}
    return Access(key=key, **{field: variables.get(name, "") for field, name in named.items()})


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

    others = (httpx.HTTPError, OSError)
    try:
        yield
    except known.SandboxNotFoundException as error:
        raise MissingError(what) from error
    except (known.SandboxException, known.AuthenticationException, known.ServiceBusyException, *others) as error:
        hint = "E2B_API_KEY is to hold a key of the service." if "uthent" in type(error).__name__ else ""
        said = f"the service says: {_first_line(error)}"
        if isinstance(error, known.GuestUnresponsiveException):
            raise SandboxError(what, said) from error
        raise SandboxUnreachableError(what, said, hint) from error


class MissingError(SandboxError):
    """The service has no such sandbox."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "the service has it no more")


def made(access: Access, template: str, timeout_s: int, name: str, hosts: Sequence[str], attempt: str) -> "e2b.Sandbox":
    """Make one that is paused, with its memory, when nobody used it for *timeout_s*, and wakes when it is used.

    Args:
        access: where.
        template: what it is made from; empty is the service's own choice.
        timeout_s: in seconds.
        name: by which `named` finds it.
        hosts: whom it may reach; nobody where that is empty.
        attempt: of two calls of one attempt only one makes a sandbox.

    Raises:
        SandboxError: if the service does not make it.
    """
    reach: dict[str, Any] = {"allow_internet_access": False}
    if hosts:
        reach = {"network": {"allow_out": list(hosts), "deny_out": [EVERYWHERE]}}
    with ours("no sandbox was made"):
        sandbox: e2b.Sandbox = sdk().Sandbox.create(
            template or None,
            timeout=timeout_s,
            metadata={"kasmon": name},
            lifecycle={"on_timeout": "pause", "auto_resume": True},
            idempotency_key=attempt,
            **reach,
            **access.options(),
        )
    return sandbox


def connected(access: Access, identity: str, timeout_s: int) -> "e2b.Sandbox":
    """The sandbox *identity*, awake; for *timeout_s* more at least.

    Raises:
        MissingError: if the service has it no more.
        SandboxError: if it cannot be reached.
    """
    with ours("the sandbox cannot be resumed"):
        sandbox: e2b.Sandbox = sdk().Sandbox.connect(identity, timeout=timeout_s, **access.options())
    return sandbox


def state(access: Access, identity: str) -> str:
    """`running` or `paused`; empty where the service has no such sandbox.

    Raises:
        SandboxError: if the service does not say.
    """
    try:
        with ours("the sandbox cannot be looked at"):
            return str(sdk().Sandbox.get_info(identity, **access.options()).state.value)
    except MissingError:
        return ""


def paused(access: Access, identity: str) -> None:
    """Pause it, with its memory; it is no error where it is paused already.

    Raises:
        SandboxError: if it is not paused after this.
    """
    with ours("the sandbox was not paused"):
        sdk().Sandbox.pause(identity, **access.options())


def prolonged(access: Access, identity: str, timeout_s: int) -> None:
    """Let it run for *timeout_s* from now on, unless it is used again."""
    with ours("the sandbox's time was not prolonged"):
        sdk().Sandbox.set_timeout(identity, timeout_s, **access.options())


def copied(access: Access, identity: str) -> str:
    """Keep a snapshot of it at the service, from which others can be made; its id there."""
    with ours("no snapshot was kept"):
        return str(sdk().Sandbox.create_snapshot(identity, **access.options()).snapshot_id)


def named(access: Access, name: str) -> tuple[str, ...]:
    """The ids of all that were made as *name*."""
    with ours("the sandboxes at the service are not known"):
        pages = sdk().Sandbox.list(query=sdk().SandboxQuery(metadata={"kasmon": name}), **access.options())
        found: list[str] = []
        while pages.has_next:
            found += [each.sandbox_id for each in pages.next_items() if each.metadata.get("kasmon") == name]
    return tuple(found)


def killed(access: Access, identity: str) -> None:
    """Leave nothing of it at the service. Idempotent."""
    with contextlib.suppress(MissingError), ours("the sandbox was not ended at the service"):
        sdk().Sandbox.kill(identity, **access.options())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(".")
