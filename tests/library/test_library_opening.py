"""hbuf.open and hbuf.create: what they make, what they refuse, and what a Buffer leaves behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import hbuf
from hbuf.errors import CannotCreate, Closed, HbufError, NotAllowed, NotFound, Paused, UsageError
from hbuf.ops.close import close, reopen
from hbuf.ops.pause import pause, resume


def open_files() -> set[str]:
    """What this process has open, by name."""
    links = (Path("/proc/self/fd") / fd for fd in os.listdir("/proc/self/fd"))
    return {os.readlink(link) for link in links if link.is_symlink()}


def test_names_of_the_package_are_those_of_the_library() -> None:
    from hbuf import library

    assert sorted(hbuf.__all__) == ["Buffer", "Draft", "Message", "Receipt", "create", "draft", "open"]
    assert all(getattr(hbuf, name) is getattr(library, name) for name in hbuf.__all__)


def test_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hbuf.nothing  # noqa: B018


def test_missing_buffer_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no such buffer") as caught:
        hbuf.open(tmp_path / "orders")
    assert caught.value.exit_code == 66
    assert not (tmp_path / "orders").exists()


def test_directory_that_is_no_buffer_is_not_found_and_the_hint_says_what_one_is(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is not a buffer") as caught:
        hbuf.open(tmp_path)
    assert caught.value.hint is not None
    assert "segments/" in caught.value.hint


def test_missing_buffer_is_made_where_that_was_asked_for_and_opened_where_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "tenants" / "acme" / "buffers" / "orders"
    with hbuf.open(path, create=True) as buffer:
        buffer.append(b"one")
    with hbuf.open(str(path), create=True) as buffer:
        assert [(message.tenant, message.buffer) for message in buffer.read()] == [("acme", "orders")]


def test_created_buffer_has_the_settings_that_were_given_as_text(tmp_path: Path) -> None:
    with hbuf.create(tmp_path / "audit", hash="sha256", erasable="false", segment_bytes="16MiB", segment_age="1d"):
        pass
    settings = json.loads((tmp_path / "audit" / "buffer.json").read_bytes())
    found = {name: settings[name] for name in ("hash", "erasable", "segment_bytes", "segment_age", "segment_messages")}
    assert found == {
        "hash": "sha256",
        "erasable": False,
        "segment_bytes": 16 * 1024**2,
        "segment_age": 86400.0,
        "segment_messages": None,
    }


def test_settings_have_the_documented_defaults(tmp_path: Path) -> None:
    hbuf.create(tmp_path / "orders").close()
    settings = json.loads((tmp_path / "orders" / "buffer.json").read_bytes())
    assert (settings["segment_messages"], settings["segment_age"]) == (None, None)
    assert (settings["segment_bytes"], settings["max_message_bytes"]) == (64 * 1024**2, 16 * 1024**2)


def test_buffer_that_is_there_cannot_be_created(tmp_path: Path) -> None:
    hbuf.create(tmp_path / "orders").close()
    with pytest.raises(CannotCreate) as caught:
        hbuf.create(tmp_path / "orders")
    assert caught.value.exit_code == 73


def test_directory_with_other_files_is_not_made_a_buffer(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "letter.txt").write_text("keep me")
    with pytest.raises(CannotCreate):
        hbuf.open(tmp_path / "orders", create=True)
    assert os.listdir(tmp_path / "orders") == ["letter.txt"]


@pytest.mark.parametrize(
    "settings", [{"segment_bytes": "lots"}, {"hash": "md5"}, {"erasable": "yes"}, {"color": "red"}, {"uuid": "1"}]
)
def test_bad_setting_is_a_usage_error_and_nothing_is_made(tmp_path: Path, settings: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        hbuf.create(tmp_path / "orders", **settings)
    assert not (tmp_path / "orders").exists()


@pytest.mark.parametrize("name", ["Orders", "-orders", ".orders", "or ders", "o" * 129])
def test_bad_name_is_a_usage_error_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        hbuf.create(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_renamed_buffer_opens_under_a_name_that_could_not_be_created(tmp_path: Path) -> None:
    hbuf.create(tmp_path / "orders").close()
    (tmp_path / "orders").rename(tmp_path / "Orders 2026")
    with hbuf.open(tmp_path / "Orders 2026", create=True) as buffer:
        buffer.append(b"one")
        assert [message.buffer for message in buffer.read()] == ["Orders 2026"]
        assert buffer.verify().ok


def test_directory_s_name_wins_over_the_name_in_the_records(tmp_path: Path) -> None:
    with hbuf.create(tmp_path / "orders") as buffer:
        buffer.append(b"one")
    (tmp_path / "orders").rename(tmp_path / "sales")
    with hbuf.open(tmp_path / "sales") as buffer:
        buffer.append(b"two")
        assert [message.buffer for message in buffer.read()] == ["sales", "sales"]
        assert buffer.verify().ok
    segment = (tmp_path / "sales" / "segments" / "00000000000000000001.http").read_bytes()
    assert (segment.count(b"POST /b/orders "), segment.count(b"POST /b/sales ")) == (1, 1)


def test_context_manager_leaves_no_file_open_also_after_an_error(tmp_path: Path) -> None:
    before = open_files()
    with pytest.raises(UsageError), hbuf.open(tmp_path / "orders", create=True) as buffer:
        buffer.append_many([b"one", hbuf.draft(b"two", key="")])
    assert open_files() == before


def test_reader_that_is_left_half_read_leaves_no_file_open(tmp_path: Path) -> None:
    before = open_files()
    with hbuf.open(tmp_path / "orders", create=True) as buffer:
        buffer.append_many([b"one", b"two"])
        messages = buffer.read()
        next(messages)
        del messages
    assert open_files() == before


def test_closing_twice_is_no_error(tmp_path: Path) -> None:
    buffer = hbuf.create(tmp_path / "orders")
    buffer.append(b"one")
    buffer.close()
    buffer.close()


def test_append_to_a_closed_buffer_is_refused_with_its_reason_and_reading_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with hbuf.create(path) as buffer:
        buffer.append(b"one")
        close(str(path), reason="year end", timeout_seconds=0)
        with pytest.raises(Closed, match="year end") as caught:
            buffer.append(b"two")
        assert (caught.value.exit_code, isinstance(caught.value, NotAllowed)) == (77, True)
        assert [message.body for message in buffer.read()] == [b"one"]
        reopen(str(path), timeout_seconds=0)
        assert buffer.append(b"two").seq == 2


def test_append_to_a_paused_buffer_waits_for_the_timeout_and_is_refused_then(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    hbuf.create(path).close()
    hold = pause(str(path), reason="moving", timeout_seconds=0)
    assert hold is not None
    os.close(hold.fd)
    with hbuf.open(path, timeout_seconds=0.05) as buffer:
        with pytest.raises(Paused, match="moving") as caught:
            buffer.append(b"one")
        assert caught.value.exit_code == 75
        resume(str(path), timeout_seconds=0)
        assert buffer.append(b"one").seq == 1


def test_every_error_of_the_library_is_one_tree(tmp_path: Path) -> None:
    with pytest.raises(HbufError) as caught:
        hbuf.open(tmp_path / "none")
    assert caught.value.message == f"{tmp_path / 'none'}: there is no such buffer"
    assert caught.value.hint is None
