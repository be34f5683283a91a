"""A buffer's settings: what `buffer.json` and the newest PUT say. Names that are not known here are kept.

It must not know where settings are stored, only what they may be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from hbuf.errors import Damaged, NewerFormat, UsageError
from hbuf.format.chain import HASH_NAMES
from hbuf.format.grammar import MAX_BODY_BYTES
from hbuf.format.keys import encode_public, parse_public
from hbuf.format.record import FORMAT_VERSION
from hbuf.format.sealing import TAG_BYTES
from hbuf.format.times import parse_duration_seconds

MIN_SEGMENT_BYTES = 4096
LARGEST_SEGMENT_BYTES = 2 * 1024**3
MAX_RECIPIENTS = 100  # their lines must fit into a header section

# What the first PUT fixes for good.
_FIXED = ("uuid", "name", "created", "format", "hash", "erasable")
# What is written only where it is another: buffers that were made before the setting was there lack it.
_UNSAID: tuple[tuple[str, Any], ...] = (("compress", False),)
_SIZE = re.compile(r"([0-9]{1,18})(B|[KMG]i?B?)?", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(r"[0-9]{1,18}")
_CENTURY_SECONDS = 100 * 365 * 86400
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


@dataclass(frozen=True, slots=True)
class Settings:
    uuid: str
    name: str
    created: str
    format: int = FORMAT_VERSION
    hash: str = "blake3"
    erasable: bool = True
    segment_bytes: int = 64 * 1024**2
    segment_messages: int | None = None
    segment_age: float | None = None  # seconds
    max_message_bytes: int = 16 * 1024**2
    recipients: tuple[str, ...] = ()  # public keys that bodies are encrypted to, as text
    compress: bool = False  # a segment when it is rolled
    retention_age: float | None = None  # seconds
    retention_bytes: int | None = None
    retention_messages: int | None = None
    others: tuple[tuple[str, Any], ...] = ()  # settings of later versions, kept as they are

    @property
    def most_body_bytes(self) -> int:
        """How long a body may be: what is stored of an encrypted one is longer."""
        return min(self.max_message_bytes, MAX_BODY_BYTES - TAG_BYTES) if self.recipients else self.max_message_bytes


def encode_settings(settings: Settings) -> bytes:
    """JSON for people: one setting a line. The same bytes go into `buffer.json` and the PUT."""
    values = {name: getattr(settings, name) for name in _KNOWN}
    values = {name: value for name, value in values.items() if value != _OPTIONAL.get(name, _ALWAYS)}
    values |= dict(settings.others)
    return json.dumps(values, indent=2, ensure_ascii=False).encode() + b"\n"


def parse_settings(data: bytes) -> Settings:
    """Raises Damaged for anything that encode_settings could not have written."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise Damaged("the settings are not JSON") from None
    if not isinstance(values, dict):
        raise Damaged("the settings are not a JSON object")
    if isinstance(values.get("format"), int) and values["format"] > FORMAT_VERSION:
        raise NewerFormat(f"format {values['format']} is newer than this version of hbuf, which reads {FORMAT_VERSION}")
    missing = [name for name in _KNOWN if name not in values and name not in _OPTIONAL]
    if missing:
        raise Damaged(f"the settings lack '{missing[0]}'")
    others = tuple((name, value) for name, value in values.items() if name not in _KNOWN)
    known = {name: values[name] for name in _KNOWN if name in values}
    if isinstance(known.get("recipients"), list):
        known["recipients"] = tuple(known["recipients"])
    settings = Settings(**known, others=others)
    try:
        return _checked(settings)
    except UsageError as error:
        raise Damaged(f"the settings are wrong: {error.message}") from None


def fixed_values(settings: Settings) -> tuple[Any, ...]:
    """What the first PUT fixes for good: every later one says the same."""
    return tuple(getattr(settings, name) for name in _FIXED)


def has_rule(settings: Settings) -> bool:
    """Whether anything is ever to be retired."""
    return (settings.retention_age, settings.retention_bytes, settings.retention_messages) != (None, None, None)


def change_settings(settings: Settings, changes: Mapping[str, str]) -> Settings:
    """`settings` with values given as text, like `segment_bytes=64MiB`. Refuses what is fixed or unknown."""
    for name in changes:
        if name in _FIXED:
            raise UsageError(f"'{name}' is fixed when a buffer is made")
    return set_values(settings, changes)


def set_values(settings: Settings, values: Mapping[str, str]) -> Settings:
    """For a buffer that is being made: `hash` and `erasable` can be chosen too."""
    parsed: dict[str, Any] = {}
    for name, text in values.items():
        if name not in _PARSERS:
            raise UsageError(f"there is no setting '{name}'", hint=f"settings are {', '.join(_PARSERS)}")
        parsed[name] = _PARSERS[name](name, text)
    return _checked(replace(settings, **parsed))


