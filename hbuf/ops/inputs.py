"""What a stream can be read as: lines, JSON lines, HTTP requests. Bytes in, messages out; no files.

A parser hands out every message before a bad one, and says in `failed` what is wrong with that one. Once it has
failed it takes nothing more. No parser keeps more than about one message in memory.
"""

from __future__ import annotations

from hbuf.errors import BadInput, TooLarge
from hbuf.format.httpstream import RequestStream
from hbuf.format.jsonlines import parse_json
from hbuf.format.message import Draft

# JSON may write a byte with six characters, and has the fields beside the body.
_JSON_FACTOR = 6
_JSON_FIELDS_BYTES = 1024 * 1024


class LineParser:
    """Cuts a stream into messages at a separator. What is not finished waits for more."""

    def __init__(self, separator: bytes, limit_bytes: int) -> None:
        self.failed: BadInput | None = None
        self._separator = separator
        self._limit_bytes = limit_bytes
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        if len(self._separator) == 1 and self._separator not in data:
            self._keep(data)
            return []
        parts = b"".join([*self._rest, data]).split(self._separator)
        self._rest, self._rest_bytes = [], 0
        self._keep(parts.pop())
        if parts and max(map(len, parts)) > self._limit_bytes:
            self._fail()
            return parts[: next(i for i, part in enumerate(parts) if len(part) > self._limit_bytes)]
        return parts

    @property
    def unfinished(self) -> bool:
        return bool(self._rest)

    def close(self) -> list[bytes]:
        """The last message, where the stream did not end with a separator."""
        rest, self._rest = b"".join(self._rest), []
        return [rest] if rest else []

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._rest.append(piece)
            self._rest_bytes += len(piece)
        if self._rest_bytes > self._limit_bytes + len(self._separator):
            self._fail()
            self._rest = []

    def _fail(self) -> None:
        self.failed = TooLarge(
            f"a message has more than {self._limit_bytes} bytes, which is the limit",
            hint="the setting max_message_bytes can be raised with hbuf-set",
        )


class JsonParser:
    """The lines that `hbuf-tail --json` writes."""

    def __init__(self, limit_bytes: int) -> None:
        self.failed: BadInput | None = None
        self._limit_bytes = limit_bytes
        self._lines = LineParser(b"\n", _JSON_FACTOR * limit_bytes + _JSON_FIELDS_BYTES)
        self._count = 0

    def feed(self, data: bytes) -> list[Draft]:
        found = self._drafts(self._lines.feed(data))
        self.failed = self.failed or self._lines.failed
        return found

    @property
    def unfinished(self) -> bool:
        return self._lines.unfinished

    def close(self) -> list[Draft]:
        return self._drafts(self._lines.close())

    def _drafts(self, lines: list[bytes]) -> list[Draft]:
        drafts: list[Draft] = []
        for line in lines:
            self._count += 1
            try:
                draft = parse_json(line) if line.strip() else None
                if draft is not None and len(draft.body) > self._limit_bytes:
                    raise TooLarge(f"its body has {len(draft.body)} bytes; the limit is {self._limit_bytes}")
            except BadInput as error:
                self.failed = type(error)(f"line {self._count}: {error.message}", hint=error.hint)
                break
            if draft is not None:
                drafts.append(draft)
        return drafts


class HttpParser:
    """An `application/http` stream of requests."""

    def __init__(self, limit_bytes: int) -> None:
        self.failed: BadInput | None = None
        self._requests = RequestStream(limit_bytes)

    def feed(self, data: bytes) -> list[Draft]:
        drafts = self._requests.feed(data)
        self.failed = self._requests.refused
        return drafts

    @property
    def unfinished(self) -> bool:
        return self._requests.unfinished

    def close(self) -> list[Draft]:
        self._requests.close()
        self.failed = self._requests.refused
        return []


Parser = LineParser | JsonParser | HttpParser
