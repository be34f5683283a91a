"""Encryption as a shell uses it: whoever has the key reads everything, whoever has not reads heads and fields."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import Argument, Bodies, MakeBuffer, Ran, Run

Do = Callable[..., "Ran"]
LINES = b"tea\nmilk\nsugar and tea\n"


@pytest.fixture
def do(run: Run) -> Iterator[Do]:
    """do("hbuf-tail", "orders"): runs a command, which must never write anything of a secret key."""
    written: list[bytes] = []

    def run_it(*command: Argument, stdin: bytes = b"") -> Ran:
        done = run(*command, stdin=stdin)
        written.append(done.out + done.err.encode())
        assert "Traceback" not in done.err
        return done

    yield run_it
    secrets = [re.findall(rb"secret: (\S+)\n", file.read_bytes())[0] for file in Path().glob("*/*.key")]
    assert secrets
    assert [secret for secret in secrets if secret in b"".join(written)] == []


@pytest.fixture(autouse=True)
def _keys_and_a_buffer(do: Do) -> None:
    """Keys alice, bob (to encrypt) and audit (to sign), and a buffer of three messages to alice."""
    for name, kind in (("alice", "encrypt"), ("bob", "encrypt"), ("audit", "sign")):
        assert do("hbuf-key", "new", name, "--kind", kind) == (0, b"", "")
    fields = ["-k", "user-17", "--tag", "host=web1", "-H", "content-type: text/plain"]
    assert do("hbuf-append", "--encrypt-to", "alice", *fields, "orders", stdin=LINES) == (0, b"", "")


def refused(done: Ran, code: int) -> str:
    """Nothing but what is wrong, in one line and perhaps a hint. Returns that line."""
    assert (done.code, done.out) == (code, b""), done.err
    line, *hint = done.err.splitlines()
    assert [each[:6] for each in hint] in ([], ["hint: "])
    return line


def messages(*paths: str) -> list[str]:
    """The stored records, as they are on disk."""
    content = b"".join(file.read_bytes() for path in paths for file in sorted(Path(path).glob("segments/*.http")))
    return re.findall(r"^x-hbuf-seq: (\d+)\r$", content.decode(errors="replace"), re.MULTILINE)


# Reading


def test_tail_without_identity_shows_nothing_and_says_why(do: Do) -> None:
    done = do("hbuf-tail", "orders")
    assert (done.code, done.out) == (77, b"")
    assert done.err.splitlines() == [
        "hbuf-tail: orders: message 1 is encrypted",
        "hint: --identity KEY reads it; --json shows what can be read without",
        "hbuf-tail: 2 more messages are encrypted",
    ]


@pytest.mark.parametrize("key", ["alice", "keys/alice.key", "./keys/alice.key"])
def test_tail_with_identity_shows_bodies(do: Do, key: str) -> None:
    assert do("hbuf-tail", "--identity", key, "orders") == (0, LINES, "")
    assert do("hbuf-tail", "--raw", "-0", "-n", "1", "--identity", key, "orders") == (0, b"sugar and tea\0", "")


def test_json_without_identity_has_everything_but_the_body(do: Do) -> None:
    done = do("hbuf-tail", "--json", "orders")
    assert (done.code, done.err) == (0, "")
    closed = [json.loads(line) for line in done.lines]
    assert [(each["seq"], each["key"], each["tags"], each["encrypted"]) for each in closed] == [
        (seq, "user-17", ["host=web1"], True) for seq in (1, 2, 3)
    ]
    assert [each["body"] for each in closed] == [None] * 3
    done = do("hbuf-tail", "--json", "--identity", "alice", "orders")
    assert (done.code, done.err) == (0, "")
    opened = [json.loads(line) for line in done.lines]
    assert [each["body"] for each in opened] == ["tea", "milk", "sugar and tea"]
    assert [each | {"body": None, "encrypted": True} for each in opened] == closed


def test_http_without_identity_is_what_is_stored_and_with_it_plain_records(do: Do) -> None:
    stored = do("hbuf-tail", "--http", "-n", "1", "orders")
    assert (stored.code, stored.err) == (0, "")
    assert Path("orders/segments/00000000000000000001.http").read_bytes().endswith(stored.out)
    plain = do("hbuf-tail", "--http", "-n", "1", "--identity", "alice", "orders")
    assert (plain.code, plain.err) == (0, "")
    assert plain.out.endswith(b"\r\n\r\nsugar and tea\r\n")
    without = re.sub(rb"x-hbuf-data-key: .*\r\n", b"", stored.out.partition(b"\r\n\r\n")[0])
    assert plain.out.partition(b"\r\n\r\n")[0] == without.replace(b"content-length: 29", b"content-length: 13")


def test_filters_work_with_and_without_identity(do: Do) -> None:
    assert do("hbuf-append", "-k", "user-18", "orders", stdin=b"coffee\n").code == 0
    assert do("hbuf-tail", "--identity", "alice", "--key", "user-18", "orders").out == b"coffee\n"
    assert do("hbuf-tail", "--identity", "alice", "-g", "^.{4,6}$", "orders").out == b"milk\ncoffee\n"
    done = do("hbuf-tail", "--json", "--key", "user-18", "orders")
    assert [json.loads(line)["seq"] for line in done.lines] == [4]
    assert do("hbuf-tail", "--json", "-g", "coffee", "orders") == (0, b"", "")
    assert do("hbuf-tail", "-c", "2", "-o", "first", "--identity", "alice", "orders").out == b"tea\nmilk\n"


def test_identity_that_is_no_recipient_is_77(do: Do) -> None:
    done = do("hbuf-tail", "--identity", "bob", "orders")
    assert (done.code, done.out) == (77, b"")
    assert done.err.startswith("hbuf-tail: orders: message 1 is encrypted to others")
    assert do("hbuf-tail", "--identity", "bob", "--identity", "alice", "orders") == (0, LINES, "")


def test_identity_of_a_wrong_kind_is_2_and_a_missing_one_66(do: Do) -> None:
    for command in (["hbuf-tail"], ["hbuf-grep", "tea"]):
        refused(do(*command, "--identity", "audit", "orders"), 2)
        refused(do(*command, "--identity", "nobody", "orders"), 66)
        refused(do(*command, "--identity", "./nobody.key", "orders"), 66)


def test_identity_that_others_can_read_is_77(do: Do) -> None:
    Path("keys/alice.key").chmod(0o640)
    assert "others can read" in refused(do("hbuf-tail", "--identity", "alice", "orders"), 77)


def next_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout
    os.set_blocking(process.stdout.fileno(), False)
    line, deadline = b"", time.monotonic() + 30
    while not line.endswith(b"\n"):
        assert time.monotonic() < deadline, f"no line came: {line!r}"
        line += process.stdout.read(1) or b""
        if not line:
            time.sleep(0.005)
    return line


def test_follower_with_identity_shows_what_comes_in_new_segments_too(run: Run, do: Do) -> None:
    process = run.start("hbuf-tail", "-f", "-n", "1", "--identity", "alice", "orders")
    assert next_line(process) == b"sugar and tea\n"
    for change in (["--encrypt-to", "bob"], ["segment_messages=1"], []):
        if change:
            assert do("hbuf-set", "orders", *change) == (0, b"", "")
        assert do("hbuf-append", "orders", stdin=b"behind %d\n" % len(change)).code == 0
        assert next_line(process) == b"behind %d\n" % len(change)
    assert process.poll() is None


# Searching


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["tea"], 0, b"tea\nsugar and tea\n"),
        (["-n", "milk"], 0, b"2:milk\n"),
        (["-c", "tea"], 0, b"2\n"),
        (["-l", "milk"], 0, b"orders\n"),
        (["-v", "tea"], 0, b"milk\n"),
        (["-c", "-v", "tea"], 0, b"1\n"),
        (["-i", "SUGAR"], 0, b"sugar and tea\n"),
        (["-F", "user-17"], 0, LINES),
        (["^content-type: text/plain$", "--key", "user-17"], 0, LINES),
        (["coffee"], 1, b""),
        (["-c", "coffee"], 1, b"0\n"),
        (["-l", "coffee"], 1, b""),
        (["tea", "--key", "user-18"], 1, b""),
        (["x-hbuf-recipient"], 1, b""),
    ],
    ids=repr,
)
def test_grep_with_identity_searches_bodies(do: Do, arguments: list[str], code: int, expected: bytes) -> None:
    assert do("hbuf-grep", *arguments, "--identity", "alice", "orders") == (code, expected, "")


def test_grep_as_json_and_http_is_as_tail_writes_it(do: Do) -> None:
    for form in ("--json", "--http"):
        found = do("hbuf-grep", "sugar", form, "--identity", "alice", "orders")
        assert found == do("hbuf-tail", "-n", "1", form, "--identity", "alice", "orders")


def test_grep_without_identity_finds_fields_and_shows_no_body(do: Do) -> None:
    done = do("hbuf-grep", "user-17", "orders")
    assert (done.code, done.out) == (77, b"")
    done = do("hbuf-grep", "--json", "user-17", "orders")
    assert [json.loads(line)["body"] for line in done.lines] == [None] * 3
    assert do("hbuf-grep", "-c", "user-17", "orders") == (0, b"3\n", "")
    assert do("hbuf-grep", "-l", "user-17", "orders") == (0, b"orders\n", "")
    assert do("hbuf-grep", "-c", "tea", "orders") == (1, b"0\n", "")


@pytest.mark.parametrize("pattern", ["recipient", "HTTP/1", "PUT", "x-hbuf-recipient: [0-9a-f]"])
def test_search_for_what_stands_between_records_ends(run: Run, do: Do, pattern: str) -> None:
    """A PUT between two messages is no message, whatever is searched for."""
    assert do("hbuf-append", "orders", stdin=b"behind another data key\n").code == 0
    assert run.real("hbuf-grep", "-c", pattern, "orders") == (1, b"0\n", "")
    assert run.real("hbuf-tail", "--json", "-g", pattern, "orders") == (0, b"", "")


def test_grep_of_plain_and_encrypted_buffers_together(do: Do, make_buffer: MakeBuffer) -> None:
    make_buffer("plain", [b"plain tea"])
    expected = b"orders:tea\norders:sugar and tea\nplain:plain tea\n"
    assert do("hbuf-grep", "tea", "--identity", "alice", "orders", "plain") == (0, expected, "")
    done = do("hbuf-grep", "tea", "orders", "plain")
    assert (done.code, done.out) == (77, b"plain:plain tea\n")


# Who it is encrypted to


def test_recipient_is_named_by_name_file_or_text(do: Do) -> None:
    text = do("hbuf-key", "export", "bob").out.decode().strip()
    Path("bob.pub").write_text(text + "\n")
    assert do("hbuf-key", "import", "friend", "bob.pub").code == 0
    for n, key in enumerate(["bob", "./bob.pub", text, "friend", "keys/bob.key"]):
        assert do("hbuf-append", "--encrypt-to", key, f"by{n}", stdin=b"one\n") == (0, b"", "")
        assert json.loads(Path(f"by{n}/buffer.json").read_text())["recipients"] == [text]
        assert do("hbuf-tail", "--identity", "bob", f"by{n}") == (0, b"one\n", "")
    assert do("hbuf-create", "--encrypt-to", "bob", "--encrypt-to", "alice", "both") == (0, b"", "")
    assert do("hbuf-append", "--encrypt-to", "alice", "both", stdin=b"one\n") == (0, b"", "")
    for identity in ("alice", "bob"):
        assert do("hbuf-tail", "--identity", identity, "both").out == b"one\n"


@pytest.mark.parametrize("command", ["hbuf-append", "hbuf-create"])
def test_recipient_of_a_wrong_kind_or_none_makes_no_buffer(do: Do, command: str) -> None:
    text = do("hbuf-key", "export", "audit").out.decode().strip()
    for key, code in (("audit", 2), (text, 2), (text[:-1], 2), ("nobody", 66), ("./nobody.pub", 66)):
        refused(do(command, "--encrypt-to", key, "new"), code)
        assert not Path("new").exists()
    refused(do("hbuf-create", "--encrypt-to", "alice", "--set", "erasable=false", "new"), 2)
    assert not Path("new").exists()


def test_append_to_other_recipients_than_the_buffers_stores_nothing(do: Do, make_buffer: MakeBuffer) -> None:
    make_buffer("plain", [b"1"])
    for buffer, keys in (("orders", ["bob"]), ("orders", ["alice", "bob"]), ("plain", ["alice"])):
        before = messages(buffer)
        options = [option for key in keys for option in ("--encrypt-to", key)]
        line = refused(do("hbuf-append", *options, buffer, stdin=b"secret\n"), 2)
        assert line.startswith(f"hbuf-append: {buffer}: is not encrypted to ")
        assert messages(buffer) == before
    assert do("hbuf-append", "--encrypt-to", "alice", "orders", stdin=b"more\n") == (0, b"", "")


def test_recipients_change_for_what_comes_after(do: Do) -> None:
    assert do("hbuf-set", "orders", "--encrypt-to", "bob", "--not-to", "alice") == (0, b"", "")
    assert do("hbuf-append", "orders", stdin=b"to bob\n") == (0, b"", "")
    done = do("hbuf-tail", "--identity", "alice", "orders")
    assert (done.code, done.out) == (77, LINES)
    assert done.err == "hbuf-tail: orders: message 4 is encrypted to others, and not to the key that was given\n"
    done = do("hbuf-tail", "--identity", "bob", "orders")
    assert (done.code, done.out) == (77, b"to bob\n")
    assert do("hbuf-tail", "--identity", "bob", "--identity", "alice", "orders").out == LINES + b"to bob\n"
    shown = json.loads(do("hbuf-set", "orders").out)
    assert shown["recipients"] == [do("hbuf-key", "export", "bob").out.decode().strip()]
    for arguments in (["--not-to", "bob"], ["--not-to", "alice"], ["--encrypt-to", "audit"], ["--not-to", "audit"]):
        refused(do("hbuf-set", "orders", *arguments), 2)
    assert json.loads(do("hbuf-set", "orders").out) == shown


def test_what_is_for_others_is_told_apart_from_what_was_changed(do: Do) -> None:
    assert do("hbuf-set", "orders", "--encrypt-to", "bob", "--not-to", "alice").code == 0
    assert do("hbuf-append", "orders", stdin=b"4\n5\n6\n").code == 0
    segment = Path("orders/segments/00000000000000000001.http")
    changed = bytearray(segment.read_bytes())
    changed[-3] ^= 1
    segment.write_bytes(changed)
    for command in (["hbuf-tail"], ["hbuf-grep", ""]):
        done = do(*command, "--identity", "alice", "orders")
        assert (done.code, done.out) == (65, b"tea\nmilk\n")
        said = [line.partition("orders: ")[2] or line for line in done.err.splitlines() if "hint: " not in line]
        assert said == [
            "message 3 was changed, and cannot be decrypted",
            "message 4 is encrypted to others, and not to the key that was given",
            f"{command[0]}: 2 more messages are encrypted",
        ]


def test_verify_needs_no_key_and_says_how_many_are_encrypted(do: Do) -> None:
    Path("keys").rename("taken away")
    done = do("hbuf-verify", "orders")
    assert (done.code, done.err) == (0, "")
    assert "3 messages, 3 encrypted: ok" in done.out.decode()
    assert do("hbuf-append", "orders", stdin=b"more\n") == (0, b"", "")  # public keys are in the settings


# Copies


@pytest.mark.parametrize("form", ["--http", "--json"])
@pytest.mark.parametrize("target", [[], ["--encrypt-to", "bob"]], ids=["plain", "encrypted"])
def test_copy_that_was_decrypted_keeps_key_tags_and_headers(do: Do, form: str, target: list[str]) -> None:
    stream = do("hbuf-tail", form, "-o", "first", "--identity", "alice", "orders").out
    assert do("hbuf-append", form, *target, "copy", stdin=stream) == (0, b"", "")
    identity = ["--identity", "bob"] if target else []
    kept = [
        [
            {
                name: value
                for name, value in json.loads(line).items()
                if name in ("seq", "key", "tags", "headers", "body")
            }
            for line in do("hbuf-tail", "--json", *options).lines
        ]
        for options in (["--identity", "alice", "orders"], [*identity, "copy"])
    ]
    assert kept[0] == kept[1]
    assert kept[0][2]["body"] == "sugar and tea"
    assert kept[0][2]["headers"] == [{"name": "content-type", "value": "text/plain"}]
    assert do("hbuf-verify", "copy").code == 0


@pytest.mark.parametrize("form", ["--http", "--json"])
def test_copy_that_was_not_decrypted_is_65_and_stores_nothing(do: Do, bodies: Bodies, form: str) -> None:
    stream = do("hbuf-tail", form, "-o", "first", "orders").out
    done = do("hbuf-append", form, "copy", stdin=stream)
    assert (done.code, done.out) == (65, b"")
    assert "encrypted" in done.err
    assert bodies("copy") == []


def test_whole_story_in_a_shell(run: Run) -> None:
    done = run.shell(
        "hbuf-key new carol --kind encrypt"
        " && printf 'a\\nb\\n' | hbuf-append --encrypt-to carol story"
        " && hbuf-grep -c --identity carol '[ab]' story"
        " && hbuf-tail --http --identity carol story | hbuf-append --http plain"
        " && hbuf-tail plain; ! grep -rq '^[ab]$' story"
    )
    assert done == (0, b"2\na\nb\n", "")
