"""Sends one message to one browser by Web Push: encrypted for it (RFC 8291), signed by kasmon's key (RFC 8292). Blocks.

The service in between reads neither text nor link. Its address is a secret; no text of the service is passed on.
"""

import base64
import http.client
import os
import ssl
import time
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kasmon.store.push_subscriptions import PushSubscription
from kasmon.supervisor.notifications.alerts import Alert
from kasmon.supervisor.notifications.push_sender import PushReceipt

SERVICE: Final = "Web Push"
TIMEOUT_S: Final = 30.0
LIFETIME_S: Final = 3600
"""How long the service keeps a message for a browser that is not reachable, in seconds."""
SIGNED_S: Final = 12 * 3600
"""How long a signature is valid, in seconds."""
RECORD_BYTES: Final = 4096
GONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
"""Answers that mean that the browser ended its subscription."""


def send_web_push(
    subscription: PushSubscription, key: bytes, contact: str, name: str, news: Alert, link: str = ""
) -> tuple[PushReceipt, bool]:
    """Send *news* to a browser; return the receipt, and whether its subscription is over.

    Args:
        key: from `PushSubscriptions.key`.
        contact: a URL by which the service can ask who sends: `https:` or `mailto:`.
        name: of the target.
        link: what a tap opens; empty for the list of sessions.
    """
    began = time.monotonic()
    text = msgspec.json.encode({"title": news.title[:120], "body": news.text[:400], "link": link})
    address = urlsplit(subscription.endpoint)
    headers = {
        "Authorization": sign(key, f"{address.scheme}://{address.netloc}", contact, time.time()),
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(LIFETIME_S),
        "Urgency": "high",
    }
    status = 0
    try:
        line = http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=TIMEOUT_S, context=ssl.create_default_context()
        )
        try:
            path = f"{address.path or '/'}?{address.query}" if address.query else address.path or "/"
            line.request("POST", path, encrypt(subscription, text), headers)
            status = line.getresponse().status
            why = "" if 200 <= status < 300 else f"it answered {status}"
        finally:
            line.close()
    except TimeoutError:
        why = "it did not answer in time"
    except ssl.SSLError:
        why = "its certificate is not valid"
    except (OSError, http.client.HTTPException, ValueError):  # their text may contain the address
        why = "it cannot be reached"
    took_ms = round(1000 * (time.monotonic() - began))
    receipt = PushReceipt(target=name, service=SERVICE, is_sent=not why, why=why, took_ms=took_ms)
    return receipt, status in GONE


def public_key(key: bytes) -> bytes:
    """Return the public key of *key*, as browsers subscribe with it: an uncompressed point."""
    return _point(_private(key))


def encrypt(subscription: PushSubscription, text: bytes) -> bytes:
    """Return *text*, at most 3,900 bytes, as the body of a message that only the browser can read."""
    ours = ec.generate_private_key(ec.SECP256R1())
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), subscription.public_key)
    info = b"WebPush: info\x00" + subscription.public_key + _point(ours)
    secret = _derive(ours.exchange(ec.ECDH(), theirs), subscription.auth, info, 32)
    salt = os.urandom(16)
    cipher_key = _derive(secret, salt, b"Content-Encoding: aes128gcm\x00", 16)
    nonce = _derive(secret, salt, b"Content-Encoding: nonce\x00", 12)
    head = salt + RECORD_BYTES.to_bytes(4, "big") + bytes([65]) + _point(ours)
    return head + AESGCM(cipher_key).encrypt(nonce, text + b"\x02", None)


def sign(key: bytes, audience: str, contact: str, now: float) -> str:
    """Return the header that proves to the service of *audience* that kasmon sends, at *now*."""
    private = _private(key)
    claims = {"aud": audience, "exp": int(now) + SIGNED_S, "sub": contact}
    parts = b".".join(_encode(msgspec.json.encode(each)) for each in ({"typ": "JWT", "alg": "ES256"}, claims))
    r, s = decode_dss_signature(private.sign(parts, ec.ECDSA(SHA256())))
    token = parts + b"." + _encode(r.to_bytes(32, "big") + s.to_bytes(32, "big"))
    return f"vapid t={token.decode()}, k={_encode(_point(private)).decode()}"


def _private(key: bytes) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(key, "big"), ec.SECP256R1())


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
