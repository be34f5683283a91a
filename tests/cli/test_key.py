"""hbuf-key as a shell uses it: keys are made, shown, listed, handed out and taken in, and no secret is ever shown."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import MakeBuffer, Ran, Run, Terminal

KINDS = ["sign", "encrypt", "recovery"]
PUBLIC = "hbuf-sign-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
FINGERPRINT = hashlib.sha256(
    b"hbuf1 key\nsign\n" + bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
).hexdigest()[:16]
SECRET = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"
KEY_FILE = f"""\
hbuf secret key, version 1
kind: sign
secret: {SECRET}
public: {PUBLIC.split()[1]}
checksum: 3cbd8f530d4b65c7f38442368d67a4eb8277f2df458ba5bef109677310ce8879
""".encode()
Key = Callable[..., "Ran"]


@pytest.fixture
def key(run: Run) -> Iterator[Key]:
    """key("list"): runs hbuf-key. No secret that any file holds may be in what it writes, whatever it is asked."""
    written = [""]

    def run_key(*arguments: str | Path, stdin: bytes = b"") -> Ran:
        done = run("hbuf-key", *arguments, stdin=stdin)
        written.append(done.out.decode() + done.err)
        assert "Traceback" not in done.err
        return done

    yield run_key
    content = b"".join(file.read_bytes() for file in Path.cwd().rglob("*") if file.is_file())
    secrets = {SECRET, *re.findall(r"secret: ([\w-]{20,})", content.decode(errors="replace"))}
    assert [secret for secret in secrets if secret in "".join(written)] == []


@pytest.fixture
def known() -> Path:
    """A key file whose public key is known, for its owner alone."""
    path = Path("known.key")
    path.touch(0o600)
    path.write_bytes(KEY_FILE)
    return path


def refused(done: Ran, code: int) -> str:
    """Nothing but one line of what is wrong, and where there is a way out one of that. Returns the first."""
    assert (done.code, done.out) == (code, b""), done.err
    line, *hint = done.err.splitlines()
    assert line.startswith("hbuf-key: ")
    assert len(hint) <= 1
    assert all(each.startswith("hint: ") for each in hint)
    return line


# new


@pytest.mark.parametrize("kind", KINDS)
def test_new_key_is_made_quietly_for_its_owner_alone(key: Key, kind: str) -> None:
    assert key("new", "audit", "--kind", kind) == (0, b"", "")
    assert os.listdir("keys") == ["audit.key"]
    assert stat.S_IMODE(Path("keys/audit.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(Path("keys").stat().st_mode) == 0o700
    assert f"\nkind: {kind}\n" in Path("keys/audit.key").read_text()


def test_every_new_key_is_another(key: Key) -> None:
    for name in ("a", "b"):
        assert key("new", name, "--kind", "sign").code == 0
    assert key("export", "a").out != key("export", "b").out


def test_name_that_is_taken_is_73_and_the_key_stays(key: Key) -> None:
    key("new", "audit", "--kind", "sign")
    before = Path("keys/audit.key").read_bytes()
    line = refused(key("new", "audit", "--kind", "encrypt"), 73)
    assert line.endswith("keys/audit.key: exists already")
    assert Path("keys/audit.key").read_bytes() == before


def test_name_of_a_public_key_is_taken_too(key: Key) -> None:
    assert key("import", "friend", stdin=PUBLIC.encode()).code == 0
    refused(key("new", "friend", "--kind", "sign"), 73)
    assert os.listdir("keys") == ["friend.pub"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["new"],
        ["new", "audit"],
        ["new", "audit", "--kind"],
        ["new", "audit", "--kind", "other"],
        ["new", "audit", "--kind", "sign", "more"],
        ["new", "Audit", "--kind", "sign"],
        ["new", "../audit", "--kind", "sign"],
        ["new", "", "--kind", "sign"],
        ["new", SECRET, "--kind", "sign"],
        ["new", "audit", "--kind", "sign", "--wrong"],
        ["show"],
        ["show", ""],
        ["show", SECRET],
        ["export", KEY_FILE.decode()],
        ["import"],
        ["import", "Friend"],
        ["import", KEY_FILE.decode()],
        ["list", "more"],
        ["other"],
        [],
    ],
    ids=str,
)
def test_wrong_command_line_is_2_and_makes_nothing(key: Key, arguments: list[str]) -> None:
    refused(key(*arguments, stdin=PUBLIC.encode()), 2)
    assert not Path("keys").exists()
    assert not Path("audit.key").exists()


def test_key_directory_inside_a_buffer_is_2(key: Key, make_buffer: MakeBuffer, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = make_buffer("orders", [b"one"])
    before = sorted(orders.rglob("*"))
    Path("link").symlink_to(orders)
    for inside in ("orders", "orders/keys", "link/keys"):
        monkeypatch.setenv("HBUF_KEYS", inside)
        assert "is inside the buffer" in refused(key("new", "audit", "--kind", "sign"), 2)
        assert "is inside the buffer" in refused(key("import", "friend", stdin=PUBLIC.encode()), 2)
    assert sorted(orders.rglob("*")) == before


def test_two_who_make_one_key_get_one(run: Run) -> None:
    command = ["hbuf-key", "new", "audit", "--kind", "sign"]
    started = [run.start(*command) for _ in range(2)]
    assert sorted(process.wait(timeout=30) for process in started) == [0, 73]
    assert os.listdir("keys") == ["audit.key"]


# show, export, list


def test_show_tells_what_may_be_told(key: Key, known: Path) -> None:
    key("import", "audit", known)
    done = key("show", "audit")
    assert (done.code, done.err) == (0, "")
    assert done.lines == [
        "name:        audit",
        f"file:        {Path.cwd()}/keys/audit.key",
        "kind:        sign",
        f"fingerprint: {FINGERPRINT}",
        f"public:      {PUBLIC}",
        "holds:       secret and public key",
        "buffer:      -",
    ]


def test_show_takes_a_file_and_a_public_key(key: Key, known: Path) -> None:
    assert key("show", "./known.key").lines[:2] == ["name:        known", "file:        known.key"]
    key("import", "friend", stdin=PUBLIC.encode())
    done = key("show", "friend")
    assert done.lines[1:2] + done.lines[3:] == [
        f"file:        {Path.cwd()}/keys/friend.pub",
        f"fingerprint: {FINGERPRINT}",
        f"public:      {PUBLIC}",
        "holds:       public key only",
        "buffer:      -",
    ]


def test_key_that_serves_a_buffer_shows_which_and_exports_its_first_public_key(key: Key, run: Run) -> None:
    key("new", "audit", "--kind", "sign")
    first = key("export", "audit").out
    assert run("hbuf-append", "--sign", "audit", "orders", stdin=b"one\n") == (0, b"", "")
    uuid = json.loads(Path("orders/buffer.json").read_text())["uuid"]
    assert key("show", "audit").lines[-1] == f"buffer:      {uuid}"
    assert key("list").lines[0].split("\t")[-1] == uuid
    assert run("hbuf-append", "--sign", "audit", "orders", stdin=b"two\n").code == 0
    assert key("export", "audit").out == first


@pytest.mark.parametrize("kind", KINDS)
def test_export_is_one_line_that_can_be_imported(key: Key, kind: str) -> None:
    key("new", "mine", "--kind", kind)
    done = key("export", "mine")
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(rf"hbuf-{kind}-1 [\w-]{{43}}\n", done.out.decode())
    assert key("import", "theirs", stdin=done.out) == (0, b"", "")
    assert key("export", "theirs") == done
    assert stat.S_IMODE(Path("keys/theirs.pub").stat().st_mode) == 0o644
    assert Path("keys/theirs.pub").read_bytes() == done.out


def test_list_has_a_line_for_each_key_by_name(key: Key, known: Path) -> None:
    assert key("list") == (0, b"", "")
    key("import", "b", known)
    key("import", "a", stdin=PUBLIC.encode())
    Path("keys/.new-c.key").write_bytes(KEY_FILE)
    done = key("list")
    assert (done.code, done.err) == (0, "")
    assert done.lines == [f"a\tsign\t{FINGERPRINT}\tpublic\t-", f"b\tsign\t{FINGERPRINT}\tsecret\t-"]


def test_list_as_json_is_an_object_a_line(key: Key, known: Path) -> None:
    assert key("list", "--json") == (0, b"", "")
    key("import", "b", known)
    key("import", "a", stdin=PUBLIC.encode())
    told = {"kind": "sign", "fingerprint": FINGERPRINT, "public": PUBLIC, "buffer": None}
    keys = Path.cwd() / "keys"
    assert [json.loads(line) for line in key("list", "--json").lines] == [
        {"name": "a", "path": f"{keys}/a.pub", "has_secret": False, **told},
        {"name": "b", "path": f"{keys}/b.key", "has_secret": True, **told},
    ]


def test_list_on_a_terminal_is_a_table(key: Key, run: Run, known: Path, terminal: Terminal) -> None:
    key("import", "audit-of-web1", known)
    key("import", "b", stdin=PUBLIC.encode())
    assert run.start("hbuf-key", "list", stdout=terminal.theirs).wait(timeout=30) == 0
    assert terminal.read_all().splitlines() == [
        "NAME           KIND  FINGERPRINT       HOLDS   BUFFER",
        f"audit-of-web1  sign  {FINGERPRINT}  secret  -",
        f"b              sign  {FINGERPRINT}  public  -",
    ]


def test_list_goes_on_behind_a_key_that_cannot_be_used_and_tells_of_it(key: Key) -> None:
    for name in ("a", "b", "c"):
        key("new", name, "--kind", "sign")
    Path("keys/a.key").chmod(0o640)
    Path("keys/b.key").write_bytes(Path("keys/b.key").read_bytes()[:-1])
    for option, shown in (([], "c\t"), (["--json"], '{"name": "c", ')):
        done = key("list", *option)
        assert done.code == 65
        assert [line.startswith(shown) for line in done.lines] == [True]
        first, hint, second = done.err.splitlines()
        assert "keys/a.key: others can read or write it" in first
        assert hint.startswith("hint: chmod 600 ")
        assert second.endswith("keys/b.key: the key file is cut off or was changed")


# import


@pytest.mark.parametrize("argument", [[], ["-"], ["file"], ["./file"]], ids=str)
def test_public_key_is_imported_from_stdin_and_from_a_file(key: Key, argument: list[str]) -> None:
    Path("file").write_text(PUBLIC + "\n")
    stdin = b"" if argument and argument != ["-"] else PUBLIC.encode()
    assert key("import", "friend", *argument, stdin=stdin) == (0, b"", "")
    assert key("export", "friend").out.decode() == PUBLIC + "\n"


def test_key_file_is_imported_whole_from_stdin_and_from_a_file(key: Key, known: Path) -> None:
    assert key("import", "a", known) == (0, b"", "")
    assert key("import", "b", stdin=KEY_FILE) == (0, b"", "")
    for name in ("a", "b"):
        assert Path(f"keys/{name}.key").read_bytes() == KEY_FILE
        assert stat.S_IMODE(Path(f"keys/{name}.key").stat().st_mode) == 0o600


def test_file_that_has_no_name_any_more_can_be_imported(run: Run) -> None:
    """As the file of a shell's here-document."""
    with tempfile.TemporaryFile() as file:
        file.write(KEY_FILE)
        file.seek(0)
        assert run.real("hbuf-key", "import", "audit", "/dev/stdin", stdin=file) == (0, b"", "")
    assert Path("keys/audit.key").read_bytes() == KEY_FILE


