from pathlib import Path

from hbuf import library

from .killed_stream import kill_and_finish
from .numbered_lines import LINES, bodies, lines_of, make_small_chunks, put_files

FILES = 16


def test_driver_and_worker_killed_at_random_moments_every_row_is_stored_once(tmp_path: Path) -> None:
    put_files(tmp_path / "in", 0, FILES)
    make_small_chunks(tmp_path / "out")
    assert set(kill_and_finish(tmp_path, [1, 2, 3], FILES * LINES)) == {"driver", "worker"}
    assert [body.rpartition(" ")[0] for body in bodies(tmp_path / "out")] == lines_of(0, FILES)
    assert library.open(tmp_path / "out").verify().ok
