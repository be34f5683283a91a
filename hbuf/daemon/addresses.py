"""Where the daemon listens, as text: `HOST:PORT`, `[::1]:4280`, `:4280` for everywhere.

It must not know whether an address exists on this machine.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from hbuf.errors import UsageError

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[A-Za-z0-9._-]*|\*)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    host: str  # empty for all of this machine's addresses
    port: int  # 0 for any that is free

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host or '*'}:{self.port}"


def parse_address(text: str) -> Address:
    found = _ADDRESS.fullmatch(text)
    if not found or int(found["port"]) > 65535 or (found["six"] and not _is_six(found["six"])):
        raise UsageError(
            f"'{text}' is not an address to listen on", hint="write it like 127.0.0.1:4280, [::1]:4280 or *:4280"
        )
    host = found["six"] or found["host"]
    return Address("" if host == "*" else host, int(found["port"]))


def is_everywhere(host: str) -> bool:
    """Whether it stands for all of this machine's addresses, and so is no name that a client would use."""
    return host in ("", "0.0.0.0", "::")  # noqa: S104  it is looked for, not listened on


def _is_six(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
