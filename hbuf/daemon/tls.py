"""The TLS that the daemon speaks: 1.2 and newer, and a client's certificate where it has one.

A context is made anew for new certificates: connections that are there keep theirs.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from hbuf.daemon.config import Config, file_named
from hbuf.errors import HbufError, UsageError
from hbuf.store import fsops

_CLIENT_CA = "tls.client_ca"


class CertificateFiles(NamedTuple):
    certificate: Path
    key: Path
    own: bool  # made by the daemon's own authority, and so renewed by it


def certificate_files(config: Config) -> CertificateFiles:
    if config.tls.certificate and config.tls.key:
        return CertificateFiles(file_named(config.tls.certificate), file_named(config.tls.key), False)
    return CertificateFiles(config.root / "server.pem", config.root / "server.key", True)


def client_authorities(config: Config) -> bytes | None:
    """The certificates of `[tls] client_ca`, whose clients are let in besides those of our own authority."""
    if not config.tls.client_ca:
        return None
    path = file_named(config.tls.client_ca)
    with fsops.os_errors(path):
        return path.read_bytes()


def new_context(config: Config) -> ssl.SSLContext:
    """Raises an HbufError that names the file that is wrong."""
    files = certificate_files(config)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    context.verify_mode = ssl.CERT_OPTIONAL
    for path in (files.certificate, files.key):
        with fsops.os_errors(path):
            path.read_bytes()  # what ssl says of a file that it cannot read does not name it
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (ssl.SSLError, ValueError):
        raise _unusable(f"{files.certificate} and {files.key}: they are not a certificate and its key") from None
    authorities = client_authorities(config)
    try:
        context.load_verify_locations(config.root / "ca.pem")
        if authorities is not None:
            context.load_verify_locations(cadata=authorities.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise _unusable(f"{_CLIENT_CA}: it is no certificate") from None
    return context


def _no_password() -> str:
    # Without this, ssl would ask at the terminal.
    raise ValueError("the key is encrypted")


def _unusable(message: str) -> HbufError:
    return UsageError(message)
