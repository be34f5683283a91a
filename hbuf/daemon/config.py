"""What the daemon is told: one frozen value with a default for all of it but the root.

It must not know where a setting came from; config_file reads and writes them as TOML.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from hbuf.errors import UsageError

DEFAULT_LISTEN = ("127.0.0.1:4280",)
_CREDENTIAL = "credential:"
_FIXED = ("root", "keys", "listen", "unix")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much anyone may ask of the daemon. None is no limit."""

    message_bytes: int = 64 * 1024**2
    header_bytes: int = 65_536  # the request line and all header fields
    batch_bytes: int = 64 * 1024**2
    batch_messages: int = 100_000
    read_messages: int = 100_000
    read_bytes: int = 4 * 1024**2
    connections: int = 10_000
    request_seconds: float = 60  # for a request to come, and for its answer to be taken
    idle_seconds: float = 75
    wait_seconds: float = 60
    queue_bytes: int = 64 * 1024**2  # that wait to be written, of all buffers
    open_buffers: int = 1000
    event_streams: int = 1000
    tenant_bytes: int | None = None
    tenant_buffers: int | None = None


@dataclass(frozen=True, slots=True)
class Tls:
    """Files, each a path or `credential:NAME`. Without a certificate the daemon makes its own."""

    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    names: tuple[str, ...] = ()  # that the daemon's own certificate is for, besides those that it finds


@dataclass(frozen=True, slots=True)
class Log:
    format: Literal["logfmt", "json"] = "logfmt"
    level: Literal["debug", "info", "warning", "error"] = "info"
    access: bool = True


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may have. None is no limit."""

    max_bytes: int | None = None
    max_buffers: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    root: Path
    keys: Path  # the directory of signing keys
    listen: tuple[str, ...] = DEFAULT_LISTEN
    unix: Path | None = None
    tls: Tls = field(default_factory=Tls)
    log: Log = field(default_factory=Log)
    limits: Limits = field(default_factory=Limits)
    tenants: Mapping[str, Quota] = field(default_factory=dict)  # those with a quota of their own

    @classmethod
    def of_root(cls, root: Path) -> Config:
        """All defaults."""
        return cls(root, root / "keys")

    def with_settings_of(self, after: Config) -> Config:
        """What of a new configuration can take effect while the daemon runs."""
        return replace(after, **{name: getattr(self, name) for name in _FIXED})

    def quota_of(self, tenant: str) -> Quota:
        return self.tenants.get(tenant) or Quota(self.limits.tenant_bytes, self.limits.tenant_buffers)


def file_named(text: str) -> Path:
    """The path of a file of `[tls]`. What systemd loaded as a credential is found where it says."""
    if not text.startswith(_CREDENTIAL):
        return Path(text)
    directory = os.environ.get("CREDENTIALS_DIRECTORY")
    if not directory:
        raise UsageError(
            f"there is no '{text}': systemd gave no credentials", hint="LoadCredential= in the service names them"
        )
    return Path(directory, text.removeprefix(_CREDENTIAL))


def is_credential(text: str) -> bool:
    return text.startswith(_CREDENTIAL)


def names_that_need_a_restart(before: Config, after: Config) -> list[str]:
    """What of a new configuration cannot take effect while the daemon runs."""
    return [name for name in _FIXED if getattr(before, name) != getattr(after, name)]