def test_import_over_a_key_is_73_and_the_key_stays(key: Key, known: Path) -> None:
    key("new", "audit", "--kind", "sign")
    before = Path("keys/audit.key").read_bytes()
    refused(key("import", "audit", known), 73)
    refused(key("import", "audit", stdin=PUBLIC.encode()), 73)
    assert os.listdir("keys") == ["audit.key"]
    assert Path("keys/audit.key").read_bytes() == before


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", 2),
        (b"\xff\x00", 2),
        (b"hbuf-sign-1 short\n", 2),
        (PUBLIC.encode() + b"p", 2),
        (PUBLIC.replace("-1 ", "-2 ").encode(), 2),
        (SECRET.encode(), 2),
        (b"x" * 70_000, 2),
        (KEY_FILE[:-1], 65),
        (KEY_FILE + b"\n", 65),
        (KEY_FILE.replace(b"kind: sign", b"kind: encrypt"), 65),
        (KEY_FILE.replace(b"version 1", b"version 2"), 65),
    ],
    ids=["nothing", "binary", "short", "long", "newer", "secret", "too long", "cut", "more", "changed", "newer file"],
)
def test_what_is_no_key_is_refused_from_stdin_and_from_a_file(key: Key, data: bytes, code: int) -> None:
    Path("file").touch(0o600)
    Path("file").write_bytes(data)
    refused(key("import", "audit", stdin=data), code)
    assert refused(key("import", "audit", "file"), code).startswith("hbuf-key: file: ")
    assert not Path("keys").exists()