def set_recipients(settings: Settings, recipients: Iterable[str]) -> Settings:
    """`settings` with bodies encrypted to these public keys, each once."""
    texts = [encode_public(parse_public(text)) for text in recipients]
    return _checked(replace(settings, recipients=tuple(dict.fromkeys(texts))))


def change_recipients(settings: Settings, added: Iterable[str], removed: Iterable[str]) -> Settings:
    """What is encrypted stays so: its last recipient cannot be removed."""
    gone = set(removed)
    unknown = gone - set(settings.recipients)
    if unknown:
        raise UsageError(f"'{min(unknown)}' is not a recipient")
    kept = [text for text in (*settings.recipients, *added) if text not in gone]
    if settings.recipients and not kept:
        raise UsageError("an encrypted buffer keeps at least one recipient")
    return set_recipients(settings, kept)


def parse_size_bytes(what: str, text: str) -> int:
    found = _SIZE.fullmatch(text)
    if not found:
        raise UsageError(f"{what}: '{text}' is not a size", hint="write it like 4096, 64KiB, 16MiB or 1GiB")
    return int(found[1]) * _UNITS[(found[2] or "").upper().rstrip("B").rstrip("I")]


def _parse_count(name: str, text: str) -> int | None:
    if text in ("", "none"):
        return None
    if not _COUNT.fullmatch(text):
        raise UsageError(f"{name}: '{text}' is not a number", hint="'none' takes the limit away")
    return int(text)


def _parse_age(name: str, text: str) -> float | None:
    return None if text in ("", "none") else parse_duration_seconds(text)


def _parse_size_or_none(name: str, text: str) -> int | None:
    return None if text in ("", "none") else parse_size_bytes(name, text)


def _parse_flag(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise UsageError(f"{name}: '{text}' is neither true nor false")
    return text == "true"


def _parse_text(name: str, text: str) -> str:
    return text


_PARSERS: dict[str, Any] = {
    "hash": _parse_text,
    "erasable": _parse_flag,
    "segment_bytes": parse_size_bytes,
    "segment_messages": _parse_count,
    "segment_age": _parse_age,
    "max_message_bytes": parse_size_bytes,
    "compress": _parse_flag,
    "retention_age": _parse_age,
    "retention_bytes": _parse_size_or_none,
    "retention_messages": _parse_count,
}
_KNOWN = tuple(field.name for field in fields(Settings) if field.name != "others")
# Said only where they differ from this: the settings of a buffer without them read the same in every version.
_OPTIONAL: dict[str, Any] = {
    "recipients": (),
    "compress": False,
    "retention_age": None,
    "retention_bytes": None,
    "retention_messages": None,
}
_ALWAYS = object()


def _checked(settings: Settings) -> Settings:
    s = settings
    if any(not isinstance(text, str) for text in (s.uuid, s.name, s.created, s.hash)):
        raise UsageError("uuid, name, created and hash are text")
    if not all(text.isprintable() for text in (s.uuid, s.name, s.created)):
        raise UsageError("uuid, name and created are printable text")
    if s.hash not in HASH_NAMES:
        raise UsageError(f"hash: '{s.hash}' is not one of {', '.join(HASH_NAMES)}")
    if not isinstance(s.erasable, bool) or not isinstance(s.compress, bool):
        raise UsageError("erasable and compress are true or false")
    _check_range("format", s.format, FORMAT_VERSION, FORMAT_VERSION)
    _check_range("segment_bytes", s.segment_bytes, MIN_SEGMENT_BYTES, LARGEST_SEGMENT_BYTES)
    _check_range("max_message_bytes", s.max_message_bytes, 1, MAX_BODY_BYTES)
    if s.segment_messages is not None:
        _check_range("segment_messages", s.segment_messages, 1, 2**32)
    if s.segment_age is not None:
        _check_range("segment_age", s.segment_age, 0.001, _CENTURY_SECONDS, whole=False)
    if s.retention_age is not None:
        _check_range("retention_age", s.retention_age, 0.001, _CENTURY_SECONDS, whole=False)
    if s.retention_bytes is not None:
        _check_range("retention_bytes", s.retention_bytes, 1, 2**62)
    if s.retention_messages is not None:
        _check_range("retention_messages", s.retention_messages, 1, 2**62)
    _check_recipients(s)
    return s


def _check_recipients(s: Settings) -> None:
    if not isinstance(s.recipients, tuple):
        raise UsageError("recipients are a list of public keys")
    for text in s.recipients:
        if not isinstance(text, str) or parse_public(text).kind != "encrypt":
            raise UsageError("recipients: each is the public key of a key of kind encrypt")
    if len(set(s.recipients)) != len(s.recipients) or len(s.recipients) > MAX_RECIPIENTS:
        raise UsageError(f"recipients: each is named once, and there are at most {MAX_RECIPIENTS}")
    if s.recipients and not s.erasable:
        raise UsageError("a buffer that is not erasable has no salts, and cannot be encrypted")


def _check_range(name: str, value: object, low: float, high: float, *, whole: bool = True) -> None:
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        raise UsageError(f"{name}: {value} is not between {low} and {high}")
