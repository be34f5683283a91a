"""Where a buffer is on a server: `https://HOST[:PORT]/b/BUFFER`, or with its tenant, `…/tenants/T/b/BUFFER`.

It takes a URL apart, and asks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from hbuf.errors import UsageError
from hbuf.format.names import check_buffer_name, check_tenant_name

_HINT = "write it like https://host:4280/b/orders, or https://host:4280/tenants/t/b/orders"


@dataclass(frozen=True, slots=True)
class Location:
    shown: str  # as the user wrote it
    host: str
    port: int
    tenant: str | None  # None for the credential's own
    buffer: str | None  # None for all buffers of a tenant

    @property
    def server(self) -> str:
        """`host:4280`, as settings name it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def path(self) -> str:
        """That of the buffer, or of the list of buffers."""
        above = "/b" if self.tenant is None else f"/tenants/{self.tenant}/b"
        return above if self.buffer is None else f"{above}/{self.buffer}"

    @property
    def is_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def of(self, buffer: str) -> Location:
        """A buffer of this list."""
        listed = Location("", self.host, self.port, self.tenant, buffer)
        return Location(f"https://{self.server}{listed.path}", self.host, self.port, self.tenant, buffer)


def is_url(text: str) -> bool:
    return "://" in text


def parse_location(url: str, *, whole_tenant: bool = False) -> Location:
    """Takes a URL apart. With `whole_tenant` it may name no buffer."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{url}: is not a URL: {error}", hint=_HINT) from None
    if parts.scheme == "http":
        raise UsageError(
            f"{url}: only HTTPS is spoken over a network", hint="write https://; plain HTTP is for the Unix socket"
        )
    if parts.scheme != "https":
        raise UsageError(f"{url}: is neither a directory nor an https:// URL", hint=_HINT)
    if "@" in parts.netloc:
        raise UsageError("a URL cannot hold a password: others could read it", hint="name the file of a token instead")
    if not host or any(not "!" <= c <= "~" for c in host):
        raise UsageError(f"{url}: names no host", hint=_HINT)
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise UsageError(f"{url}: has something behind the buffer's name", hint=_HINT)
    tenant, buffer = _names_of(url, parts.path)
    if buffer is None and not whole_tenant:
        raise UsageError(f"{url}: names no buffer", hint=_HINT)
    return Location(url, host, port or 443, tenant, buffer)


def _names_of(url: str, path: str) -> tuple[str | None, str | None]:
    tenant: str | None = None
    steps = path.strip("/").split("/") if path.strip("/") else []
    if steps[:1] == ["tenants"] and len(steps) > 1:
        tenant = check_tenant_name(steps[1])
        steps = steps[2:]
    if steps in ([], ["b"]):
        return tenant, None
    if len(steps) == 2 and steps[0] == "b":
        return tenant, check_buffer_name(steps[1])
    raise UsageError(f"{url}: is not a buffer's URL", hint=_HINT)
