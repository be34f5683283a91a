"""Tasks are alike in size, and keep all processors busy. What they read together is in `test_inputs.py`."""

import pytest

from hbuf.spark.planning import Range, task_bytes, tasks_of

MIB = 1024**2


@pytest.mark.parametrize(
    ("total", "split", "processors", "tasks"),
    [
        (0, 128, 4, 1),
        (10, 128, 4, 1),  # too little to be worth two
        (100, 128, 4, 3),
        (128, 128, 4, 4),
        (130, 128, 1, 2),
        (600, 128, 2, 6),
        (600, 128, 5, 5),
        (600, 128, 64, 18),
        (128 * 64 + 1, 128, 64, 128),
        (10, 1, 4, 12),  # whoever asks for small ones gets them
    ],
)
def test_how_many_tasks(total: int, split: int, processors: int, tasks: int) -> None:
    size = task_bytes(total * MIB, split * MIB, processors)
    assert size == max(total * MIB, 1) / tasks
    assert size <= split * MIB


def small(*lengths: int) -> list[Range]:
    """Ranges of buffers that are not there: without an index none is cut."""
    return [Range(f"/nowhere/{i}", False, 1, 1, 2, length) for i, length in enumerate(lengths)]


@pytest.mark.parametrize("processors", [1, 3])
def test_ranges_that_cannot_be_cut_are_shared_out_in_order(monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(processors)))
    ranges = small(*[700, 0, 300, 999, 1, 5000, 10, 2000] * 10)
    tasks = tasks_of(ranges, 3000)
    assert [each for task in tasks for each in task] == ranges
    assert all(tasks)
    assert len(tasks) > 20
    assert max(sum(each.bytes for each in task if each.bytes < 5000) for task in tasks) <= 2 * 3000


def test_nothing_to_read_is_no_task() -> None:
    assert tasks_of([], 100) == []
    assert len(tasks_of(small(0, 0), 100)) == 1
