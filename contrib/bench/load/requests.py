"""What is sent to append messages: over HTTP, to Redis, to NATS. Bytes that are made once, before the clock runs."""

from __future__ import annotations

from collections.abc import Sequence


def http_request(method: str, target: str, body: bytes, authorization: str = "", content_type: str = "") -> bytes:
    """`authorization` is a whole line, as admin.header has it."""
    lines = [f"{method} {target} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
    lines += [line for line in (authorization.strip(), content_type and f"content-type: {content_type}") if line]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def http_append(buffer: str, body: bytes, authorization: str = "", content_type: str = "") -> bytes:
    return http_request("POST", f"/b/{buffer}", body, authorization, content_type)


def http_batch(buffer: str, bodies: Sequence[bytes], authorization: str = "") -> bytes:
    records = b"".join(http_append(buffer, body) for body in bodies)
    return http_append(buffer, records, authorization, "application/http; msgtype=request")


def http_get(target: str, accept: str, authorization: str = "") -> bytes:
    lines = [f"GET {target} HTTP/1.1", "host: 127.0.0.1", f"accept: {accept}"]
    return "\r\n".join(lines + [authorization.strip()] * bool(authorization)).encode() + b"\r\n\r\n"


def redis(*words: str | bytes) -> bytes:
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def redis_append(stream: str, body: bytes) -> bytes:
    return redis("XADD", stream, "*", "body", body)


def nats(subject: str, answer_to: str, body: bytes = b"") -> bytes:
    return f"PUB {subject} {answer_to} {len(body)}\r\n".encode() + body + b"\r\n"


def nats_hello(inbox: str) -> bytes:
    """No headers, no echo of every command; what is sent to the inbox comes to us."""
    return b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\n' + f"SUB {inbox} 1\r\n".encode()
