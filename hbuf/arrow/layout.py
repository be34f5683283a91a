"""Where the parts of each message of a block lie, from the index, compared with the records for all of them at once.

The index is no evidence. A block whose records are not as its entries say has no layout, and is read record by
record instead. What is compared: that the first record is one, with the number that it must have; that every other
begins as that does, and its head, its header section and its body end, where they must; its number, its time, the
length of its body, its key, where its tags are, and whether it is erased or encrypted. So a body that looks like
records is none, whatever the index says. What a key, a tag, a header or an id says is looked at where a
column of it is made.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hbuf.arrow.block import Block, Bools, Entries, Ints
from hbuf.arrow.digits import TIME_BYTES, digits_of, write_numbers, write_times
from hbuf.arrow.spans import (
    ANY,
    Differs,
    Texts,
    ends_line,
    expect,
    expect_form,
    expect_same,
    gathered,
    has,
    joined,
    shows,
    taken,
)
from hbuf.format import index

_KEY, _TAG = b"x-hbuf-key: ", b"x-hbuf-tag: "
_SEQ, _TIME, _LENGTH = b"\r\nx-hbuf-seq: ", b"\r\nx-hbuf-time: ", b"\r\ncontent-length: "
_OWN = b"x-hbuf-"
_DATA_KEY = re.compile(rb"\nx-hbuf-data-key: ")
# Each stands in a line of its own: a field's value may say the same.
_SALT, _GONE, _ID = b"\r\nx-hbuf-salt: ", b"\r\nx-hbuf-gone: ", b"\r\nx-hbuf-id: "
ID_BYTES = 64
SALT_AT, SALT_CHARACTERS = len(_SALT) - len(b"\r\n"), 43  # in a salt's line
_SALT_LINE_BYTES = len(_SALT) + SALT_CHARACTERS
_SIG, _SIG_BYTES = b"\r\nx-hbuf-sig: ", 86
_BLANK_LINE = b"\r\n\r\n"
_MOST_FORMS = 8  # a block has two


class Layout(NamedTuple):
    """Positions in a block's data, one of each record. An erased message has no key and no tags."""

    times_us: Ints
    deletes: Bools
    erased: Bools
    encrypted: Bools
    keys: Ints
    key_ends: Ints  # the same where there is no key: a key is never empty
    tags: Ints  # tag lines
    tags_ends: Ints
    headers_ends: Ints  # a client's own fields begin where the tags end
    ids: Ints
    bodies: Ints
    body_ends: Ints

    @property
    def records(self) -> int:
        return len(self.bodies)

    def only(self, rows: Ints) -> Layout:
        """That of some rows."""
        return self if len(rows) == self.records else Layout._make(each[rows] for each in self)


class _Expected(threading.local):
    """What many records must look like, but for the numbers and times in it: these are written anew each time."""

    def __init__(self) -> None:
        self._known: dict[bytes, Texts] = {}

    def texts(self, form: bytes, count: int) -> Texts:
        known = self._known.get(form)
        if known is None or len(known) < count:
            if len(self._known) == _MOST_FORMS:
                self._known.clear()
            known = self._known[form] = np.full(count, np.void(form))
        return known[:count]


_expected = _Expected()


def lay_out(block: Block) -> Layout | None:
    """None where a record is not as its entry says, or a part of one could not be read."""
    if block.holes:
        return None
    try:
        return _lay_out(block)
    except (Differs, ValueError, IndexError):  # numpy's own, for a time that is none, and a place behind the end
        return None


def _lay_out(block: Block) -> Layout:
    entries, starts, ends, data = block.entries, block.starts, block.ends, block.data
    heads, bodies = starts + entries["head_length"], starts + entries["section_length"]
    flags, times_us = entries["flags"], entries["time_us"].copy()
    deletes = (flags & index.FLAG_DELETE) != 0
    expect((heads <= bodies) & ends_line(data, ends))
    own = _check_starts(block, starts, deletes, times_us)
    encrypted = _encrypted(data, own, _check_lengths(data, heads, entries["body_length"].astype(np.int64)))
    expect(encrypted == ((flags & index.FLAG_ENCRYPTED) != 0))
    fields_ends, erased, ids = _trailers(data, heads, bodies, (flags & index.FLAG_SIGNED) != 0)
    expect(erased == ((flags & index.FLAG_ERASED) != 0))
    keys, key_ends, tags_ends = _fields(data, entries, starts, heads, fields_ends)
    tags = np.where(key_ends > keys, key_ends + 2, heads)
    return Layout(
        times_us, deletes, erased, encrypted, keys, key_ends, tags, tags_ends, fields_ends, ids, bodies, ends - 2
    )


def _check_starts(block: Block, starts: Ints, deletes: Bools, times_us: Ints) -> Ints:
    """Checks how each record begins, with its number and its time. Returns where what follows begins."""
    first = block.first_record()
    if first is None:
        raise Differs
    opening = block.data[first.start : block.data.index(_SEQ, first.start) + len(_SEQ)]
    behind_method = opening[len(first.method) :]
    seqs = np.arange(block.first, block.first + block.count)
    found = np.empty_like(starts)
    for method, are in ((b"POST", ~deletes), (b"DELETE", deletes)):
        before = method + behind_method
        for width, rows in _alike(seqs, are):
            form = b"".join((before, ANY * width, _TIME, ANY * TIME_BYTES, b"Z\r\n"))
            number_end = len(before) + width
            expected = _expected.texts(form, len(starts[rows]))
            write_numbers(expected, number_end, seqs[rows], width)
            write_times(expected, number_end + len(_TIME), times_us[rows])
            expect_same(gathered(block.data, starts[rows], len(form)), expected)
            found[rows] = starts[rows] + len(form)
    return found


