"""The few kinds of protobuf fields that a trace needs, encoded by hand: no dependency and no copy of anybody's schema.

It refuses what these fields cannot hold (a negative length or number where none may be) and knows no message type.
"""

from __future__ import annotations

import struct

VARINT, FIXED64, BYTES = 0, 1, 2
"""Wire types."""

_MASK_64 = (1 << 64) - 1


def varint(number: int) -> bytes:
    """A number of at least 0, seven bits a byte. Raises ValueError below 0."""
    if number < 0x80:
        if number < 0:
            raise ValueError(f"a varint must be at least 0, got {number!r}")
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def key(field: int, wire: int) -> bytes:
    """What stands before a value: its field's number and its wire type."""
    return varint(field << 3 | wire)


def uint(field: int, number: int) -> bytes:
    """A number of at least 0."""
    return key(field, VARINT) + varint(number)


def int64(field: int, number: int) -> bytes:
    """A number of either sign, as two's complement of 64 bits."""
    return key(field, VARINT) + varint(number & _MASK_64)


def double(field: int, number: float) -> bytes:
    """A float of 64 bits."""
    return key(field, FIXED64) + struct.pack("<d", number)


def raw(field: int, value: bytes) -> bytes:
    """Bytes, or a message that is encoded already."""
    return key(field, BYTES) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """UTF-8 text; lone surrogates become question marks, for a reader refuses them."""
    return raw(field, value.encode("utf-8", "replace"))


def message(field: int, *parts: bytes) -> bytes:
    """A message of fields that are encoded already."""
    return raw(field, b"".join(parts))
