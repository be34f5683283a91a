"""What the servers answer, as far as a load has to know it: whether an answer is whole, and good.

Each reader is fed what arrives for one request, or for many that were sent at once, and says when all is there.
"""

from __future__ import annotations

from typing import Protocol


class Refused(Exception):
    """The server answered with something else than success."""


class Answers(Protocol):
    """Reads the answers to one sending."""

    def complete(self, data: bytes) -> bool:
        """Whether with `data` all answers of this sending have come; the next sending begins anew."""
        ...


class HttpAnswers:
    """One answer, with its length or in chunks. Its body can be kept."""

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep
        self._rest = b""
        self._in_body = False
        self._missing = 0  # bytes of a body with a length
        self._chunks: Chunks | None = None
        self.head, self.body = b"", bytearray()

    def complete(self, data: bytes) -> bool:
        if not self._in_body:
            data = self._rest + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._rest = data
                return False
            self._begin(data[:end])
            data = data[end + 4 :]
        if self._chunks is not None:
            pieces, whole = self._chunks.feed(data)
            for piece in pieces:
                self._take(piece)
        else:
            self._take(data)
            whole = self._missing <= 0
        self._in_body = not whole
        return whole

    def header(self, name: bytes) -> bytes:
        """Of the last answer; empty if it is not there. The name in small letters."""
        return self.head.lower().partition(b"\r\n%b: " % name)[2].partition(b"\r\n")[0].strip()

    def _begin(self, head: bytes) -> None:
        if not head.startswith(b"HTTP/1.1 2"):
            raise Refused(head.decode(errors="replace"))
        self._in_body, self._rest, self.head, self.body = True, b"", head, bytearray()
        length = self.header(b"content-length")
        chunked = not length and b"chunked" in self.header(b"transfer-encoding")
        self._chunks = Chunks() if chunked else None
        self._missing = int(length or 0)

    def _take(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._keep:
            self.body += data


class Chunks:
    """Takes the chunks of a body apart."""

    def __init__(self) -> None:
        self._rest = b""
        self._inside = 0  # bytes of a chunk that are still to come, with its last CRLF

    def feed(self, data: bytes) -> tuple[list[bytes], bool]:
        """The pieces of the body in `data`, and whether it has ended."""
        data, self._rest = self._rest + data, b""
        pieces, at = [], 0
        while at < len(data):
            if self._inside:
                taken = min(self._inside, len(data) - at)
                piece = data[at : at + max(min(taken, self._inside - 2), 0)]
                if piece:
                    pieces.append(piece)
                self._inside -= taken
                at += taken
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._rest = data[at:]
                break
            size = int(data[at:end].partition(b";")[0], 16)
            if not size:
                if len(data) >= end + 4:
                    return pieces, True
                self._rest = data[at:]
                break
            at, self._inside = end + 2, size + 2
        return pieces, False


class RedisAnswers:
    """The ids that XADD answers: two lines each."""

    def __init__(self, count: int) -> None:
        self._count, self._data = count, b""

    def complete(self, data: bytes) -> bool:
        self._data += data
        if not self._data.endswith(b"\r\n") or self._data.count(b"\n") < 2 * self._count:
            if self._data.startswith(b"-"):
                raise Refused(self._data.decode(errors="replace"))
            return False
        if self._data.startswith(b"-") or b"\n-" in self._data:
            raise Refused(self._data[:1000].decode(errors="replace"))
        self._data = b""
        return True


class NatsAnswers:
    """The acknowledgements of JetStream: a message each. The server's PING may come between them."""

    def __init__(self, count: int) -> None:
        self._count, self._data = count, b""

    def complete(self, data: bytes) -> bool:
        self._data += data
        if not self._data.endswith(b"\r\n"):
            return False
        if b"-ERR" in self._data or b'"error"' in self._data:
            raise Refused(self._data[:1000].decode(errors="replace"))
        if self._data.count(b"}\r\n") < self._count:
            return False
        self._data = b""
        return True