def _check_lengths(data: bytes, heads: Ints, lengths: Ints) -> Ints:
    """Checks the lines that say how long the bodies are, with which the heads end. Returns where they begin."""
    found = np.empty_like(heads)
    for width, rows in _alike(lengths, np.ones(len(lengths), np.bool_)):
        form = b"".join((_LENGTH, ANY * width, b"\r\n"))
        starts = heads[rows] - len(form)
        expected = _expected.texts(form, len(starts))
        write_numbers(expected, len(_LENGTH) + width, lengths[rows], width)
        expect_same(gathered(data, starts, len(form)), expected)
        found[rows] = starts + len(b"\r\n")
    return found


def _alike(numbers: Ints, among: Bools) -> Iterator[tuple[int, Ints | slice]]:
    """Each number of digits, with the rows that have so many: most blocks have one."""
    if not among.any():
        return
    least, most = (len(str(number)) for number in (numbers.min(), numbers.max()))
    for width in range(least, most + 1):
        rows = _rows(among if least == most else among & (digits_of(numbers) == width))
        if rows is not None:
            yield width, rows


def _rows(among: Bools) -> Ints | slice | None:
    if among.all():
        return slice(None)
    rows = np.flatnonzero(among)
    return rows if len(rows) else None


def _encrypted(data: bytes, starts: Ints, ends: Ints) -> Bools:
    """Those that have a line that names a data key among a head's own, which lie between `starts` and `ends`."""
    encrypted = np.zeros(len(starts), np.bool_)
    expect(starts <= ends)
    [with_own] = np.nonzero(starts < ends)
    if not len(with_own):
        return encrypted
    expect(has(data, starts[with_own], _OWN))
    places, lines = joined(taken(data, starts[with_own], ends[with_own]))
    if _BLANK_LINE in lines:
        raise Differs  # a header section has ended: these are lines of a body
    found = np.fromiter((match.start() for match in _DATA_KEY.finditer(b"\n" + lines)), np.int64)
    encrypted[with_own[np.searchsorted(places, found, "right") - 1]] = True
    return encrypted


def _trailers(data: bytes, heads: Ints, bodies: Ints, signed: Bools) -> tuple[Ints, Bools, Ints]:
    """Checks the lines around each id, to the end of the header section.

    Returns where the trailers begin, whether they say that fields are gone, and where the ids are.
    """
    fields_ends, erased, ids = np.empty_like(bodies), np.zeros_like(signed), np.empty_like(bodies)
    for signature, are in ((b"", ~signed), (_SIG + ANY * _SIG_BYTES, signed)):
        rows = _rows(are)
        if rows is None:
            continue
        form = b"".join((ANY * _SALT_LINE_BYTES, _ID, ANY * ID_BYTES, signature, _BLANK_LINE))
        starts, first = bodies[rows] - len(form), heads[rows] - len(b"\r\n")
        texts = gathered(data, starts, len(form))
        expect_form(texts, form)
        id_lines = starts + _SALT_LINE_BYTES
        expect(first <= id_lines)
        has_room = first <= starts
        salted = has_room & shows(texts, 0, _SALT)
        gone = has_room & shows(texts, 0, _GONE) if not salted.all() else ~salted
        fields_ends[rows] = np.where(salted | gone, starts, id_lines) + len(b"\r\n")
        erased[rows] = gone
        ids[rows] = id_lines + len(_ID)
    return fields_ends, erased, ids


def _fields(data: bytes, entries: Entries, starts: Ints, heads: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """Where each key begins and ends, and where the tag lines that follow it end.

    The key's line is the first of the fields. Behind the tags comes another line, or the trailer.
    """
    keys, key_ends, tags_ends = heads.copy(), heads.copy(), heads.copy()
    has_fields = heads < ends
    expect(has_fields | (entries["key_offset"] | entries["key_length"] | entries["tags_length"] == 0))
    rows = np.flatnonzero(has_fields)
    if len(rows):
        heads, ends, entries = heads[rows], ends[rows], entries[rows]
        has_key = entries["key_offset"] != 0
        expect(has_key == has(data, heads, _KEY))
        expect((entries["key_length"] != 0) == has_key)
        keys[rows] = np.where(has_key, heads + len(_KEY), heads)
        key_ends[rows] = keys[rows] + entries["key_length"]
        expect((starts[rows] + entries["key_offset"] == keys[rows]) | ~has_key)
        key_line_ends = key_ends[rows] + 2
        expect(~has_key | (has(data, key_ends[rows], b"\r\n") & (key_line_ends <= ends)))
        tags_ends[rows] = _tags_ends(data, entries["tags_length"], np.where(has_key, key_line_ends, heads), ends)
    return keys, key_ends, tags_ends


def _tags_ends(data: bytes, lengths: Ints, tags: Ints, ends: Ints) -> Ints:
    found = tags + lengths
    has_tags = lengths != 0
    expect(found <= ends)
    expect(~has_tags | (has(data, tags, _TAG) & has(data, found - 2, b"\r\n")))
    expect(~(has(data, found, _TAG) & (found < ends)))
    return found
