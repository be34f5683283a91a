"""Attacks on what erasing, retiring and compressing leave: erased messages, kept keys, frames and their table."""

from __future__ import annotations

import shutil
from pathlib import Path

from hbuf.format.seekable import encode_table, walk_frames

from .buffers import COMPRESSED, ENCRYPTED, PLAIN, SIGNED, UNSIGNED, Target, compressed, encode_frame, make_target
from .registry import attack


@attack("an erased message is brought back", aged=True)
def bring_back(target: Target) -> None:
    """As somebody can who has an old copy."""
    for file in (target.root / "unerased" / "segments").glob("*7.*"):
        shutil.copy(file, target.path / "segments")


def _kept_puts(target: Target) -> list[bytes]:
    parts = (target.path / "keys.http").read_bytes().split(b"PUT /b/")
    assert len(parts) == 3
    return [b"PUT /b/" + part for part in parts[1:]]


@attack("a PUT in keys.http is changed", aged=True)
def change_kept_put(target: Target) -> None:
    first, second = _kept_puts(target)
    changed = second.replace(b'"max_message_bytes": 16777216', b'"max_message_bytes": 99999999')
    assert changed != second
    (target.path / "keys.http").write_bytes(first + changed)


@attack("a PUT is removed from keys.http", unnoticed=UNSIGNED, aged=True)
def remove_kept_put(target: Target) -> None:
    """Without signatures it is of no use to anybody."""
    _, second = _kept_puts(target)
    (target.path / "keys.http").write_bytes(second)


@attack("keys.http is removed", unnoticed=UNSIGNED, aged=True)
def remove_kept_puts(target: Target) -> None:
    (target.path / "keys.http").unlink()


def _frames(file: Path) -> list[tuple[bytes, int]]:
    """Each as it is stored, and how many bytes it holds."""
    data = file.read_bytes()
    return [(data[frame.at : frame.at + frame.size], frame.length) for frame in walk_frames(data)]


def _write_frames(file: Path, frames: list[tuple[bytes, int]]) -> None:
    table = encode_table([(len(frame), length) for frame, length in frames])
    file.write_bytes(b"".join(frame for frame, _ in frames) + table)


@attack("a frame of a compressed segment is replaced by that of another buffer", kinds=[COMPRESSED])
def replace_frame(target: Target) -> None:
    other = make_target(target.root / "other", COMPRESSED)
    target.finish()
    other.finish()
    [mine, theirs] = [_frames(each.compressed_segments[1]) for each in (target, other)]
    assert len(mine) > 1
    _write_frames(target.compressed_segments[1], [mine[0], theirs[1], *mine[2:]])


@attack("a frame of a compressed segment is made anew with other content", kinds=[COMPRESSED])
def change_frame(target: Target) -> None:
    body = target.segment(4).read_bytes()
    at = body.index(b"five") // 1024
    content = body[at * 1024 : (at + 1) * 1024].replace(b"five", b"FIVE")
    target.finish()
    frames = _frames(target.compressed_segments[1])
    frames[at] = (encode_frame(content), len(content))
    _write_frames(target.compressed_segments[1], frames)


@attack("the seek table of a compressed segment is changed", kinds=[COMPRESSED])
def change_table(target: Target) -> None:
    target.finish()
    file = target.compressed_segments[1]
    frames = _frames(file)
    sizes = [(len(frame), length) for frame, length in frames]
    sizes[0], sizes[1] = (sizes[0][0] - 1, sizes[0][1]), (sizes[1][0] + 1, sizes[1][1])
    file.write_bytes(b"".join(frame for frame, _ in frames) + encode_table(sizes))


@attack("bytes are put behind the seek table", kinds=[COMPRESSED])
def put_bytes_behind_table(target: Target) -> None:
    target.finish()
    with target.compressed_segments[1].open("ab") as file:
        file.write(b"anything")


@attack("bytes are put between two compressed frames", kinds=[COMPRESSED])
def put_bytes_between_frames(target: Target) -> None:
    """A frame that decoders skip, of which the table says that it belongs to the one before."""
    target.finish()
    file = target.compressed_segments[1]
    first, *others = _frames(file)
    skipped = bytes.fromhex("502a4d18") + (4).to_bytes(4, "little") + b"boo!"
    _write_frames(file, [(first[0] + skipped, first[1]), *others])


@attack(
    "a compressed copy of other content lies beside the plain segment",
    kinds=[PLAIN, SIGNED, ENCRYPTED],
    unnoticed=[PLAIN, SIGNED, ENCRYPTED],
)
def put_other_copy_beside(target: Target) -> None:
    """The plain segment counts: the other is read by nobody, is noted, and is made anew or removed."""
    file = target.segment(4)
    copy = file.read_bytes().replace(b"x-hbuf-key: user-17", b"x-hbuf-key: user-18")
    file.with_name(file.name + ".zst").write_bytes(compressed(copy))
