"""A certificate of a test's own, as files."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "box.example"


class CertificateFiles:
    """A certificate for NAME and loopback, its key, and the key with a password."""

    def __init__(self, folder: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(7)
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName(NAME), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .sign(key, hashes.SHA256())
        )
        pem, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self.certificate, self.key, self.locked = (str(folder / each) for each in ("cert.pem", "key.pem", "locked.pem"))
        Path(self.certificate).write_bytes(made.public_bytes(pem))
        for path, lock in (
            (self.key, serialization.NoEncryption()),
            (self.locked, serialization.BestAvailableEncryption(b"x")),
        ):
            Path(path).write_bytes(key.private_bytes(pem, kind, lock))
            Path(path).chmod(0o600)
