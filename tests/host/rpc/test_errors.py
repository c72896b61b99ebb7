"""An error that crosses the wire is the same error on the other side."""

from collections.abc import Iterator

import msgspec
import pytest

from kasmon import errors
from kasmon.errors import (
    AmbiguousSessionError,
    ConfigError,
    ExtraMissingError,
    HostUnreachableError,
    InteractiveOnlyError,
    KasmonError,
    LaunchError,
    NotFoundError,
    PasteRefusedError,
    RefusedError,
    RequestClosedError,
    RequestNotFoundError,
    SessionBusyError,
    SessionEndedError,
    SessionNotFoundError,
    StaleRequestError,
    TimedOutError,
    TmuxCommandError,
    UnableError,
    UnavailableError,
    UsageError,
)
from kasmon.host.journal.known_secrets import add_secrets
from kasmon.host.rpc.codec import failed, rebuilt
from kasmon.host.rpc.frames import FailureReply

EXAMPLES = [
    KasmonError("it failed.", hint="Try again."),
    UsageError("makes no sense."),
    ConfigError("config.toml", "no such key", line=3, key="ui.them", allowed=["theme"]),
    SessionNotFoundError("docs"),
    AmbiguousSessionError("ab", ["abc", "abd"]),
    RequestNotFoundError("x-1"),
    StaleRequestError("x-1"),
    RequestClosedError("x-1", "user answered deny"),
    SessionBusyError("x", "working"),
    SessionEndedError("x"),
    InteractiveOnlyError("x"),
    PasteRefusedError("%3", "it is in copy mode"),
    UnableError("cannot."),
    TimedOutError("too late."),
    HostUnreachableError("x", "it is gone"),
    TmuxCommandError("new-session", "duplicate session"),
    ExtraMissingError("claude", "claude"),
    LaunchError("no."),
]


def over_the_wire(error: KasmonError) -> KasmonError:
    return rebuilt(msgspec.msgpack.decode(msgspec.msgpack.encode(failed(7, error)), type=FailureReply))


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_it_was_raised(error: KasmonError) -> None:
    arrived = over_the_wire(error)

    assert type(error) is type(arrived)
    assert vars(error) == vars(arrived)
    assert (str(error), error.exit_code, error.code) == (str(arrived), arrived.exit_code, arrived.code)


def tree(kind: type[KasmonError]) -> Iterator[type[KasmonError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from tree(below)


def test_no_two_errors_have_the_same_name() -> None:
    """The name is what tells them apart on the wire."""
    names = [kind.__name__ for kind in tree(KasmonError) if kind.__module__ == errors.__name__]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (FailureReply(n=1, error="closed", exit_code=4, message="m", kind="LaterError"), RequestClosedError),
        (FailureReply(n=1, error="brand-new", exit_code=4, message="m", kind="LaterError"), RefusedError),
        (FailureReply(n=1, error="brand-new", exit_code=3, message="m", kind="LaterError"), NotFoundError),
        (FailureReply(n=1, error="brand-new", exit_code=69, message="m", kind="LaterError"), UnavailableError),
        (FailureReply(n=1, error="brand-new", exit_code=77, message="m", kind="LaterError"), KasmonError),
        (FailureReply(n=1, error="refused", exit_code=4, message="m"), RefusedError),
    ],
    ids=["known code", "refused", "not found", "unavailable", "unknown", "without a name"],
)
def test_an_error_of_a_later_version_arrives_as_the_nearest_known_one(
    frame: FailureReply, kind: type[KasmonError]
) -> None:
    arrived = rebuilt(frame)

    assert kind is type(arrived)
    assert "m" == arrived.message


def test_an_error_field_that_cannot_be_encoded_is_dropped() -> None:
    error = RefusedError("no.")
    error.socket = object()  # type: ignore[attr-defined]

    assert {} == failed(1, error).fields


@pytest.mark.parametrize("name", ["__class__", "__cause__", "args", "a b"])
def test_an_unknown_error_field_is_dropped(name: str) -> None:
    """Another machine's kasmon may send anything, and only a `KasmonError` is shown as one."""
    arrived = rebuilt(FailureReply(n=1, error="refused", exit_code=4, message="m", fields={name: 5, "why": "w"}))

    assert (type(arrived), arrived.args, getattr(arrived, "why", "")) == (RefusedError, ("m",), "w")


def test_no_secret_of_a_host_is_in_the_fields_of_an_error() -> None:
    add_secrets(["planted-5ecret-of-a-test"])
    error = RefusedError("no planted-5ecret-of-a-test.")
    error.why = "planted-5ecret-of-a-test"  # type: ignore[attr-defined]
    error.words = ("a", "planted-5ecret-of-a-test")  # type: ignore[attr-defined]

    assert b"5ecret" not in msgspec.json.encode(failed(1, error))
