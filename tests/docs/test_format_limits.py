"""The numbers that docs/format.md and the man pages state are those of the code."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from hbuf.errors import UsageError
from hbuf.format.fields import encode_fields
from hbuf.format.grammar import MAX_BODY_BYTES, MAX_FIELDS_BYTES, MAX_SECTION_BYTES
from hbuf.format.index import MAX_SEGMENT_BYTES
from hbuf.format.keys import PublicKey, encode_public
from hbuf.format.settings import Settings, change_recipients, change_settings, set_values
from hbuf.store.room import MAX_UNIT_BYTES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
DEFAULTS = Settings("6f1c2a9e-3b47-4d58-9c60-7a8b9cadbecf", "orders", "2026-11-18T04:50:59.000000Z")


def settings_table() -> dict[str, tuple[str, str, str]]:
    """Of each setting: what it may be, its default, and whether it can change."""
    table = TEXT[TEXT.index("| name | value | default | can change |") :].split("\n\n", 1)[0]
    rows = re.findall(r"^\| `([a-z_]+)` \|(.*?)\|(.*?)\| (yes|no) \|$", table, re.MULTILINE)
    return {name: (value.strip(), default.strip(), change) for name, value, default, change in rows}


@pytest.mark.parametrize(
    ("sentence", "number"),
    [
        ("has at most {} bytes. A writer must refuse", MAX_SECTION_BYTES),
        ("fields take more than {} bytes together", MAX_FIELDS_BYTES),
        ("at most {} bytes.\n- The CRLF", MAX_BODY_BYTES),
        ("No record begins behind byte {}.", MAX_SEGMENT_BYTES),
    ],
)
def test_limit_is_that_of_the_code(sentence: str, number: int) -> None:
    plain = " ".join(TEXT.split())
    assert " ".join(sentence.format(f"{number:,}").split()) in plain


def test_largest_unit_is_a_gibibyte() -> None:
    assert "A unit takes at most 1 GiB." in " ".join(TEXT.split())
    assert MAX_UNIT_BYTES == 1024**3


def test_shortest_record_is_as_long_as_is_said() -> None:
    found = re.search(r"records of the shortest length \((\d+) bytes\)", " ".join(TEXT.split()))
    assert found is not None
    shortest = (
        "POST /b/o HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: 1\r\nx-hbuf-time: 2026-11-18T04:51:00.123456Z\r\n"
        f"content-length: 0\r\nx-hbuf-id: {'0' * 64}\r\n\r\n\r\n"
    )
    assert int(found[1]) == len(shortest)


def test_table_of_settings_names_them_in_their_order() -> None:
    assert list(settings_table()) == [field.name for field in fields(Settings) if field.name != "others"]


def test_table_of_settings_tells_the_defaults() -> None:
    told = {name: default.strip("`").replace(",", "") for name, (_, default, _) in settings_table().items()}
    for name in (
        "format",
        "hash",
        "erasable",
        "segment_bytes",
        "segment_messages",
        "segment_age",
        "max_message_bytes",
        "compress",
    ):
        assert told[name] == json.dumps(getattr(DEFAULTS, name))


def test_table_of_settings_tells_what_can_change() -> None:
    values = {
        "segment_bytes": "8192",
        "segment_messages": "5",
        "segment_age": "1d",
        "max_message_bytes": "9",
        "compress": "true",
        "retention_age": "30d",
        "retention_bytes": "1GiB",
        "retention_messages": "1000",
    }
    for name, (_, _, change) in settings_table().items():
        if name == "recipients":
            public = encode_public(PublicKey("encrypt", bytes(32)))
            assert change_recipients(DEFAULTS, [public], []) != DEFAULTS
        elif change == "yes":
            assert change_settings(DEFAULTS, {name: values[name]}) != DEFAULTS
        else:
            with pytest.raises(UsageError, match="fixed"):
                change_settings(DEFAULTS, {name: "1"})


@pytest.mark.parametrize("name", ["segment_bytes", "max_message_bytes"])
def test_table_of_settings_tells_the_range(name: str) -> None:
    low, high = (int(number.replace(",", "")) for number in settings_table()[name][0].split(" to "))
    for taken in (low, high):
        assert getattr(set_values(DEFAULTS, {name: str(taken)}), name) == taken
    for refused in (low - 1, high + 1):
        with pytest.raises(UsageError):
            set_values(DEFAULTS, {name: str(refused)})


def test_kept_fields_are_those_that_the_format_and_the_page_name() -> None:
    named = "content-type, content-encoding, content-language, traceparent, tracestate"
    assert named in " ".join(TEXT.replace("`", "").split())
    assert named in (ROOT / "man" / "hbuf-append.1").read_text().replace(r"\-", "-")
    encoded = encode_fields(None, [], [(name, "1") for name in [*named.split(", "), "ce-id", "x-any"]]).encoded
    assert encoded.count(b"\r\n") == 7
