"""A list whose older items are compressed, so that a transcript of a million events needs little memory."""

import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar, overload

import msgspec

Item = TypeVar("Item")

CHUNK: Final = 512
"""How many items are compressed at once."""
RECENT: Final = 8
"""How many chunks at the end are not compressed, at least."""
UNPACKED: Final = 8
"""How many compressed chunks are also kept as they were: those that were read last."""
FASTEST: Final = 1


class PackedList(Sequence[Item], Generic[Item]):
    """Items of the type *kind* that can be added and replaced. A compressed item is read as a copy."""

    def __init__(self, kind: type[Item]) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]  # msgspec takes it as a value
        self._chunks: list[bytes | list[Item]] = []
        """The older items; a chunk that has no bytes, as a text in it is no Unicode, is kept as it is."""
        self._unpacked: OrderedDict[int, list[Item]] = OrderedDict()
        self._recent: list[Item] = []

    def __len__(self) -> int:
        return len(self._chunks) * CHUNK + len(self._recent)

    def append(self, item: Item) -> None:
        self._recent.append(item)
        if len(self._recent) > (RECENT + 1) * CHUNK:
            self._chunks.append(self._pack(self._recent[:CHUNK]))
            del self._recent[:CHUNK]

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> list[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | list[Item]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        chunk, index = self._find(at)
        return chunk[index]

    def __setitem__(self, at: int, item: Item) -> None:
        chunk, index = self._find(at)
        chunk[index] = item
        if chunk is not self._recent:
            number = (at % len(self)) // CHUNK
            self._chunks[number] = self._pack(chunk)

    def __iter__(self) -> Iterator[Item]:
        return (self[at] for at in range(len(self)))

    def _find(self, at: int) -> tuple[list[Item], int]:
        """Return the chunk with item *at*, and its index there. Raises `IndexError` if there is no such item."""
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        number, index = divmod(at % len(self), CHUNK)
        if number >= len(self._chunks):
            return self._recent, at % len(self) - len(self._chunks) * CHUNK
        packed = self._chunks[number]
        if isinstance(packed, list):
            return packed, index
        if number not in self._unpacked:
            self._unpacked[number] = self._decoder.decode(zlib.decompress(packed))
            if len(self._unpacked) > UNPACKED:
                self._unpacked.popitem(last=False)
        self._unpacked.move_to_end(number)
        return self._unpacked[number], index

    def _pack(self, items: list[Item]) -> bytes | list[Item]:
        try:
            return zlib.compress(self._encoder.encode(items), FASTEST)
        except UnicodeEncodeError:
            return items
