"""Facts for tests: any fact there may be, and the few that most stories are told with."""

from functools import cache
from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from kasmon.model.commands import Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.events import (
    BaseEvent,
    Event,
    ReceiptChanged,
    RequestOpened,
    SessionEnded,
    SessionStarted,
    TurnStarted,
    UnknownEvent,
)
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, SessionId, seal
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session

ME = SessionId("abcdefgh")
KINDS: tuple[type[BaseEvent], ...] = get_args(Event)

TEXT = st.text(max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = {"session": st.just(ME), "id": st.sampled_from([f"{ME}-1", f"{ME}-2", f"{ME}-r1", f"{ME}-r2", "odd"]) | TEXT}
"""Names come back, as in life: half of what happens in a log happens to something that is there."""


@cache
def any_of(kind: type[BaseEvent]) -> st.SearchStrategy[Any]:
    """Any value of *kind*, whatever its fields are; made once, since that takes longer than drawing one."""
    shape = msgspec.inspect.type_info(kind)
    return _values(shape)


@cache
def facts() -> st.SearchStrategy[Event]:
    return st.one_of([any_of(kind) for kind in KINDS if kind is not UnknownEvent])


def fold(*events: Event, session: Session | None = None) -> Session:
    """What *events* add up to."""
    now = session or Session(id=ME, mode=Mode.SDK)
    for event in events:
        now = apply(now, event)
    return now


def started(generation: int = 1, at: float = 1.0, mode: Mode = Mode.SDK) -> SessionStarted:
    return SessionStarted(at=at, generation=generation, mode=mode, backend="scripted", pid=100 + generation)


def turn(prompt: str = "tidy up", at: float = 2.0) -> TurnStarted:
    return TurnStarted(at=at, prompt=prompt)


def asks(
    command: str = "rm -r build", n: int = 1, at: float = 3.0, kind: RequestKind = RequestKind.PERMISSION
) -> RequestOpened:
    return RequestOpened(at=at, request=request(command, n, kind))


def request(command: str = "rm -r build", n: int = 1, kind: RequestKind = RequestKind.PERMISSION) -> Request:
    return seal(
        Request(
            id=RequestId(f"{ME}-{n}"),
            session=ME,
            kind=kind,
            tool="Bash",
            title=command,
            input={"command": command},
            shown=command,
            choices=(Decision.ALLOW, Decision.DENY),
            asked_at=float(n),
        )
    )


def ended(exit_code: int | None = 0, signal: str | None = None, why: str = "", at: float = 9.0) -> SessionEnded:
    return SessionEnded(at=at, exit_code=exit_code, signal=signal, why=why)


def receipt(n: int, state: ReceiptState) -> ReceiptChanged:
    return ReceiptChanged(
        at=float(n), receipt=Receipt(id=ReceiptId(f"{ME}-r{n}"), session=ME, state=state), prompt=f"prompt {n}"
    )


def _values(shape: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    inspect = msgspec.inspect
    match shape:
        case inspect.StructType():
            return st.fixed_dictionaries(
                {field.name: NAMES.get(field.name, _values(field.type)) for field in shape.fields}
            ).map(lambda fields: shape.cls(**fields))
        case inspect.StrType():
            return TEXT
        case inspect.BytesType():
            return st.binary(max_size=20)
        case inspect.FloatType():
            return st.floats(0, 4e9)
        case inspect.IntType():
            return st.integers(0, 2**40)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.EnumType():
            return st.sampled_from(list(shape.cls))
        case inspect.LiteralType():
            return st.sampled_from(shape.values)
        case inspect.UnionType():
            return st.one_of([_values(member) for member in shape.types])
        case inspect.VarTupleType():
            return st.lists(_values(shape.item_type), max_size=3).map(tuple)
        case inspect.DictType():
            return st.dictionaries(_values(shape.key_type), _values(shape.value_type), max_size=3)
        case inspect.AnyType():
            return JSON
        case _:
            raise NotImplementedError(f"no values for {shape}: teach this function the new type")
