"""A service of Web Push on loopback, and a browser that is subscribed to it and reads what arrives."""

import base64
import json
import os
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.web.certificate import CertificateFiles


class PushService:
    """Runs in a thread; `close` it. It has one browser, and answers `status`."""

    def __init__(self, files: CertificateFiles) -> None:
        self.messages: list[tuple[dict[str, str], bytes]] = []
        """The headers and the body of each message."""
        self.status = 201
        self._key, self._auth = ec.generate_private_key(ec.SECP256R1()), os.urandom(16)
        took = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                took.messages.append((dict(self.headers.items()), body))
                self.send_response(took.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the parent's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.origin = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def subscription(self) -> dict[str, Any]:
        """What the browser's script sends to kasmon."""
        keys = {"p256dh": encode(self._point(self._key)), "auth": encode(self._auth)}
        return {"endpoint": f"{self.origin}/send/secret-address?a=b", "expirationTime": None, "keys": keys}

    def read(self, number: int = -1) -> dict[str, str]:
        """Decrypt a message as a browser does (RFC 8291)."""
        body = self.messages[number][1]
        salt, length = body[:16], body[20]
        theirs, text = body[21 : 21 + length], body[21 + length :]
        shared = self._key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs))
        info = b"WebPush: info\x00" + self._point(self._key) + theirs
        secret = HKDF(SHA256(), 32, self._auth, info).derive(shared)
        key = HKDF(SHA256(), 16, salt, b"Content-Encoding: aes128gcm\x00").derive(secret)
        nonce = HKDF(SHA256(), 12, salt, b"Content-Encoding: nonce\x00").derive(secret)
        plain = AESGCM(key).decrypt(nonce, text, None)
        assert plain.endswith(b"\x02")
        return dict(json.loads(plain[:-1]))

    def claims(self, public_key: bytes) -> dict[str, Any]:
        """What the signature of the last message says, once it was checked with *public_key*."""
        header = self.messages[-1][0]["Authorization"]
        token, _, key = header.removeprefix("vapid t=").partition(", k=")
        assert encode(public_key) == key
        signed, _, signature = token.rpartition(".")
        r, s = (int.from_bytes(half, "big") for half in (decode(signature)[:32], decode(signature)[32:]))
        checked = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public_key)
        checked.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(SHA256()))
        head, claims = (json.loads(decode(part)) for part in signed.split("."))
        assert ({"typ": "JWT", "alg": "ES256"}, self.origin) == (head, claims["aud"])
        return dict(claims)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @staticmethod
    def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
        return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
