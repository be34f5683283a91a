"""Encrypted buffers as a writer makes them: no body on disk, all of it verifies, and only the recipients can read it.

What crashes and power cuts leave of one is asked in the tests of crash points and of power loss.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import hbuf
from hbuf.errors import NotAllowed, TooLarge, UsageError
from hbuf.format.fields import encode_fields
from hbuf.format.grammar import MAX_FIELDS_BYTES
from hbuf.ops.create import create
from hbuf.ops.reindex import reindex
from hbuf.ops.set import read_settings, set_settings
from hbuf.ops.verify import verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Outgoing
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer

from .checking import append, append_to, check_verifies, open_writer, read_all, refused
from .encryption_keys import bodies_and_refusals, create_encrypted, make_identity, public_text, read_bodies
from .signed_scenarios import KEY, PUBLICS, holders_of, make_key

SECRET_BODIES = [b"the secret number %d" % n for n in range(5)]
AUDIT = Path(__file__).parents[2] / "contrib" / "hbuf-audit.sh"
PUT_LINES = re.compile(rb"^x-hbuf-recipient: ([0-9a-f]{16}) \S+\r\n", re.MULTILINE)


@pytest.fixture
def path(ram_path: Path, alice: Path) -> Path:
    """An empty buffer that is encrypted to alice."""
    create_encrypted(ram_path / "orders", alice)
    return ram_path / "orders"


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("segments/*.http"))


def content(path: Path) -> bytes:
    """All bytes of all files."""
    return b"".join(file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file())


# What is on disk


def test_no_body_is_on_disk_while_heads_and_fields_can_be_read(ram_path: Path, alice: Path) -> None:
    path = ram_path / "orders"
    create_encrypted(path, alice, segment_messages="2")
    fields = encode_fields("user-17", ["host=web1"], [("content-type", "text/plain")])
    with open_writer(path) as writer:
        writer.append(Outgoing(SECRET_BODIES, fields))
        append(writer, SECRET_BODIES, unit=True)
    assert len(segments(path)) == 3
    stored = content(path)
    assert b"secret number" not in stored
    assert stored.count(b"\r\nx-hbuf-key: user-17\r\nx-hbuf-tag: host=web1\r\ncontent-type: text/plain\r\n") == 5
    assert re.findall(rb"\r\nx-hbuf-seq: (\d+)\r\n", stored) == [b"%d" % n for n in range(1, 11)]
    assert read_bodies(path, alice) == SECRET_BODIES * 2
    for message in read_all(path):
        assert message.encrypted
        assert message.body not in SECRET_BODIES
        assert message.key == ("user-17" if message.seq <= 5 else None)
    found = hbuf.open(path, identities=[alice]).read(key="user-17", tag="host=web1", pattern="number [34]")
    assert [(message.seq, message.encrypted) for message in found] == [(4, False), (5, False)]


@pytest.mark.parametrize("hash_name", ["blake3", "sha256"])
def test_anyone_can_verify_without_being_able_to_read(ram_path: Path, alice: Path, hash_name: str) -> None:
    create_encrypted(ram_path / "orders", alice, hash=hash_name, segment_messages="3")
    for _ in range(2):
        append_to(ram_path / "orders", *SECRET_BODIES[:4])
    shutil.rmtree(alice.parent)
    check_verifies(ram_path / "orders", 8)
    assert verify(str(ram_path / "orders"), jobs=1).encrypted == 8
    segment = segments(ram_path / "orders")[1]
    changed = bytearray(segment.read_bytes())
    changed[-3] ^= 1
    segment.write_bytes(changed)
    assert not verify(str(ram_path / "orders"), jobs=1).ok


def test_audit_with_a_shell_and_a_hash_tool_alone_takes_it(ram_path: Path, alice: Path) -> None:
    create_encrypted(ram_path / "orders", alice, hash="sha256", segment_messages="3")
    for body in SECRET_BODIES:
        append_to(ram_path / "orders", body)
    done = subprocess.run([AUDIT, ram_path / "orders"], capture_output=True, text=True, check=False)
    last = read_all(ram_path / "orders")[-1]
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{ram_path / 'orders'}: 5 messages, last 5 {last.id}\n"


def test_index_and_tags_are_those_that_reindexing_makes(ram_path: Path, alice: Path) -> None:
    path = ram_path / "orders"
    create_encrypted(path, alice, segment_messages="6")
    fields = encode_fields("k", ["a", "b"], [])
    for body in SECRET_BODIES:
        with open_writer(path) as writer:
            writer.append(Outgoing([body, b""], fields))
            append(writer, [body, b""], unit=True)
    with Writer(BufferDirectory(path)) as writer:
        writer.append(Outgoing([b"1", b"2"], fields, producers=[(b"p", 1), (b"p", 2)]))
    made = {
        file.name: file.read_bytes() for pattern in ("*.idx", "*.tags") for file in path.glob(f"segments/{pattern}")
    }
    assert len(made) > 6
    assert reindex(str(path), timeout_seconds=20)
    assert {name: (path / "segments" / name).read_bytes() for name in made} == made


def test_many_writers_of_one_message_each_make_one_segment(path: Path, alice: Path) -> None:
    bodies = [b"line %d" % n for n in range(200)]
    for body in bodies:
        append_to(path, body)
    assert len(segments(path)) == 1
    assert content(path).count(b"\r\nx-hbuf-recipient: ") == 200
    assert read_bodies(path, alice) == bodies
    check_verifies(path, 200)


def test_writer_brings_one_data_key_a_segment(ram_path: Path, alice: Path, drawn: list[bytes]) -> None:
    create_encrypted(ram_path / "orders", alice, segment_messages="3")
    with open_writer(ram_path / "orders") as writer:
        for n in range(7):
            append(writer, [b"%d" % n])
        writer.roll()
        append(writer, [b"7"])
    assert [len(PUT_LINES.findall(segment.read_bytes())) for segment in segments(ram_path / "orders")] == [1, 1, 1, 1]
    assert len(set(drawn)) == 4
    assert read_bodies(ram_path / "orders", alice) == [b"%d" % n for n in range(8)]


def test_data_keys_and_secrets_are_nowhere_on_disk(ram_path: Path, path: Path, alice: Path, drawn: list[bytes]) -> None:
    """So a writer that starts again cannot read what it wrote: nothing is left that could."""
    with open_writer(path) as writer:
        append(writer, SECRET_BODIES)
    append_to(path, b"of another one")
    assert [len(key) for key in drawn] == [32, 32]
    assert [holders_of(key, ram_path) for key in drawn] == [[], []]
    assert holders_of(b"alice".ljust(32, b"\xfb"), path) == []
    alice.unlink()
    assert not any(message.body in SECRET_BODIES for message in read_all(path))


# Recipients


def test_each_of_two_recipients_reads_all(ram_path: Path, alice: Path, bob: Path) -> None:
    create_encrypted(ram_path / "orders", alice, bob)
    append_to(ram_path / "orders", *SECRET_BODIES)
    assert len(PUT_LINES.findall(content(ram_path / "orders"))) == 2
    for identities in ([alice], [bob], [alice, bob]):
        assert read_bodies(ram_path / "orders", *identities) == SECRET_BODIES
    carol = make_identity(ram_path, "carol")
    with pytest.raises(NotAllowed):
        read_bodies(ram_path / "orders", carol)
    assert read_bodies(ram_path / "orders", carol, bob) == SECRET_BODIES


def test_recipients_that_are_added_and_removed_change_what_comes_after_only(path: Path, alice: Path, bob: Path) -> None:
    with open_writer(path) as writer:  # it lives through the changes
        append(writer, [b"to alice"])
        set_settings(str(path), {}, timeout_seconds=20, added=[public_text(bob)])
        append(writer, [b"to both"])
        set_settings(str(path), {}, timeout_seconds=20, removed=[public_text(alice)])
        append(writer, [b"to bob"])
    assert read_bodies(path, alice, bob) == [b"to alice", b"to both", b"to bob"]
    for identity, mine in ((alice, [1, 2]), (bob, [2, 3])):
        bodies, refusals = bodies_and_refusals(path, identity)
        assert list(bodies) == mine
        assert isinstance(refusals[0], NotAllowed)
    assert read_settings(str(path)).recipients == (public_text(bob),)
    check_verifies(path, 3)


def test_recipients_of_an_empty_segment_can_change_too(path: Path, alice: Path, bob: Path) -> None:
    set_settings(str(path), {}, timeout_seconds=20, added=[public_text(bob)], removed=[public_text(alice)])
    append_to(path, b"to bob")
    assert len(segments(path)) == 1
    assert read_bodies(path, bob) == [b"to bob"]
    check_verifies(path, 1)


def test_plain_buffer_becomes_encrypted_and_never_plain_again(ram_path: Path, alice: Path) -> None:
    path = ram_path / "orders"
    create(str(path))
    append_to(path, b"for everyone")
    set_settings(str(path), {}, timeout_seconds=20, added=[public_text(alice)])
    append_to(path, b"for alice")
    assert read_bodies(path, alice) == [b"for everyone", b"for alice"]
    assert b"for alice" not in content(path)
    check_verifies(path, 2)
    gone = [public_text(alice)]
    refused(lambda: set_settings(str(path), {}, timeout_seconds=20, removed=gone), UsageError, path)
    append_to(path, b"still for alice")
    assert b"still for alice" not in content(path)


def test_what_is_no_recipient_cannot_be_removed(path: Path, bob: Path) -> None:
    refused(lambda: set_settings(str(path), {}, timeout_seconds=20, removed=[public_text(bob)]), UsageError, path)


def test_public_key_with_its_newline_is_the_same_recipient(ram_path: Path, alice: Path) -> None:
    """As it is read from a .pub file."""
    text = public_text(alice)
    hbuf.create(ram_path / "orders", encrypt_to=[text + "\n", text])
    assert read_settings(str(ram_path / "orders")).recipients == (text,)


def test_buffer_that_is_not_erasable_cannot_be_encrypted(ram_path: Path, alice: Path) -> None:
    with pytest.raises(UsageError, match="not erasable"):
        create_encrypted(ram_path / "orders", alice, erasable="false")
    assert not (ram_path / "orders").exists()
    create(str(ram_path / "orders"), {"erasable": "false"})
    append_to(ram_path / "orders", b"1")
    added = [public_text(alice)]
    work = lambda: set_settings(str(ram_path / "orders"), {}, timeout_seconds=20, added=added)  # noqa: E731
    refused(work, UsageError, ram_path / "orders")


# With everything else that a buffer can do


def test_units_and_producers_keep_their_lines_before_the_data_key(path: Path, alice: Path) -> None:
    bodies = [b"one", b"two"]
    with open_writer(path) as writer:
        for _ in range(2):  # the second time they are duplicates
            writer.append(Outgoing(bodies, producers=[(b"sensor", 1), (b"sensor", 2)]))
        writer.append(Outgoing(bodies, producers=[(b"sensor", 3), (b"sensor", 3)], unit=True))
    heads = re.findall(rb"^x-hbuf-time: \S+\r\n((?:x-hbuf-.*\r\n)+)content-length: 19\r$", content(path), re.MULTILINE)
    names = [[line.split(b":")[0].decode() for line in head.splitlines()] for head in heads]
    producer = ["x-hbuf-producer", "x-hbuf-producer-seq", "x-hbuf-data-key"]
    assert names == [producer, producer, ["x-hbuf-batch", *producer], ["x-hbuf-batch", *producer]]
    assert read_bodies(path, alice) == [*bodies, *bodies]
    check_verifies(path, 4)


@pytest.mark.parametrize("name", ["x-hbuf-data-key: x", f"x-hbuf-data-key: {'a' * 64} 0"])
@pytest.mark.parametrize("encrypted", [True, False])
def test_producer_may_have_any_name(ram_path: Path, alice: Path, name: str, encrypted: bool) -> None:
    path = ram_path / "orders"
    create_encrypted(path, *[alice][:encrypted])
    with hbuf.open(path) as buffer:
        buffer.append(b"one", producer=name, producer_seq=1)
    assert read_bodies(path, alice) == [b"one"]
    assert [message.encrypted for message in read_all(path)] == [encrypted]
    check_verifies(path, 1)


def test_signed_and_encrypted_buffer_verifies_and_reads(ram_path: Path, alice: Path) -> None:
    key, path = make_key(ram_path, KEY), ram_path / "orders"
    create(str(path), {"segment_messages": "3"}, signer=Signer(key), recipients=[public_text(alice)])
    for body in SECRET_BODIES:
        append_to(path, body, key=key)
    append_to(path, *SECRET_BODIES, key=key)
    check_verifies(path, 10, signer=PUBLICS[KEY])
    assert read_bodies(path, alice) == SECRET_BODIES * 2
    brought = [section for section in content(path).split(b"\r\n\r\n") if b"x-hbuf-recipient: " in section]
    assert brought
    assert not any(b"x-hbuf-sig: " in section for section in brought)


def test_segments_that_were_compressed_are_read_with_the_same_key(ram_path: Path, alice: Path) -> None:
    path = ram_path / "orders"
    create_encrypted(path, alice, segment_messages="2", compress="true")
    for body in SECRET_BODIES:
        append_to(path, body)
    assert len(list(path.glob("segments/*.zst"))) == 2
    assert read_bodies(path, alice) == SECRET_BODIES
    check_verifies(path, 5)


@pytest.mark.parametrize("size", [0, 1, 300, 1000, 2000])
def test_no_segment_grows_beyond_its_limit(ram_path: Path, alice: Path, bob: Path, size: int) -> None:
    path = ram_path / "orders"
    create_encrypted(path, alice, bob, segment_bytes="8KiB")
    bodies = [(b"%d " % n).ljust(size, b".")[:size] for n in range(40)]
    with open_writer(path) as writer:
        for body in bodies[:10]:
            append(writer, [body])
        append(writer, bodies[10:])
        append(writer, bodies[:2], unit=True)
    for body in bodies[:5]:
        append_to(path, body)
    assert max(segment.stat().st_size for segment in segments(path)) <= 8192
    assert len(segments(path)) > 2
    assert read_bodies(path, alice) == [*bodies, *bodies[:2], *bodies[:5]]
    check_verifies(path, 47)


def test_longest_body_is_as_long_as_in_a_plain_buffer(ram_path: Path, alice: Path) -> None:
    path = ram_path / "orders"
    create_encrypted(path, alice, max_message_bytes="100000")
    append_to(path, bytes(100_000))
    with open_writer(path) as writer, pytest.raises(TooLarge):
        append(writer, [bytes(100_001)])
    assert read_bodies(path, alice) == [bytes(100_000)]


def test_longest_head_and_fields_fit_into_a_header_section(ram_path: Path, alice: Path) -> None:
    name = "n" * 128
    key = make_key(ram_path, KEY)
    recipients = [public_text(make_identity(ram_path, f"recipient-{n}")) for n in range(100)]
    create(str(ram_path / name), signer=Signer(key), recipients=recipients)
    fields = encode_fields(None, [], [("x-a", "v" * (MAX_FIELDS_BYTES - len("x-a: \r\n")))])
    producers = [(b"p" * 128, 10**18 - 1)] * 2
    with open_writer(ram_path / name, key=key) as writer:
        writer.append(Outgoing([b"one", b"two"], fields, producers=producers, unit=True))
    check_verifies(ram_path / name, 2, signer=PUBLICS[KEY])
    assert read_bodies(ram_path / name, ram_path / "keys" / "recipient-99.key") == [b"one", b"two"]
