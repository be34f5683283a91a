"""A stream of HTTP/1.1 requests (`application/http`) as messages to store, read as it arrives.

What is not a plain request is refused, never guessed at: two readers of one stream must not disagree on where a
request ends. All requests before a bad one are handed out, however the stream was cut into pieces.
"""

from __future__ import annotations

import functools
import re

from hbuf.errors import BadInput, HbufError, TooLarge
from hbuf.format.fields import encode_fields, encode_producer
from hbuf.format.grammar import MAX_BODY_BYTES, MAX_SECTION_BYTES
from hbuf.format.message import Draft

_END = b"\r\n\r\n"
# A CR at the very end may be the first half of a line's end that is still to come.
_CONTROL = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_HAS_CONTROL = "a control character, or a CR or LF alone, in its header section"
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) [!-~]+ HTTP/([0-9]\.[0-9])")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LENGTH = re.compile(rb"[0-9]{1,19}")
_PRODUCER_SEQ = re.compile(r"0|[1-9][0-9]{0,18}")
_SHORT_BYTES = 512  # of a header section: longer ones are not kept for the next
_FRAMING = (b"host", b"content-length")

_Headers = list[tuple[bytes, bytes]]


class RequestStream:
    """Feed it pieces of any size, then close it. Once it has `refused` something it takes nothing more."""

    def __init__(self, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.refused: BadInput | None = None
        self._max_body_bytes = max_body_bytes
        self.passed_over = 0  # stored records that are no message any more, or never were one
        self._count = 0  # requests whose header section has come whole
        self._rest = bytearray()  # bytes of a header section that has not come whole
        self._searched = 0  # how many of them are known not to hold its end
        self._draft: Draft | None = None  # what the open request makes, still without its body
        self._body: list[bytes] = []
        self._missing = 0  # bytes of the open request's body that are still to come

    def feed(self, data: bytes) -> list[Draft]:
        """The messages that `data` completes, up to a bad one."""
        drafts: list[Draft] = []
        if self.refused is None:
            try:
                self._read(data, drafts)
            except BadInput as error:
                self.refused = error
        return drafts

    @property
    def unfinished(self) -> bool:
        """Whether the stream stands in the middle of a request."""
        return bool(self._missing or self._rest)

    def close(self) -> None:
        """Refuses a stream that ends in the middle of a request."""
        if self.refused is None and self._missing:
            self.refused = BadInput(f"request {self._count}: the stream ends in the middle of its body")
        elif self.refused is None and self._rest:
            self.refused = BadInput(f"request {self._count + 1}: the stream ends in the middle of its header section")

    def _read(self, data: bytes, drafts: list[Draft]) -> None:
        if self._missing:
            part = data[: self._missing]
            self._body.append(part)
            self._missing -= len(part)
            if self._missing:
                return
            self._finish(b"".join(self._body), drafts)
            self._body = []
            data = data[len(part) :]
        rest = self._rest
        rest += data
        at = 0
        while not self._missing:
            while rest.startswith(b"\r\n", at):
                at += 2
            body_start = self._section_end(at)
            if body_start is None:
                break
            self._count += 1
            length = self._open(bytes(rest[at : body_start - len(_END)]))
            body = bytes(rest[body_start : body_start + length])
            at = body_start + len(body)
            self._searched = at
            if len(body) == length:
                self._finish(body, drafts)
            else:
                self._body = [body]
                self._missing = length - len(body)
        del rest[:at]
        self._searched = max(self._searched - at, 0)

    def _section_end(self, at: int) -> int | None:
        """Just behind the header section that begins at `at`, or None where it has not come whole."""
        rest = self._rest
        # The end may have begun in the piece before.
        unseen = max(at, self._searched - len(_END) + 1)
        end = rest.find(_END, unseen)
        stop = len(rest) if end < 0 else end + len(_END)
        # One that has come whole is looked through when it is read.
        if end < 0 and _CONTROL.search(rest, unseen, min(stop, at + MAX_SECTION_BYTES)):
            raise BadInput(f"request {self._count + 1}: {_HAS_CONTROL}")
        if stop - at > MAX_SECTION_BYTES or (end < 0 and stop - at == MAX_SECTION_BYTES):
            raise TooLarge(f"request {self._count + 1}: its header section has more than {MAX_SECTION_BYTES} bytes")
        self._searched = stop
        return None if end < 0 else stop

    def _open(self, section: bytes) -> int:
        """Takes a header section, and says how long the body is that follows it."""
        try:
            read = _read_short_section if len(section) <= _SHORT_BYTES else _read_section
            self._draft, length = read(section, self._max_body_bytes)
        except HbufError as error:
            kind = TooLarge if isinstance(error, TooLarge) else BadInput
            raise kind(f"request {self._count}: {error.message}", hint=error.hint) from None
        return length

    def _finish(self, body: bytes, drafts: list[Draft]) -> None:
        if self._draft is None:
            self.passed_over += 1
        else:
            drafts.append(Draft(body, self._draft.fields, self._draft.producer))


def _read_section(section: bytes, most_body_bytes: int) -> tuple[Draft | None, int]:
    """The message without its body, or None for what is passed over; and how long the body is."""
    if _CONTROL.search(section + b"\r\n"):
        raise BadInput(_HAS_CONTROL)
    method, headers = _parse_section(section)
    length = _body_length(headers, most_body_bytes)
    return _draft_of(method, headers), length


# The requests of a batch differ little from each other but in their bodies.
_read_short_section = functools.lru_cache(4096)(_read_section)


def _parse_section(section: bytes) -> tuple[bytes, _Headers]:
    """The method, and the header fields with lower-case names."""
    request_line, *lines = section.split(b"\r\n")
    found = _REQUEST_LINE.fullmatch(request_line)
    if not found:
        raise BadInput("it does not begin with a request line")
    method, version = found.groups()
    if version not in (b"1.1", b"1.0"):
        raise BadInput(f"HTTP/{version.decode()} is neither HTTP/1.1 nor HTTP/1.0")
    if method not in (b"POST", b"PUT", b"DELETE"):
        raise BadInput(f"{method.decode()} is not a method that stores a message")
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if line.startswith((b" ", b"\t")):
            raise BadInput("a header line is folded")
        if not colon or not _NAME.fullmatch(name):
            raise BadInput("a header line is not a name, a colon and a value")
        headers.append((name.lower(), value.strip(b" \t")))
    return method, headers


def _body_length(headers: _Headers, limit: int) -> int:
    if any(name == b"transfer-encoding" for name, _ in headers):
        raise BadInput("transfer-encoding is not taken; content-length says where a body ends")
    lengths = [value for name, value in headers if name == b"content-length"]
    if not lengths:
        return 0
    if len(lengths) > 1:
        raise BadInput("content-length is there more than once")
    if not _LENGTH.fullmatch(lengths[0]):
        raise BadInput("content-length is not a number")
    length = int(lengths[0])
    if length > limit:
        raise TooLarge(f"its body has {length} bytes; the limit is {limit}")
    return length


def _draft_of(method: bytes, headers: _Headers) -> Draft | None:
    """The message without its body, or None for a stored record that is passed over."""
    own: dict[str, str] = {}
    keys: list[str] = []
    tags: list[str] = []
    others: list[tuple[str, str]] = []
    for raw_name, raw_value in headers:
        if raw_name in _FRAMING:
            continue
        # What is not UTF-8 comes out of this in a form that encode_fields refuses by name.
        name, value = raw_name.decode(), raw_value.decode("utf-8", "surrogateescape")
        if name == "x-hbuf-key":
            keys.append(value)
        elif name == "x-hbuf-tag":
            tags.append(value)
        elif not name.startswith("x-hbuf-"):
            others.append((name, value))
        elif name in ("x-hbuf-producer", "x-hbuf-producer-seq") and name in own:
            raise BadInput(f"{name} is there more than once")
        else:
            own[name] = value
    stored = "x-hbuf-time" in own and "x-hbuf-id" in own
    if stored and (method != b"POST" or "x-hbuf-gone" in own):
        return None
    if stored and "x-hbuf-data-key" in own:
        raise BadInput("the message is encrypted; decrypt it before it is copied")
    if method != b"POST":
        raise BadInput(f"a message comes with POST, not {method.decode()}")
    if len(keys) > 1:
        raise BadInput("x-hbuf-key is there more than once")
    fields = encode_fields(keys[0] if keys else None, tags, others)
    return Draft(b"", fields, None if stored else _producer_of(own))


def _producer_of(own: dict[str, str]) -> tuple[bytes, int] | None:
    """The producer that a client's reserved lines tell. Any other reserved line is not a client's to give."""
    name, number = own.pop("x-hbuf-producer", None), own.pop("x-hbuf-producer-seq", None)
    if own:
        raise BadInput(f"field '{next(iter(own))}' is reserved")
    if name is None and number is None:
        return None
    if name is None or number is None:
        raise BadInput("x-hbuf-producer and x-hbuf-producer-seq come together")
    if not _PRODUCER_SEQ.fullmatch(number):
        raise BadInput("x-hbuf-producer-seq is not a number")
    return encode_producer(name), int(number)
