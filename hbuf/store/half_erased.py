"""Reading what an erase left half done that died: until a writer finishes it, readers take such messages for erased."""

from __future__ import annotations

from hbuf.format.erasing import blank_patches, find_layout, gone_patch, id_in
from hbuf.store.directory import BufferDirectory
from hbuf.store.erasing_file import read_erasing
from hbuf.store.view import Chunk

_ANY_COMMITMENT = b"0" * 64


def taken_for_erased(directory: BufferDirectory, chunk: Chunk) -> Chunk:
    """The chunk with those of its messages as erased that cannot be read and are in `erasing`. No file is changed."""
    try:
        numbers = read_erasing(directory.erasing)
    except FileNotFoundError:
        return chunk
    data = bytearray(chunk.data)
    for i, seq in enumerate(chunk.seqs()):
        if (numbers is None or seq in numbers) and chunk.parse(i) is None:
            _erase_in(data, chunk, i, seq)
    mended = chunk._replace(data=bytes(data))
    return mended._replace(suspect=not mended.looks_whole())


def _erase_in(data: bytearray, chunk: Chunk, i: int, seq: int) -> None:
    entry = chunk.entries[i]
    start = entry.offset - chunk.base
    section = chunk.data[start : start + entry.section_length]
    record_id = id_in(section)
    layout = find_layout(section, 0, seq, record_id) if record_id else None
    if layout is not None and layout.end == entry.end - entry.offset:
        for at, patch in (gone_patch(layout, start, _ANY_COMMITMENT), *blank_patches(layout, start)):
            data[at : at + len(patch)] = patch
