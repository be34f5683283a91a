"""Taking files away, putting others in their place, and changing those that are no evidence."""

from __future__ import annotations

import json
import os
import shutil

from hbuf.format import index
from hbuf.format.index import DURABLE_LENGTH_AT, ENTRY_BYTES, HEADER_BYTES, LENGTH, parse_entries

from .buffers import KINDS, Target, make_target
from .registry import attack


@attack("the end is cut off, against a head")
def cut_end(target: Target) -> None:
    """Whole records, and the index with them."""
    segment, listed = target.segment(7), target.segment(7).with_suffix(".idx")
    entries = listed.read_bytes()
    last = parse_entries(entries[HEADER_BYTES:])[-1]
    os.truncate(segment, last.offset)
    os.truncate(listed, len(entries) - ENTRY_BYTES)
    with listed.open("r+b") as file:
        file.seek(DURABLE_LENGTH_AT)
        file.write(LENGTH.pack(last.offset))


@attack("the buffer is replaced by an older copy of itself, against a head")
def replace_by_old_copy(target: Target) -> None:
    shutil.rmtree(target.path)
    shutil.copytree(target.root / "old", target.path)


@attack("the newest segment is removed, against a head")
def remove_newest(target: Target) -> None:
    for file in target.path.glob("segments/*7.*"):
        file.unlink()


@attack("a fork grows from an older copy, against a head")
def fork(target: Target) -> None:
    """By who has the key as it was: the owner, or a backup of the key."""
    replace_by_old_copy(target)
    shutil.copy(target.root / "old.key", target.keys / "sign.key")
    target.append(b"seven, but another", b"eight", b"nine")


@attack("the oldest segment is removed")
def remove_oldest(target: Target) -> None:
    for file in target.path.glob("segments/*01.*"):
        file.unlink()


@attack("a segment in the middle is removed")
def remove_middle(target: Target) -> None:
    for file in target.path.glob("segments/*4.*"):
        file.unlink()


@attack("two segments are swapped")
def swap_segments(target: Target) -> None:
    first, second = target.segment(4).read_bytes(), target.segment(7).read_bytes()
    target.segment(4).write_bytes(second)
    target.segment(7).write_bytes(first)


@attack("a segment is renamed")
def rename_segment(target: Target) -> None:
    for suffix in (".http", ".idx", ".tags"):
        file = target.segment(4).with_suffix(suffix)
        file.rename(target.segment(5).with_suffix(suffix))


@attack("a segment of another buffer takes a place")
def put_foreign_segment(target: Target) -> None:
    other = make_target(target.root / "other", target.kind)
    for suffix in (".http", ".idx", ".tags"):
        shutil.copy(other.segment(4).with_suffix(suffix), target.segment(4).with_suffix(suffix))


@attack("the whole buffer is replaced by another, against a head")
def replace_buffer(target: Target) -> None:
    other = make_target(target.root / "other", target.kind)
    shutil.rmtree(target.path)
    shutil.copytree(other.path, target.path)


@attack("buffer.json is changed")
def change_settings_file(target: Target) -> None:
    file = target.path / "buffer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"max_message_bytes": 5}, indent=2) + "\n")


@attack("buffer.json names other recipients")
def change_recipients(target: Target) -> None:
    file = target.path / "buffer.json"
    recipients = ["hbuf-encrypt-1 " + "A" * 43]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"recipients": recipients}, indent=2) + "\n")


@attack("the key of a message is hidden in the index")
def hide_key(target: Target) -> None:
    listed = target.segment(4).with_suffix(".idx")
    data = bytearray(listed.read_bytes())
    entry = parse_entries(bytes(data[HEADER_BYTES:]))[1]
    changed = entry._replace(key_offset=0, key_length=0, tags_length=0)
    data[HEADER_BYTES + ENTRY_BYTES : HEADER_BYTES + 2 * ENTRY_BYTES] = index.ENTRY.pack(*changed)
    listed.write_bytes(data)


@attack("a message is hidden in the index")
def hide_message(target: Target) -> None:
    listed = target.segment(4).with_suffix(".idx")
    data = listed.read_bytes()
    second = HEADER_BYTES + ENTRY_BYTES
    listed.write_bytes(data[:second] + data[second + ENTRY_BYTES :])


@attack("a message is hidden in the tags file")
def hide_in_tags(target: Target) -> None:
    shutil.copy(target.segment(1).with_suffix(".tags"), target.segment(4).with_suffix(".tags"))


@attack("the index of another segment takes a place")
def swap_indexes(target: Target) -> None:
    shutil.copy(target.segment(1).with_suffix(".idx"), target.segment(4).with_suffix(".idx"))


@attack("the index says that a tail which is there is not durable", unnoticed=KINDS)
def shorten_index(target: Target) -> None:
    """An index may be behind: readers and writers then look at the segment."""
    listed = target.segment(7).with_suffix(".idx")
    with listed.open("r+b") as file:
        file.seek(DURABLE_LENGTH_AT)
        file.write(LENGTH.pack(parse_entries(listed.read_bytes()[HEADER_BYTES:])[1].end))
