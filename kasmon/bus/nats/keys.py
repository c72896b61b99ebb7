"""Ed25519 keys in the encoding of NATS: a seed is `SU...` and private, a public key is `U...`."""

import base64
import functools
import hashlib
import os
import re
from typing import Final

import nkeys
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

PUBLIC: Final = re.compile(r"U[A-Z2-7]{55}")
SECRET_BYTES: Final = 32


def make_seed(secret: bytes | None = None) -> str:
    """Return the seed of *secret*, 32 bytes; of random ones by default."""
    seed: bytes = nkeys.encode_seed(secret if secret is not None else os.urandom(SECRET_BYTES), nkeys.PREFIX_BYTE_USER)
    return seed.decode()


def derive_seed(secret: bytes, purpose: str) -> str:
    """Return the seed for *purpose*. The seed of one purpose shows nothing of *secret* or of another seed."""
    return make_seed(hashlib.blake2b(purpose.encode(), key=secret, digest_size=SECRET_BYTES, person=b"kasmon").digest())


@functools.lru_cache(maxsize=64)
def public_key(seed: str) -> str:
    """Return the public key of *seed*.

    Raises:
        ValueError: if it is no seed.
    """
    try:
        key: bytes = nkeys.from_seed(bytearray(seed.encode())).public_key
    except (nkeys.NkeysError, CryptoError) as error:
        raise ValueError("this is not the seed of a key") from error
    return key.decode()


def sign(seed: str, content: bytes) -> bytes:
    """Return the signature of *content*, 64 bytes."""
    return _signing_key(seed).sign(content).signature


@functools.lru_cache(maxsize=64)
def _signing_key(seed: str) -> SigningKey:
    """Cached: each key that a person types is a signed message."""
    return SigningKey(bytes(nkeys.decode_seed(bytearray(seed.encode()))[1]))


def is_signed(public_key: str, content: bytes, signature: bytes) -> bool:
    """Whether the holder of *public_key* signed *content*. False for what is no key or no signature."""
    try:
        _verify_key(public_key).verify(content, signature)
    except (CryptoError, ValueError):
        return False
    return True


@functools.lru_cache(maxsize=64)
def _verify_key(public_key: str) -> VerifyKey:
    """Cached as `_signing_key`. Raises `ValueError` for what is no key."""
    raw = base64.b32decode(public_key) if PUBLIC.fullmatch(public_key) is not None else b""
    if not raw or nkeys.crc16(bytearray(raw[:-2])).to_bytes(2, "little") != raw[-2:]:
        raise ValueError("this is no public key")
    return VerifyKey(raw[1:-2])
