"""A buffer with a compressed segment of many small frames, and where its messages lie in them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hbuf.format.seekable import Frame
from hbuf.ops.compress import compress
from hbuf.ops.create import create
from hbuf.ops.report import PlacedFault
from hbuf.ops.set import set_settings
from hbuf.ops.verify import verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import opened_index
from hbuf.store.segment_file import open_compressed

from .checking import Stored, append_to, check_verifies

FRAME_BYTES = 4096
# Most are shorter than a frame, two reach over several.
BODIES = [b"body %d " % n + b"%d " % (n * n) * (n % 50) for n in range(60)]
BODIES[20] = b"long " * 3000
BODIES[40] = b"longer " * 4000
FURTHER_SEQ = len(BODIES) + 1


class CompressedBuffer:
    """The messages of BODIES are in its first segment, which is compressed; one more is in the newest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        create(str(path), {"hash": "sha256"})
        self.stored = append_to(path, *BODIES)
        set_settings(str(path), {"segment_messages": "1000"}, timeout_seconds=20)
        self.plain = self.directory.segment(1).read_bytes()
        assert compress(str(path), timeout_seconds=20)
        self.stored += append_to(path, b"in the newest")
        assert not self.directory.segment(1).exists()
        check_verifies(path, FURTHER_SEQ)

    @property
    def directory(self) -> BufferDirectory:
        return BufferDirectory(self.path)

    @property
    def file(self) -> Path:
        return self.directory.compressed(1)

    def frames(self) -> list[Frame]:
        segment = open_compressed(self.directory, 1)
        segment.close()
        return segment.frames

    def without(self, frames: Iterable[Frame]) -> list[Stored]:
        """The messages that have no byte in any of these frames."""
        holes = [(frame.start, frame.end) for frame in frames]
        with opened_index(self.directory.index(1), 1) as listed:
            assert listed is not None
            spans = [(entry.offset, entry.end) for entry in map(listed.entry, range(listed.count))]
        lost = {
            seq
            for seq, (start, end) in enumerate(spans, 1)
            if any(start < hole_end and hole_start < end for hole_start, hole_end in holes)
        }
        return [stored for stored in self.stored if stored.seq not in lost]

    def change(self, at: int, bit: int = 0) -> None:
        data = bytearray(self.file.read_bytes())
        data[at] ^= 1 << bit
        self.file.write_bytes(data)

    def faults(self) -> list[PlacedFault]:
        report = verify(str(self.path), jobs=1)
        assert report.ok == (not report.faults)
        return report.faults