# What cannot be used


def test_missing_key_is_66(key: Key) -> None:
    for command in ("show", "export"):
        for missing in ("audit", "./audit", "no/such/file"):
            assert refused(key(command, missing), 66).endswith(": there is no such key")
    refused(key("import", "audit", "missing"), 66)
    assert not Path("keys").exists()


def test_key_directory_that_is_a_file_is_66(key: Key) -> None:
    Path("keys").write_text("content")
    refused(key("list"), 66)
    refused(key("new", "audit", "--kind", "sign"), 66)
    assert Path("keys").read_text() == "content"


def test_damaged_key_is_65_and_stays_as_it_is(key: Key) -> None:
    key("new", "audit", "--kind", "sign")
    damaged = Path("keys/audit.key").read_bytes()[:-1]
    Path("keys/audit.key").write_bytes(damaged)
    for command in ("show", "export"):
        assert "keys/audit.key: the key file is cut off" in refused(key(command, "audit"), 65)
    assert Path("keys/audit.key").read_bytes() == damaged


def test_key_that_others_can_read_is_77(key: Key, known: Path) -> None:
    key("import", "audit", known)
    for path in (known, Path("keys/audit.key")):
        path.chmod(0o644)
    for command in (["show", "audit"], ["export", "audit"], ["show", "./known.key"], ["import", "other", "known.key"]):
        assert refused(key(*command), 77).endswith(": others can read or write it, and it is not used as a key")
    assert not Path("keys/other.key").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_key_of_somebody_else_is_77(key: Key, known: Path) -> None:
    os.chown(known, 12345, -1)
    for command in (["show", "./known.key"], ["import", "other", "known.key"]):
        assert refused(key(*command), 77).endswith(": belongs to somebody else, and is not used as a key")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_key_directory_that_cannot_be_written_is_77(key: Key) -> None:
    Path("keys").mkdir(mode=0o500)
    refused(key("new", "audit", "--kind", "sign"), 77)
    assert os.listdir("keys") == []
