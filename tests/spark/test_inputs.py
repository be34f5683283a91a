"""Which buffers and segments a path means."""

import os
import shutil
from pathlib import Path

import pytest

import hbuf
from hbuf.errors import NotFound, UsageError
from hbuf.spark.inputs import Input, find_inputs, local_path

from .reading import error_of, plan, read, seqs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two tenants, the second with two buffers and one of hbuf's own. Four messages each, two a segment."""
    for name in ("acme/buffers/orders", "beta/buffers/orders", "beta/buffers/bills", "beta/buffers/internal"):
        path = tmp_path / "tenants" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hbuf.create(path, segment_messages="2").append_many([b"%d" % n for n in range(4)])
    path.rename(path.with_name("_internal"))
    return tmp_path


def found(*paths: Path | str) -> list[str]:
    """The buffers by their last names, with the first numbers of segments where not all are meant."""
    inputs = find_inputs([str(path) for path in paths])
    assert len({each.path for each in inputs}) == len(inputs)
    return [_shown(each) for each in inputs]


def _shown(each: Input) -> str:
    tenant, name = each.path.split("/")[-3], each.path.split("/")[-1]
    return f"{tenant}/{name}" + (f" {sorted(each.segments)}" if each.segments is not None else "")


def test_a_buffer(root: Path) -> None:
    assert found(root / "tenants/acme/buffers/orders") == ["acme/orders"]
    assert found(f"{root}/tenants/acme/buffers/orders/") == ["acme/orders"]
    assert found(root / "tenants/acme/buffers/orders/segments") == ["acme/orders"]
    assert seqs(root / "tenants/acme/buffers/orders") == [1, 2, 3, 4]


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_paths_with_a_scheme(root: Path, scheme: str) -> None:
    assert found(f"{scheme}{root}/tenants/acme/buffers/orders") == ["acme/orders"]
    assert found(f"{scheme}{root}/tenants/*/buffers/orders") == ["acme/orders", "beta/orders"]
    assert local_path("/a/b") == "/a/b"


@pytest.mark.parametrize("url", ["s3a://bucket/orders", "hdfs://host/orders", "https://host/b/orders"])
def test_another_scheme_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is a URL"):
        find_inputs([url])
    assert error_of(url).startswith(f"hbuf: {url}: is a URL")


def test_a_segment_and_a_glob_over_segments(root: Path) -> None:
    orders = root / "tenants/acme/buffers/orders/segments"
    assert found(orders / "00000000000000000003.http") == ["acme/orders [3]"]
    assert found(orders / "*.http") == ["acme/orders [1, 3]"]
    assert found(orders / "*") == ["acme/orders [1, 3]"]  # indexes are no segments
    assert found(root / "tenants/*/buffers/orders/segments/*3.http*") == ["acme/orders [3]", "beta/orders [3]"]
    assert seqs(orders / "*3.http") == [3, 4]
    with pytest.raises(UsageError, match="is neither a buffer nor a segment"):
        found(orders / "00000000000000000003.idx")


def test_a_segment_that_is_named_and_compressed_since(root: Path) -> None:
    from hbuf.ops.compress import compress

    orders = root / "tenants/acme/buffers/orders"
    assert compress(str(orders), timeout_seconds=20)
    assert found(orders / "segments/*.http*") == ["acme/orders [1, 3]"]
    assert seqs(orders / "segments/*.http*") == [1, 2, 3, 4]


def test_a_glob_over_buffers_names_also_what_is_internal(root: Path) -> None:
    assert found(root / "tenants/beta/buffers/*") == ["beta/_internal", "beta/bills", "beta/orders"]
    assert found(root / "tenants/**/orders") == ["acme/orders", "beta/orders"]


def test_a_directory_of_buffers_leaves_out_what_is_internal(root: Path) -> None:
    assert found(root / "tenants/beta") == ["beta/bills", "beta/orders"]
    assert found(root) == ["acme/orders", "beta/bills", "beta/orders"]
    assert found(root / "tenants/beta/buffers/_internal") == ["beta/_internal"]
    assert [(row["tenant"], row["buffer"], row["seq"]) for row in read(root)] == [
        (*name, seq) for name in (("acme", "orders"), ("beta", "bills"), ("beta", "orders")) for seq in range(1, 5)
    ]


