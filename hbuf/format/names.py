"""Every name that hbuf gives to a file or takes for a buffer, built and parsed in this one place.

It must not know whether such a file exists.
"""

from __future__ import annotations

import re

from hbuf.errors import UsageError

SETTINGS = "buffer.json"
SEGMENTS = "segments"
PRODUCERS = "producers"
QUARANTINE = "quarantine"
STAGING = "staging"
KEYS = "keys.http"
RESERVE = "reserve"
ERASING = "erasing"
PAUSED = "paused"
CLOSED = "closed"
LOCK = "lock"

SEGMENT_SUFFIX = ".http"
COMPRESSED_SUFFIX = ".http.zst"
INDEX_SUFFIX = ".idx"
TAGS_SUFFIX = ".tags"

# Names that no `*.http` glob of a shell or of Spark matches, for files that are not whole yet.
NEW_SEGMENT = ".new-segment"
NEW_INDEX = ".new-index"
NEW_TAGS = ".new-tags"
_NEW_COMPRESSED = ".new-compressed-"

# Of the daemon's root: ROOT/tenants/T/buffers/B, and who may do what with them.
TENANTS = "tenants"
BUFFERS = "buffers"
USERS = "users.json"
AUDIT = "_audit"
DEFAULT_TENANT = "default"

_TENANT_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_BUFFER_NAME = re.compile(r"_?[a-z0-9][a-z0-9._-]{0,127}")
_NEW_COMPRESSED_FILE = re.compile(re.escape(_NEW_COMPRESSED) + "[0-9]{20}")
_SEGMENT_FILE = re.compile(r"([0-9]{20})\.http(?:\.zst)?")
_REBUILDABLE_FILE = re.compile(r"([0-9]{20})\.(?:idx|tags)")


def is_buffer_name(name: str) -> bool:
    """Whether `name` is `[a-z0-9][a-z0-9._-]{0,127}`, or that behind the `_` of hbuf's own buffers."""
    return _BUFFER_NAME.fullmatch(name) is not None


def check_buffer_name(name: str) -> str:
    if not is_buffer_name(name):
        raise UsageError(
            f"'{name}' cannot be a buffer's name",
            hint="a name is 1 to 128 of a-z, 0-9, '.', '_' and '-', and starts with a letter or a digit",
        )
    return name


def is_tenant_name(name: str) -> bool:
    return _TENANT_NAME.fullmatch(name) is not None


def check_tenant_name(name: str) -> str:
    if not is_tenant_name(name):
        raise UsageError(
            f"'{name}' cannot be a tenant's name",
            hint="a name is 1 to 128 of a-z, 0-9, '.', '_' and '-', and starts with a letter or a digit",
        )
    return name


def segment_stem(first: int) -> str:
    """`00000000000000000001` for the segment whose first message is number 1."""
    return f"{first:020d}"


def parse_segment_file(file_name: str) -> int | None:
    """The first number that the file name of a segment, plain or compressed, tells, or None for any other file."""
    found = _SEGMENT_FILE.fullmatch(file_name)
    return int(found[1]) if found else None


def new_compressed(first: int) -> str:
    """The name of a compressed segment that is not whole yet."""
    return _NEW_COMPRESSED + segment_stem(first)


def is_new_compressed(file_name: str) -> bool:
    return _NEW_COMPRESSED_FILE.fullmatch(file_name) is not None


def parse_rebuildable_file(file_name: str) -> int | None:
    """The first number that the name of an index or a tags file tells, or None for any other file."""
    found = _REBUILDABLE_FILE.fullmatch(file_name)
    return int(found[1]) if found else None
