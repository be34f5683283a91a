"""From a path to a row of the table, without regular expressions: this is on the way of every request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from hbuf.daemon.call import Method

_SEQ = re.compile(r"[1-9][0-9]{0,17}")

Methods = Mapping[str, Method]


class Found(NamedTuple):
    methods: Methods
    tenant: str | None
    buffer: str
    rest: str


class Dispatch:
    def __init__(self, table: Mapping[str, Methods]) -> None:
        self._plain = {path: methods for path, methods in table.items() if "{" not in path and path != "/b"}
        self._list = table["/b"]
        self._buffer = table["/b/{buffer}"]
        self._file = table["/b/{buffer}/segments/{file}"]
        self._message = table["/b/{buffer}/{seq}"]
        start = "/b/{buffer}/"
        self._words = {
            path.removeprefix(start): methods
            for path, methods in table.items()
            if path.startswith(start) and "/" not in path.removeprefix(start) and "{seq}" not in path
        }

    def find(self, path: str) -> Found | None:
        """The row for a path as it came; None where there is none."""
        methods = self._plain.get(path)
        if methods is not None:
            return Found(methods, None, "", "")
        parts = path.split("/")
        if "%" in path:
            parts = [unquote(part) for part in parts]  # a slash that was encoded is part of a name, and no name has one
        tenant = None
        if len(parts) > 3 and parts[1] == "tenants":
            tenant = parts[2]
            del parts[1:3]
        if len(parts) < 2 or parts[0] or parts[1] != "b":
            return None
        if len(parts) == 3:
            return Found(self._buffer, tenant, parts[2], "") if parts[2] else None
        if len(parts) == 2:
            return Found(self._list, tenant, "", "")
        if len(parts) == 4:
            methods = self._words.get(parts[3])
            if methods is not None:
                return Found(methods, tenant, parts[2], "")
            if _SEQ.fullmatch(parts[3]):
                return Found(self._message, tenant, parts[2], parts[3])
        elif len(parts) == 5 and parts[3] == "segments":
            return Found(self._file, tenant, parts[2], parts[4])
        return None