def test_alternatives_in_braces(root: Path) -> None:
    assert found(root / "tenants/beta/buffers/{bills,orders}") == ["beta/bills", "beta/orders"]
    assert found(root / "tenants/{acme,beta}/buffers/{orders,nothing}") == ["acme/orders", "beta/orders"]
    assert found(root / "tenants/{acme,bet*}/buffers/orders") == ["acme/orders", "beta/orders"]


def test_what_is_there_by_name_is_no_glob(root: Path) -> None:
    odd = root / "copy [1] {a,b}/buffers/orders"
    shutil.copytree(root / "tenants/acme/buffers/orders", odd)
    assert [each.path for each in find_inputs([str(odd)])] == [str(odd)]
    with pytest.raises(NotFound):
        find_inputs([str(odd.with_name("orders*x"))])


def test_links_to_a_buffer_count_once(root: Path) -> None:
    topic = root / "topic"
    topic.mkdir()
    os.symlink(root / "tenants/acme/buffers/orders", topic / "first")
    os.symlink(root / "tenants/acme/buffers/orders", topic / "second")
    os.symlink(root / "tenants/beta/buffers/bills", topic / "third")
    assert found(topic) == found(topic / "*") == ["acme/orders", "beta/bills"]
    assert found(topic / "first") == ["acme/orders"]
    assert len(read(topic)) == 8


def test_a_list_of_paths_reads_what_is_named_twice_once(root: Path) -> None:
    orders = root / "tenants/acme/buffers/orders"
    assert found(orders, root / "tenants/beta/buffers/bills", orders) == ["acme/orders", "beta/bills"]
    assert found(orders / "segments/*1.http", orders) == ["acme/orders"]
    assert found(orders / "segments/*1.http", orders / "segments/*3.http") == ["acme/orders [1, 3]"]
    assert len(read(orders, root / "tenants/acme")) == 4


def test_segments_outside_a_buffer(root: Path) -> None:
    loose = root / "loose"
    loose.mkdir()
    shutil.copy(root / "tenants/acme/buffers/orders/segments/00000000000000000003.http", loose)
    [whole] = find_inputs([str(loose)])
    assert whole == Input(str(loose), loose=True)
    [one] = find_inputs([f"{loose}/*.http"])
    assert one == Input(str(loose), loose=True, segments=frozenset([3]))
    assert [(row["tenant"], row["buffer"], row["seq"]) for row in read(loose)] == [
        ("default", "orders", 3),
        ("default", "orders", 4),
    ]


def test_where_there_is_nothing(root: Path) -> None:
    (root / "empty").mkdir()
    for path, reason in [
        (root / "nothing", "there is no such buffer"),
        (root / "empty", "there is no buffer and no segment"),
        (root / "tenants/*/nothing", "there is no buffer and no segment"),
        (root / "tenants/{x,y}", "there is no buffer and no segment"),
    ]:
        with pytest.raises(NotFound, match=reason):
            find_inputs([str(path)])
        assert error_of(path) == f"hbuf: {path}: {reason}"


def test_an_empty_buffer_has_no_partitions(tmp_path: Path) -> None:
    hbuf.create(tmp_path / "orders").close()
    assert plan(tmp_path / "orders") == []


def test_small_segments_are_read_together_and_large_ones_in_parts(tmp_path: Path) -> None:
    hbuf.create(tmp_path / "orders", segment_messages="10").append_many([b"x" * 1000] * 95)
    [everything] = plan(tmp_path / "orders")
    assert [(each.start, each.end) for each in everything.ranges][:2] == [(1, 11), (11, 21)]
    small = plan(tmp_path / "orders", splitBytes="4000")
    assert len(small) > 20
    ranges = [each for part in small for each in part.ranges]
    assert [each.start for each in ranges[1:]] == [each.end for each in ranges[:-1]]
    assert (ranges[0].start, ranges[-1].end) == (1, 96)
    assert seqs(tmp_path / "orders", splitBytes="4000") == list(range(1, 96))
    for split in (9_000, 20_000, 30_000, 60_000):
        sizes = [sum(each.bytes for each in part.ranges) for part in plan(tmp_path / "orders", splitBytes=str(split))]
        assert max(sizes) <= split * 9 / 8 + 2_000, sizes  # a message more, and what is not worth cutting for
        assert max(sizes) - min(sizes) < max(sizes) / 2, sizes
