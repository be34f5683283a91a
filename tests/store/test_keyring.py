"""Key files: who may read them, where they may lie, what a name means, and that none is ever overwritten."""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hbuf.errors import CannotCreate, Damaged, HbufError, NewerFormat, NotAllowed, NotFound, StorageFailed, UsageError
from hbuf.format.keys import KeyFile, PublicKey, encode_key_file, encode_public, new_key_file, public_key
from hbuf.ops.create import create
from hbuf.store.keyring import (
    MAX_FILE_BYTES,
    check_key_name,
    create_key,
    create_public,
    key_files,
    key_path,
    load_any,
    load_key,
    load_public,
    public_path,
    save_key,
)

SOMEBODY = 12345
KEY = new_key_file("sign", bytes(range(32)))
OTHER = new_key_file("sign", bytes(range(32, 64)))
UUID = "2f6d1f0e-7a2b-4c56-9d3e-0123456789ab"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The key directory, which nobody has made yet."""
    return tmp_path / "config" / "keys"


@pytest.fixture
def audit(keys: Path) -> Path:
    create_key(keys / "audit.key", KEY)
    return keys / "audit.key"


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    create(str(tmp_path / "orders"))
    return tmp_path / "orders"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Who may read them


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777], ids=oct)
def test_key_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        create_key(tmp_path / "audit.key", KEY)
        made = mode_of(tmp_path / "audit.key")
        save_key(tmp_path / "audit.key", OTHER)
        create_public(tmp_path / "friend.pub", public_key(KEY))
    finally:
        os.umask(before)
    assert (made, mode_of(tmp_path / "audit.key"), mode_of(tmp_path / "friend.pub")) == (0o600, 0o600, 0o644)
    assert load_key(tmp_path / "audit.key") == OTHER


def test_key_directory_is_for_its_owner_alone_and_what_is_above_it_is_not(keys: Path) -> None:
    before = os.umask(0o022)
    try:
        create_key(keys / "audit.key", KEY)
    finally:
        os.umask(before)
    assert (mode_of(keys), mode_of(keys.parent)) == (0o700, 0o755)


def test_key_directory_that_is_there_keeps_its_mode(keys: Path) -> None:
    keys.mkdir(parents=True)
    keys.chmod(0o750)
    create_key(keys / "audit.key", KEY)
    assert mode_of(keys) == 0o750


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o666, 0o644], ids=oct)
def test_key_that_others_can_read_or_write_is_refused(audit: Path, mode: int) -> None:
    audit.chmod(mode)
    for load in (load_key, load_any):
        with pytest.raises(NotAllowed) as caught:
            load(audit)
        assert caught.value.exit_code == 77
        assert caught.value.hint == f"chmod 600 {audit}"
    with pytest.raises(NotAllowed):
        load_public("audit", audit.parent)
    audit.chmod(0o400)
    assert load_key(audit) == KEY


def test_key_under_another_file_name_is_refused_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "audit.pub"
    for data in (encode_key_file(KEY), encode_key_file(KEY)[:-1]):
        file.write_bytes(data)
        file.chmod(0o644)
        with pytest.raises(NotAllowed):
            load_any(file)


def test_link_to_a_key_that_others_can_read_is_refused(audit: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.key"
    link.symlink_to(audit)
    assert load_key(link) == KEY
    audit.chmod(0o644)
    with pytest.raises(NotAllowed):
        load_key(link)


@needs_root
def test_key_that_belongs_to_somebody_else_is_refused(audit: Path) -> None:
    os.chown(audit, SOMEBODY, -1)
    with pytest.raises(NotAllowed, match="belongs to somebody else"):
        load_key(audit)


@needs_root
def test_file_that_somebody_else_put_where_a_key_is_written_gets_no_secret(audit: Path) -> None:
    """It may be open there."""
    waiting = audit.with_name(".new-audit.key")
    waiting.touch()
    os.chown(waiting, SOMEBODY, -1)
    with pytest.raises(NotAllowed, match="is in the way"):
        save_key(audit, OTHER)
    assert waiting.read_bytes() == b""
    assert load_key(audit) == KEY


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_link_where_a_key_is_written_is_not_written_through(
    audit: Path, tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"mine")
    link(audit.with_name(".new-audit.key"), elsewhere)
    with pytest.raises((NotAllowed, StorageFailed)):
        save_key(audit, OTHER)
    assert elsewhere.read_bytes() == b"mine"
    assert load_key(audit) == KEY


# Where they may lie


def test_key_inside_a_buffer_is_neither_made_nor_read(orders: Path) -> None:
    for place in (orders, orders / "segments", orders / "keys", orders / "deep" / "keys"):
        for make in (create_key, save_key):
            with pytest.raises(UsageError, match="is inside the buffer"):
                make(place / "audit.key", KEY)
        with pytest.raises(UsageError):
            create_public(place / "audit.pub", public_key(KEY))
        place.mkdir(parents=True, exist_ok=True)
        copied = place / "audit.key"
        copied.write_bytes(encode_key_file(KEY))
        copied.chmod(0o600)
        for load in (load_key, load_any):
            with pytest.raises(UsageError, match="is inside the buffer") as caught:
                load(copied)
            assert caught.value.exit_code == 2
        copied.unlink()


def test_nothing_is_left_in_a_buffer_that_a_key_was_not_made_in(orders: Path) -> None:
    before = sorted(orders.rglob("*"))
    with pytest.raises(UsageError):
        create_key(orders / "keys" / "audit.key", KEY)
    assert sorted(orders.rglob("*")) == before


def test_link_that_leads_into_a_buffer_is_refused(orders: Path, tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    directory.symlink_to(orders)
    with pytest.raises(UsageError, match="is inside the buffer"):
        create_key(directory / "audit.key", KEY)
    file = tmp_path / "audit.key"
    file.symlink_to(orders / "audit.key")
    for make in (create_key, save_key):
        with pytest.raises(UsageError, match="is inside the buffer"):
            make(file, KEY)
    (orders / "audit.key").write_bytes(encode_key_file(KEY))
    (orders / "audit.key").chmod(0o600)
    with pytest.raises(UsageError, match="is inside the buffer"):
        load_key(file)


def test_link_in_a_buffer_that_leads_out_of_it_is_taken(orders: Path, audit: Path) -> None:
    """A copy of the buffer has the link, and not the key."""
    (orders / "audit.key").symlink_to(audit)
    assert load_key(orders / "audit.key") == KEY


def test_key_that_was_moved_into_a_buffer_is_refused(tmp_path: Path) -> None:
    create(str(tmp_path / "orders"))
    create_key(tmp_path / "keys" / "audit.key", KEY)
    (tmp_path / "keys").rename(tmp_path / "orders" / "keys")
    with pytest.raises(UsageError, match="is inside the buffer"):
        load_key(tmp_path / "orders" / "keys" / "audit.key")


# Names and files


@pytest.mark.parametrize("name", ["a", "0", "audit", "web1.prod_2-b", "a.key", "a..b", "x" * 128])
def test_names_that_keys_can_have(name: str) -> None:
    assert check_key_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "-a", "_a", "A", "ä", "a b", "a/b", "../a", "a\n", "x" * 129])
def test_names_that_keys_cannot_have(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_key_name(name)
    assert len(name) < 4 or name not in caught.value.message, "it may be a secret"


def test_name_is_looked_for_in_the_key_directory_before_where_somebody_works(
    audit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = audit.parent
    monkeypatch.chdir(tmp_path)
    for name in ("audit", "other", "file.key"):
        Path(name).touch()
    assert key_path("audit", keys) == audit
    assert key_path("./audit", keys) == Path("audit")
    assert key_path("other", keys) == Path("other")
    assert key_path("file.key", keys) == Path("file.key")
    assert key_path("missing", keys) == keys / "missing.key"
    assert key_path("missing/audit", keys) == Path("missing/audit")
    assert key_path(str(tmp_path / "audit"), keys) == tmp_path / "audit"


def test_what_is_neither_a_name_nor_a_file_is_refused_and_not_repeated(keys: Path) -> None:
    for given in ("", "Audit", "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A", encode_key_file(KEY).decode()):
        for find in (key_path, public_path):
            with pytest.raises(UsageError) as caught:
                find(given, keys)
            assert not given or given not in f"{caught.value} {caught.value.hint}"


def test_name_stands_for_a_public_key_only_where_one_is_enough(keys: Path) -> None:
    create_public(keys / "friend.pub", public_key(OTHER))
    assert public_path("friend", keys) == keys / "friend.pub"
    assert key_path("friend", keys) == keys / "friend.key"
    with pytest.raises(NotFound):
        load_key(key_path("friend", keys))


def test_public_key_is_taken_as_text_as_a_name_and_as_a_file(audit: Path) -> None:
    keys = audit.parent
    create_public(keys / "friend.pub", public_key(OTHER))
    assert load_public(encode_public(public_key(OTHER)), keys) == public_key(OTHER)
    assert load_public("friend", keys) == public_key(OTHER)
    assert load_public(str(keys / "friend.pub"), keys) == public_key(OTHER)
    assert load_public("audit", keys) == public_key(KEY)
    with pytest.raises(UsageError):
        load_public("hbuf-sign-1 short", keys)


def test_public_key_of_a_key_that_serves_is_the_first_of_its_line(audit: Path) -> None:
    save_key(audit, replace(OTHER, buffer=UUID, first=KEY.public))
    assert load_public("audit", audit.parent) == PublicKey("sign", KEY.public)


def test_key_directory_lists_keys_by_name_and_nothing_else(keys: Path) -> None:
    assert key_files(keys) == []
    for name in ("b", "a", "a-b"):
        create_key(keys / f"{name}.key", KEY)
    create_public(keys / "a0.pub", public_key(OTHER))
    for file in (".new-c.key", "notes.txt", "Upper.key", "key", ".key", "d.key~"):
        (keys / file).touch()
    assert [path.name for path in key_files(keys)] == ["a.key", "a-b.key", "a0.pub", "b.key"]


# What cannot be read


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", Damaged),
        (encode_key_file(KEY)[:-1], Damaged),
        (encode_public(public_key(KEY)).encode() + b"\n", Damaged),
        (b"hbuf secret key, version 2\n", NewerFormat),
        (bytes(MAX_FILE_BYTES + 1), UsageError),
    ],
    ids=["empty", "cut off", "public", "newer", "too long"],
)
def test_file_that_holds_no_key_is_named_and_stays_as_it_is(keys: Path, data: bytes, error: type[HbufError]) -> None:
    keys.mkdir(parents=True)
    file = keys / "audit.key"
    file.write_bytes(data)
    file.chmod(0o600)
    for load in (load_key, load_any):
        with pytest.raises(error) as caught:
            load(file)
        assert caught.value.message.startswith(f"{file}: ")
    assert file.read_bytes() == data


def test_missing_file_is_not_found(keys: Path) -> None:
    for missing in (keys / "audit.key", keys / "deep" / "audit.key"):
        with pytest.raises(NotFound, match="there is no such key"):
            load_key(missing)


def test_directory_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(HbufError) as caught:
        load_any(tmp_path)
    assert caught.value.message == f"{tmp_path}: Is a directory"


# Nothing is overwritten


@pytest.mark.parametrize("taken", [b"", b"something else", encode_key_file(OTHER)], ids=["empty", "other", "key"])
def test_key_is_never_made_over_a_file(keys: Path, taken: bytes) -> None:
    keys.mkdir(parents=True)
    for file in ("audit.key", "audit.pub"):
        (keys / file).write_bytes(taken)
    with pytest.raises(CannotCreate) as caught:
        create_key(keys / "audit.key", KEY)
    assert caught.value.exit_code == 73
    with pytest.raises(CannotCreate):
        create_public(keys / "audit.pub", public_key(KEY))
    assert {file.name: file.read_bytes() for file in keys.iterdir()} == {"audit.key": taken, "audit.pub": taken}


def test_link_to_a_key_stays_when_it_is_saved(audit: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.key"
    link.symlink_to(audit)
    save_key(link, OTHER)
    assert link.is_symlink()
    assert load_key(audit) == OTHER
    with pytest.raises(CannotCreate):
        create_key(link, KEY)


def test_key_that_is_saved_takes_the_place_of_the_one_before(audit: Path) -> None:
    longer = replace(KEY, buffer=UUID, first=KEY.public, put=b"0" * 64, next_secret=OTHER.secret)
    states: list[KeyFile] = [longer, replace(OTHER, buffer=UUID, first=KEY.public), longer, KEY]
    for state in states:
        save_key(audit, state)
        assert load_key(audit) == state
        assert os.listdir(audit.parent) == ["audit.key"]
