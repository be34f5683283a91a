"""hbuf's own certificate authority: one in each root, which issues for the daemon and for its users.

A key is on disk before its certificate is, so that a crash leaves a key that is used the next time, and never a
certificate without one. `cryptography` takes 100 ms to import, so only those who need it do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from hbuf.errors import Damaged, HbufError, NotAllowed, NotFound, UsageError
from hbuf.format.times import datetime_of, encode_time, microseconds_of
from hbuf.format.users import SERVER, Certificate
from hbuf.store import fsops
from hbuf.store.clock import SystemClock
from hbuf.store.exclusive import exclusively

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

AUTHORITY, AUTHORITY_KEY = "ca.pem", "ca.key"
SERVER_CERTIFICATE, SERVER_KEY = "server.pem", "server.key"
CLIENT_DAYS = 90
MAX_NAME_CHARACTERS = 64  # of a user or a tenant in a certificate, as X.509 has it

_AUTHORITY_DAYS = 3652
_SERVER_DAYS = 397  # more is refused by some clients
_RENEW_DAYS = 30
_EARLIER = timedelta(hours=1)  # a client's clock may be behind
_LOCK = "ca.lock"
_PUBLIC, _SECRET = 0o644, 0o600


@dataclass(frozen=True, slots=True)
class Issued:
    """A client's certificate: what is kept of it, and what the client gets."""

    certificate: Certificate
    certificate_pem: bytes
    key_pem: bytes


def ensure_authority(root: Path) -> Path:
    """`ROOT/ca.pem` is there, made now if need be, with its key. One whose key was taken elsewhere stays."""
    path = root / AUTHORITY
    with exclusively(root / _LOCK):
        if not path.exists():
            key = _key_at(root / AUTHORITY_KEY)
            _write(path, _pem(_sign_authority(key)), _PUBLIC)
    return path


def issue_server_certificate(root: Path, names: Sequence[str]) -> None:
    """`ROOT/server.pem` is for these names and addresses from now on. Its key stays the same once it is there."""
    if not names:
        raise UsageError("a server's certificate needs a name or an address")
    ensure_authority(root)
    with exclusively(root / _LOCK):
        issuer, issuer_key = _authority(root)
        key = _key_at(root / SERVER_KEY)
        alternatives = [_alternative(name) for name in dict.fromkeys(names)]
        subject = _name(common=names[0] if len(names[0]) <= MAX_NAME_CHARACTERS else "hbufd")
        made = _sign_leaf(issuer, issuer_key, key.public_key(), subject, _SERVER_DAYS, alternatives=alternatives)
        _write(root / SERVER_CERTIFICATE, _pem(made), _PUBLIC)


