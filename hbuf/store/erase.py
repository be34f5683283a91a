"""Erasing messages: the content goes, the chain stays, and a DELETE in the log says by whom and why.

Whole requests at a time: all that is asked for is looked at before anything is written, and each segment is synced a
few times, however many of its messages go.
"""

from __future__ import annotations

from collections.abc import Sequence

from hbuf.errors import Damaged, DiskFull, NotAllowed, NotFound
from hbuf.format.deletes import Erasure, encode_delete
from hbuf.format.erasing import layout_of_record
from hbuf.format.remains import erased_of
from hbuf.store.deletes import erasures
from hbuf.store.directory import BufferDirectory
from hbuf.store.erasing import Target, by_segment, overwrite_all
from hbuf.store.erasing_file import write_erasing
from hbuf.store.located import SegmentMessages
from hbuf.store.remains import Quarantined
from hbuf.store.writer import Writer

# What is erased under one lock: enough that syncs cost little, few enough that others get their turn.
BATCH_MESSAGES = 50_000


def erase(
    writer: Writer, numbers: Sequence[int], by: bytes, reason: bytes, *, again: bool = False, named: bool = True
) -> int:
    """Erases the messages of these numbers, which ascend. Returns how many were erased: those that were there.

    With `again` their DELETEs may be in the log already, and then they get no other. A number that was retired
    meanwhile is refused where somebody `named` it, and else passed over.
    """
    directory = writer.directory
    erased = 0
    for start in range(0, len(numbers), BATCH_MESSAGES):
        part = numbers[start : start + BATCH_MESSAGES]
        with writer.locked() as tail:
            if not tail.opening.settings.erasable:
                raise not_erasable(directory)
            refuse_unfinished(directory)
            quarantined = Quarantined(directory)
            targets, erased_now = _find_targets(directory, part, quarantined, named=named)
            if not erased_now:
                continue
            said = erasures(directory, part[0]) if again else {}
            to_say = [what for what in erased_now if said.get(what.seq) != what]
            write_erasing(directory.erasing, [what.seq for what in erased_now])
            writer.append_deletes([encode_delete(what, by, reason) for what in to_say])
            overwrite_all(directory, targets, quarantined)
        writer.seal_rolled()
        erased += len(erased_now)
    return erased


def refuse_unfinished(directory: BufferDirectory) -> None:
    """An erase that could not be finished yet keeps its list: no other may take its place."""
    if directory.erasing.exists():
        raise DiskFull(f"{directory.shown}: an erase was interrupted, and there is no room to finish it")


def not_erasable(directory: BufferDirectory) -> NotAllowed:
    return NotAllowed(f"{directory.shown}: nothing can be erased here: it was made with erasable=false")


def not_there(directory: BufferDirectory, seq: int) -> NotFound:
    return NotFound(f"{directory.shown}: message {seq} is not there")


def no_message(directory: BufferDirectory, seq: int) -> NotAllowed:
    return NotAllowed(f"{directory.shown}: {seq} says what was erased or retired, and cannot be erased itself")


def _find_targets(
    directory: BufferDirectory, numbers: Sequence[int], quarantined: Quarantined, *, named: bool
) -> tuple[dict[int, list[Target]], list[Erasure]]:
    """Where the messages are, by segment, and what each DELETE is to say. What is gone already is left out."""
    targets: dict[int, list[Target]] = {}
    found: list[Erasure] = []
    for first, group in by_segment(directory, numbers):
        if first is None and not named:
            continue  # retired meanwhile
        if first is None:
            raise not_there(directory, group[0])
        with SegmentMessages(directory, first) as messages:
            for seq in group:
                located = messages.find(seq)
                if located is None and messages.lists(seq):
                    raise Damaged(f"{directory.segment_shown(first)}: message {seq} is damaged, and cannot be erased")
                if located is None:
                    raise not_there(directory, seq)
                if located.record.method != b"POST":
                    raise no_message(directory, seq)
                if located.record.salted == b"gone":
                    continue
                commit = messages.commitment_of(located)
                messages.refuse_damaged(located, commit)
                quarantined.look_for(erased_of(located.data, located.record))
                layout = layout_of_record(located.record)
                targets.setdefault(first, []).append(Target(seq, located.offset, layout, commit))
                found.append(Erasure(seq, located.record.id, commit))
    return targets, found
