"""The one grammar of a record, as regular expressions over bytes. A record matches it exactly, or is damaged.

    record  = head fields trailer CRLF body CRLF
    head    = request-line "host: hbuf" CRLF [seq] time *own-line content-length
    fields  = [key] *tag *client-field
    trailer = [salt / gone] id [sig]
    line    = name ": " value CRLF

Only the shape is here. What regular expressions cannot tell (UTF-8, days that exist, the order of a head's own
lines, canonical base64) is checked in `scan`, on the few records that have it.
"""

from __future__ import annotations

import re

MAX_SECTION_BYTES = 65_535  # the header section of one record, its blank line included
MAX_BODY_BYTES = 512 * 1024 * 1024
# What a client's fields may take of a header section: the rest is room for the longest head and trailer.
MAX_FIELDS_BYTES = MAX_SECTION_BYTES - 1024

CRLF = b"\r\n"

_TOKEN = rb"[!#$%&'*+.^_`|~0-9a-z-]"
# A value has no ASCII control character and no blank at its ends. Bytes from 0x80 on are checked as UTF-8 later.
_FULL_VALUE = rb"[!-~\x80-\xff](?:[ -~\x80-\xff]*[!-~\x80-\xff])?"
_VALUE = rb"(?:" + _FULL_VALUE + rb")?"
_BUFFER = rb"_?[a-z0-9][a-z0-9._-]{0,127}"
_NUMBER = rb"[1-9][0-9]{0,18}"
_LENGTH = rb"(?:0|[1-9][0-9]{0,9})"
_TIME = rb"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])T(?:[01][0-9]|2[0-3])(?::[0-5][0-9]){2}\.[0-9]{6}Z"
# 32 bytes in base64url without padding: 43 characters, the last of which carries 4 bits only.
_BASE64_32 = rb"[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]"
# 64 bytes: 86 characters, the last of which carries 2 bits only.
_BASE64_64 = rb"[A-Za-z0-9_-]{85}[AQgw]"

# What is kept of a client's own fields. Everything else steers a connection, is a secret, or is reserved.
_CLIENT_NAME = (
    rb"(?:content-(?:type|encoding|language)|traceparent|tracestate|ce-" + _TOKEN + rb"+|x-(?!hbuf-)" + _TOKEN + rb"+)"
)
_CLIENT_LINES = rb"(?:" + _CLIENT_NAME + rb": " + _VALUE + rb"\r\n)*"
# An erased record's fields are one line of filler of the same length.
_FILLER = rb"x: -*\r\n"
_FIELDS = (
    rb"(?:x-hbuf-key: (?P<key>" + _FULL_VALUE + rb")\r\n)?"
    rb"(?P<tags>(?:x-hbuf-tag: " + _VALUE + rb"\r\n)*)" + _CLIENT_LINES
)

HEAD = (
    rb"(?P<head>(?P<method>POST|PUT|DELETE) /b/" + _BUFFER + rb" HTTP/1\.1\r\n"
    rb"host: hbuf\r\n"
    rb"(?:x-hbuf-seq: (?P<seq>" + _NUMBER + rb")\r\n)?"
    rb"x-hbuf-time: (?P<time>" + _TIME + rb")\r\n"
    rb"(?P<own>(?:x-hbuf-(?!seq:|time:)[a-z0-9-]+: " + _VALUE + rb"\r\n)*)"
    rb"content-length: (?P<length>" + _LENGTH + rb")\r\n)"
)
TRAILER_END = (
    rb"x-hbuf-id: (?P<id>[0-9a-f]{64})\r\n"
    rb"(?:x-hbuf-sig: (?P<sig>" + _BASE64_64 + rb")\r\n)?"
    rb"\r\n"
)
RECORD_SECTION = re.compile(
    HEAD + rb"(?P<fields>" + _FIELDS + rb"|" + _FILLER + rb")"
    rb"(?:x-hbuf-(?P<salted>salt|gone): (?P<salt>" + _BASE64_32 + rb")\r\n)?" + TRAILER_END
)

# Where a record may begin: used to find the next one behind damage, and always checked with RECORD_SECTION.
RECORD_START = re.compile(rb"(?:POST|PUT|DELETE) /b/" + _BUFFER + rb" HTTP/1\.1\r\nhost: hbuf\r\nx-hbuf-")

BASE64_KEY = re.compile(_BASE64_32)

LINE = re.compile(rb"(" + _TOKEN + rb"+): (" + _VALUE + rb")\r\n")

CLIENT_NAME = re.compile(_CLIENT_NAME)
CLIENT_LINES = re.compile(_CLIENT_LINES)
VALUE = re.compile(_VALUE)
# U+0080 to U+009F are control characters too; in UTF-8 they are these two bytes.
C1_CONTROL = re.compile(rb"\xc2[\x80-\x9f]")


def is_text(value: bytes) -> bool:
    """Whether bytes that match VALUE are UTF-8 without control characters."""
    if value.isascii():
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return C1_CONTROL.search(value) is None