def server_certificate_is_due(root: Path, names: Sequence[str], now_us: int | None = None) -> bool:
    """Whether it is time for another: there is none, it ends within a month, or it is not for all of these names."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    now = datetime_of(SystemClock().now_us() if now_us is None else now_us)
    try:
        issuer = _load_certificate(root / AUTHORITY)
        made = _load_certificate(root / SERVER_CERTIFICATE)
        made.verify_directly_issued_by(issuer)
        if made.public_key() != _load_key(root / SERVER_KEY).public_key():
            return True
        found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (HbufError, x509.ExtensionNotFound, InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return True
    is_covered = all(_alternative(name) in list(found) for name in names)
    return not is_covered or not made.not_valid_before_utc <= now < made.not_valid_after_utc - timedelta(_RENEW_DAYS)


def ensure_server_certificate(root: Path, names: Sequence[str]) -> bool:
    """There is one that serves for a while. Returns whether it is new: then it must be loaded again."""
    due = server_certificate_is_due(root, names)
    if due:
        issue_server_certificate(root, names)
    return due


def issue_client_certificate(root: Path, tenant: str | None, user: str, days: float = CLIENT_DAYS) -> Issued:
    """For a user of a tenant, or without one of the server. The key is drawn here, and is not kept."""
    for what, name in (("user", user), ("tenant", tenant or SERVER)):
        if len(name) > MAX_NAME_CHARACTERS:
            raise UsageError(f"a {what} with a certificate has a name of at most {MAX_NAME_CHARACTERS} characters")
    if days <= 0:
        raise UsageError("a certificate has to last for some time")
    ensure_authority(root)
    with exclusively(root / _LOCK):
        issuer, issuer_key = _authority(root)
    key = _new_key()
    subject = _name(common=user, organization=tenant or SERVER)
    made = _sign_leaf(issuer, issuer_key, key.public_key(), subject, days)
    kept = Certificate(
        f"{made.serial_number:x}",
        fingerprint(made),
        encode_time(SystemClock().now_us()),
        encode_time(microseconds_of(made.not_valid_after_utc)),
    )
    return Issued(kept, _pem(made), _key_pem(key))


def fingerprint(certificate: x509.Certificate) -> str:
    """As `openssl x509 -fingerprint -sha256` shows it, without colons."""
    from cryptography.hazmat.primitives.hashes import SHA256

    return certificate.fingerprint(SHA256()).hex()


# Signing


def _sign_authority(key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    # With a random part no two authorities have the same name, whose certificates clients could mix up.
    subject = _name(common=f"hbuf authority {os.urandom(6).hex()}")
    own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        _builder(subject, subject, key.public_key(), _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(own_id, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_id), critical=False)
        .sign(key, SHA256())
    )


def _sign_leaf(
    issuer: x509.Certificate,
    issuer_key: EllipticCurvePrivateKey,
    public: PublicKeyTypes,
    subject: x509.Name,
    days: float,
    *,
    alternatives: Iterable[x509.GeneralName] | None = None,
) -> x509.Certificate:
    """For a server that is known by `alternatives`, or without them for a client."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID

    purpose = ExtendedKeyUsageOID.CLIENT_AUTH if alternatives is None else ExtendedKeyUsageOID.SERVER_AUTH
    issuer_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(issuer.subject, subject, public, days, issuer.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)  # type: ignore[arg-type]
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id), critical=False)
    )
    if alternatives is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(issuer_key, SHA256())


def _builder(
    issuer: x509.Name, subject: x509.Name, public: PublicKeyTypes, days: float, no_later: datetime | None = None
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime_of(SystemClock().now_us())
    try:
        end = now + timedelta(days)
    except OverflowError:
        raise UsageError("a certificate cannot last for so long") from None
    if no_later is not None and end > no_later:
        end = no_later
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(public)  # type: ignore[arg-type]
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(end)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(*, common: str, organization: str | None = None) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization is not None:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _alternative(name: str) -> x509.GeneralName:
    import ipaddress

    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError:
        raise UsageError(f"'{name}' is neither a host's name nor an address") from None


# Keys and certificates as files


def _authority(root: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    certificate = _load_certificate(root / AUTHORITY)
    try:
        key = _load_key(root / AUTHORITY_KEY)
    except NotFound as error:
        raise NotAllowed(f"{error.message}, and nothing can be issued without it") from None
    if key.public_key() != certificate.public_key():
        raise Damaged(f"{root / AUTHORITY_KEY}: is not the key of {AUTHORITY}")
    return certificate, key


def _key_at(path: Path) -> EllipticCurvePrivateKey:
    """The key in a file, drawn now if there is none."""
    try:
        return _load_key(path)
    except NotFound:
        key = _new_key()
        _write(path, _key_pem(key), _SECRET)
        return key


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _load_key(path: Path) -> EllipticCurvePrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_read(path, is_secret=True), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Damaged(f"{path}: is not a private key, or needs a passphrase") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise Damaged(f"{path}: is a private key of another kind than hbuf makes")
    return key


def _load_certificate(path: Path) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError:
        raise Damaged(f"{path}: is not a certificate") from None


def _read(path: Path, *, is_secret: bool = False) -> bytes:
    with fsops.os_errors(path):
        try:
            with open(path, "rb") as file:
                if is_secret and os.fstat(file.fileno()).st_mode & 0o077:
                    raise NotAllowed(f"{path}: others can read or write it", hint=f"chmod 600 {path}")
                return file.read()
        except FileNotFoundError:
            raise NotFound(f"{path}: is not there") from None


def _write(path: Path, data: bytes, mode: int) -> None:
    with fsops.os_errors(path):
        fsops.replace_durably(path, data, mode=mode)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
