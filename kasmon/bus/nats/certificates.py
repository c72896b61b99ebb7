"""The certificates of a cluster: its own certificate authority (CA), and the server's certificate.

The CA signs nothing but the server's certificate, whose only name is the cluster's, so that its address may change.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS: Final = 3650
RENEW_S: Final = 60 * 86400
"""A server gets a new certificate this long before the old one expires."""
SERVER_DAYS: Final = 825
"""The longest life of a server's certificate that macOS accepts."""


class KeyPair:
    """A certificate and its private key, both as PEM."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self.certificate, self.key = certificate, key


def server_name(cluster: str) -> str:
    """Return the name in the certificate of the server of *cluster*."""
    return f"{cluster}.cluster.kasmon"


def make_ca(cluster: str, now: dt.datetime) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"kasmon CA of {cluster}")
    builder = _builder(name, name, key.public_key(), now, CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(is_ca=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    signed = builder.sign(key, hashes.SHA256())
    return KeyPair(signed.public_bytes(serialization.Encoding.PEM), _private_part(key))


def make_server_certificate(
    ca: KeyPair, cluster: str, now: dt.datetime, days: int = SERVER_DAYS, hosts: Sequence[str] = ()
) -> KeyPair:
    """Return a new certificate of the server of *cluster* and its key, signed by *ca*; `sign_certificate` explains."""
    key = make_key()
    return KeyPair(sign_certificate(ca, cluster, now, public_part(key), days, hosts), key)


def make_key() -> bytes:
    """Return a new private key as PEM."""
    return _private_part(ec.generate_private_key(ec.SECP256R1()))


def public_part(key: bytes) -> bytes:
    """Return the public key of the private *key*; both are PEM."""
    public = serialization.load_pem_private_key(key, None).public_key()
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def sign_certificate(
    ca: KeyPair,
    cluster: str,
    now: dt.datetime,
    public_key: bytes,
    days: int = SERVER_DAYS,
    hosts: Sequence[str] = (),
) -> bytes:
    """Return a new certificate of a server of *cluster* as PEM, signed by *ca*.

    Args:
        public_key: the server's, as PEM.
        days: how long the certificate is valid.
        hosts: the addresses of the servers of a cluster that has several: they check each other's.

    Raises:
        ValueError: if *public_key* is no key of an elliptic curve.
    """
    try:
        key = serialization.load_pem_public_key(public_key)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("it is no key of an elliptic curve")
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    issuer_key = serialization.load_pem_private_key(ca.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the key of the CA is no key of an elliptic curve")
    name = server_name(cluster)
    builder = _builder(_name(name), issuer.subject, key, now, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(is_ca=False), critical=True)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if hosts else [])]
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    names: list[x509.GeneralName] = [x509.DNSName(name), *(_host_name(host) for host in dict.fromkeys(hosts))]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    signed = builder.add_extension(authority, critical=False).sign(issuer_key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def check_renewed(certificate: bytes, ca: bytes, key: bytes) -> None:
    """Check that *ca* signed *certificate*, and that it is that of the private *key*; all are PEM.

    Raises:
        ValueError: if not.
    """
    made = x509.load_pem_x509_certificate(certificate)
    try:
        made.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))
    except InvalidSignature as error:
        raise ValueError("the authority of the cluster did not sign it") from error
    public = made.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    if public != public_part(key):
        raise ValueError("it has another key")


def fingerprint(pem: bytes) -> str:
    """Return the SHA-256 of the certificate in *pem*, in hexadecimal digits.

    Raises:
        ValueError: if it has no certificate.
    """
    return x509.load_pem_x509_certificate(pem).fingerprint(hashes.SHA256()).hex()


def expires_at(pem: bytes) -> float:
    """Return when the first certificate in *pem* expires.

    Raises:
        ValueError: if it has no certificate.
    """
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    """A clock of a member may be slow: the certificate is valid since yesterday."""
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
    builder = builder.not_valid_before(now - dt.timedelta(days=1))
    return builder.not_valid_after(now + dt.timedelta(days=days))


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _private_part(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
