"""Where something is wrong nothing is retired, so that nothing is covered up; what was interrupted is finished."""

from pathlib import Path

import pytest

from hbuf.errors import Damaged
from hbuf.format.deletes import Retirement, encode_delete
from hbuf.ops.set import set_settings
from hbuf.ops.verify import verify
from hbuf.store import fsops

from .retiring import Retiring


def retired(path: Path) -> int:
    report = verify(str(path), jobs=1)
    assert report.ok, [str(fault) for fault in report.faults]
    return report.verdicts["completeness"]["retired"]


def test_buffer_whose_start_is_missing_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(9)
    buffer.segment(1).unlink()
    before = buffer.files()
    with pytest.raises(Damaged, match="begins with message 3, and nothing says why"):
        buffer.retire()
    assert buffer.files() == before


def test_segment_that_is_missing_in_the_middle_is_not_covered_up(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(9)
    buffer.segment(3).unlink()
    with pytest.raises(Damaged, match="does not follow the segment before"):
        buffer.retire()
    assert buffer.firsts == [1, 5, 7, 9]


def test_segment_whose_opening_is_damaged_is_not_retired(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(9)
    buffer.segment(3).write_bytes(buffer.segment(3).read_bytes().replace(b"PUT ", b"PAT ", 1))
    with pytest.raises(Damaged):
        buffer.retire()
    assert buffer.firsts == [1, 3, 5, 7, 9]


def test_delete_that_names_another_id_is_refused(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(9)
    with buffer.writer() as writer, writer.locked():
        writer.append_deletes([encode_delete(Retirement(4, b"f" * 64), b"me", b"no rule")])
    with pytest.raises(Damaged, match="does not end with message 4"):
        buffer.retire()
    assert buffer.firsts[0] == 1


def test_retirement_that_was_said_is_finished_although_no_rule_asks_for_it(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(9)
    with pytest.MonkeyPatch.context() as patch:

        def fail(path: Path) -> None:
            raise OSError(5, "cannot be unlinked")

        patch.setattr(fsops, "unlink", fail)
        with pytest.raises(Exception, match="orders"):
            buffer.retire()
    set_settings(str(buffer.path), {"retention_messages": "none"}, timeout_seconds=20)
    report = verify(str(buffer.path), jobs=1)
    assert report.ok
    assert [note for note in report.notes if "messages 1 to 6 are to be retired" in note]
    plan = buffer.retire()
    assert (plan.segments, plan.reason) == ((1, 3, 5), "")
    assert retired(buffer.path) == 6


def test_index_of_a_segment_that_is_gone_is_swept_up(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(9)
    buffer.retire()
    orphans = [buffer.segment(1).with_suffix(suffix) for suffix in (".idx", ".tags")]
    stranger = buffer.segment(1).with_suffix(".txt")
    for file in (*orphans, stranger):
        file.write_bytes(b"left")
    assert buffer.retire().segments == ()
    assert not any(file.exists() for file in orphans)
    assert stranger.exists()
