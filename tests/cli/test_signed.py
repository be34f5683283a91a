"""A signed buffer as its users have it: the keeper of the key, an auditor with a public key and a note, and a forger.

The forger can write to every file of the buffer, and has no key. Whatever he does, hbuf-verify --signer --head names.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import SlipIn

    from cli.conftest import Bodies, MakeBuffer, Run

INTACT = (0, b"", "")


@pytest.fixture
def orders(run: Run) -> Path:
    """The signed buffer orders with the messages 1 to 5, three a segment; its keys audit and spare; and a note."""
    for name, kind in (("audit", "sign"), ("spare", "recovery")):
        assert run("hbuf-key", "new", name, "--kind", kind) == INTACT
    Path("audit.pub").write_bytes(run("hbuf-key", "export", "audit").out)
    command = ["hbuf-create", "orders", "--sign", "audit", "--recovery", "spare", "--set", "segment_messages=3"]
    assert run(*command) == INTACT
    append(run, 1, 2)
    append(run, 3, 4, 5)
    take_note(run)
    return Path("orders")


def append(run: Run, *numbers: int, key: str = "audit") -> None:
    lines = "".join(f"{number}\n" for number in numbers).encode()
    assert run("hbuf-append", "orders", "--sign", key, stdin=lines) == INTACT


def take_note(run: Run) -> None:
    Path("note").write_bytes(run("hbuf-head", "orders").out)


def faults(run: Run, *options: str) -> list[tuple[str, str]]:
    """What the auditor is told, by kind; none where the buffer is intact."""
    done = run("hbuf-verify", "--json", "--signer", "audit.pub", "--head", "note", *options, "orders")
    report = json.loads(done.out)
    found = [(kind, place["reason"]) for kind, each in report["faults"].items() for place in each["places"]]
    assert (done.code, done.err, report["ok"]) == (65 if found else 0, "", not found)
    return found


def content(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


def newest(path: Path) -> Path:
    return max(path.glob("segments/*.http"))


def cut_behind(segment: Path, number: int) -> None:
    """Ends a segment behind a message, and its index too, as if nothing had ever followed."""
    text = segment.read_bytes()
    following = text.index(b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: %d\r\n" % (number + 1))
    segment.write_bytes(text[:following])
    index = segment.with_suffix(".idx").read_bytes()
    count = number - int(segment.stem) + 1
    segment.with_suffix(".idx").write_bytes(index[:16] + following.to_bytes(8, "little") + index[24 : 64 + 32 * count])


# The keeper and the auditor


def test_auditor_finds_an_honest_buffer_intact_with_nothing_but_public_keys(run: Run, orders: Path) -> None:
    assert faults(run) == []
    append(run, 6, 7, 8, 9, 10)
    assert faults(run) == []
    text = run("hbuf-key", "export", "audit").out.decode().strip()
    shutil.move("keys", "elsewhere")
    for signer in ("audit.pub", text):
        assert run("hbuf-verify", "--quiet", "--signer", signer, "--head", "note", "orders") == INTACT


def test_verify_says_how_many_signatures_are_right_and_that_nobody_asked_whose(run: Run, orders: Path) -> None:
    shown = run("hbuf-verify", "orders").out.decode()
    assert re.search(r"^ +signatures: +5 right: ok$", shown, re.MULTILINE)  # two PUTs, messages 2, 3 and 5
    assert "--signer tells whose key it must be" in shown
    assert "--signer" not in run("hbuf-verify", "--signer", "audit", "orders").out.decode()


def test_append_with_a_key_makes_a_signed_buffer(run: Run) -> None:
    assert run("hbuf-key", "new", "audit", "--kind", "sign") == INTACT
    append(run, 1)
    assert run("hbuf-verify", "--quiet", "--signer", "audit", "orders") == INTACT
    assert run("hbuf-append", "orders", stdin=b"2\n").code == 77


def test_append_with_a_key_to_an_unsigned_buffer_is_refused(run: Run, make_buffer: MakeBuffer, bodies: Bodies) -> None:
    make_buffer("plain", [b"1"])
    assert run("hbuf-key", "new", "audit", "--kind", "sign") == INTACT
    done = run("hbuf-append", "plain", "--sign", "audit", stdin=b"2\n")
    assert (done.code, done.out) == (2, b"")
    assert "plain: is not signed" in done.err
    assert bodies("plain") == [b"1"]
    assert run("hbuf-create", "orders", "--sign", "audit") == INTACT, "the key still serves nobody"


@pytest.mark.parametrize("command", ["hbuf-append orders", "hbuf-append orders note", "hbuf-set orders segment_age=1d"])
def test_without_the_key_a_writer_is_77_and_changes_nothing(run: Run, orders: Path, command: str) -> None:
    before = content(Path())
    done = run(*command.split(), stdin=b"x\n")
    line, hint = done.err.splitlines()
    assert (done.code, done.out, content(Path())) == (77, b"", before)
    assert "orders: is signed, and takes nothing without its key" in line
    assert hint == "hint: --sign KEY gives it"


def test_readers_need_no_key(run: Run, orders: Path) -> None:
    shutil.move("keys", "elsewhere")
    assert run("hbuf-tail", "-n", "2", "orders") == (0, b"4\n5\n", "")
    assert run("hbuf-grep", "^3$", "orders") == (0, b"3\n", "")
    assert run("hbuf-reindex", "orders") == INTACT


def test_missing_key_is_66_before_anything_is_made(run: Run) -> None:
    for command in (["hbuf-create", "--sign", "none", "orders"], ["hbuf-append", "--sign", "none", "orders"]):
        assert run(*command, stdin=b"1\n").code == 66
    assert not Path("orders").exists()


def test_recovery_without_sign_is_2(run: Run, orders: Path) -> None:
    for command in (["hbuf-set", "--recovery", "spare", "orders"], ["hbuf-create", "--recovery", "spare", "bills"]):
        done = run(*command)
        assert (done.code, done.out) == (2, b"")
        assert done.err == f"{command[0]}: --recovery goes with --sign\n"


def test_lost_key_is_replaced_with_the_recovery_key_and_verify_says_so(run: Run, orders: Path) -> None:
    Path("keys/audit.key").unlink()
    assert run("hbuf-key", "new", "second", "--kind", "sign") == INTACT
    assert run("hbuf-set", "--sign", "second", "--recovery", "spare", "orders") == INTACT
    append(run, 6, key="second")
    assert faults(run) == []
    take_note(run)
    assert faults(run) == []
    done = run("hbuf-verify", "--signer", "audit.pub", "orders")
    assert re.search(r"^ +signatures: +\d+ right, 1 line of keys by the recovery key: ok$", done.out.decode(), re.M)


def test_no_secret_is_ever_shown(run: Run, orders: Path) -> None:
    def secrets() -> set[str]:
        keys = (path.read_text() for path in Path("keys").iterdir())
        return {secret for key in keys for secret in re.findall(r"secret: (\S+)", key)}

    seen = secrets()
    assert len(seen) == 2
    commands = [
        ["hbuf-append", "-v", "orders", "--sign", "audit"],
        ["hbuf-append", "orders", "--sign", "spare"],
        ["hbuf-set", "orders", "segment_messages=2", "--sign", "audit"],
        ["hbuf-set", "orders"],
        ["hbuf-head", "orders"],
        ["hbuf-verify", "--json", "--signer", "audit", "orders"],
        ["hbuf-tail", "--http", "orders"],
    ]
    shown = ""
    for command in commands:
        done = run(*command, stdin=b"x\n")
        shown += done.out.decode() + done.err
        seen |= secrets()
    assert len(seen) > 2
    assert [secret for secret in seen if secret in shown] == []


# The forger


def test_tail_cut_back_is_noticed_against_the_note(run: Run, orders: Path) -> None:
    cut_behind(orders / "segments" / f"{1:020d}.http", 2)
    for path in orders.glob(f"segments/{4:020d}.*"):
        path.unlink()
    for path in orders.glob("segments/*.tags"):
        path.unlink()
    (orders / "producers").unlink(missing_ok=True)
    assert run("hbuf-verify", "--quiet", "--signer", "audit.pub", "orders") == INTACT, "nothing else can tell"
    assert faults(run) == [("completeness", "--head: message 5 is not there")]


def test_older_copy_in_its_place_is_noticed_against_the_note(run: Run, orders: Path) -> None:
    shutil.copytree(orders, "older")
    append(run, 6)
    take_note(run)
    assert faults(run) == []
    shutil.rmtree(orders)
    shutil.move("older", "orders")
    assert faults(run) == [("completeness", "--head: message 6 is not there")]


def test_fork_is_noticed_against_the_note(run: Run, orders: Path) -> None:
    """Somebody restored both the buffer and its key, and went on from there."""
    for path in ("orders", "keys"):
        shutil.copytree(path, f"older/{path}")
    append(run, 6)
    take_note(run)
    for path in ("orders", "keys"):
        shutil.rmtree(path)
        shutil.move(f"older/{path}", path)
    append(run, 66, 7)
    assert faults(run) == [("completeness", "--head: message 6 has another id")]


def test_messages_that_no_signature_covers_are_named(run: Run, orders: Path, slip_in: SlipIn) -> None:
    slip_in(orders, b"forged", b"forged too")
    assert faults(run) == [("signatures", "no signature covers messages 6 to 7")]
    assert run("hbuf-head", "orders").code == 65


def test_honest_writer_does_not_sign_over_what_was_slipped_in_and_cuts_nothing(
    run: Run, orders: Path, slip_in: SlipIn
) -> None:
    slip_in(orders, b"forged")
    before = content(Path())
    for command in ("hbuf-append orders", "hbuf-append orders note audit.pub", "hbuf-set orders segment_age=1d"):
        done = run(*command.split(), "--sign", "audit", stdin=b"x\n")
        assert (done.code, done.out, content(Path())) == (65, b"", before)
        assert "message 6 is not signed by the key that was announced" in done.err


def test_chain_made_anew_without_the_key_is_named(run: Run, orders: Path, slip_in: SlipIn) -> None:
    """Every id is right, and the only signature that the forger has is for another one."""
    segment = newest(orders)
    signature = re.findall(rb"^x-hbuf-sig: (\S+)\r$", segment.read_bytes(), re.MULTILINE)[-1]
    cut_behind(segment, 4)
    shutil.copytree(orders, "cut")
    slip_in(orders, b"another 5")
    assert faults(run) == [
        ("signatures", "no signature covers messages 4 to 5"),
        ("completeness", "--head: message 5 has another id"),
    ]
    shutil.rmtree(orders)
    shutil.move("cut", "orders")
    slip_in(orders, b"another 5", sign=lambda seq, record_id: signature)
    assert faults(run) == [
        ("signatures", "the signature is not by the key that was announced"),
        ("signatures", "no signature covers messages 4 to 5"),
        ("completeness", "--head: message 5 has another id"),
    ]


def test_message_changed_in_a_sealed_segment_is_named(run: Run, orders: Path) -> None:
    segment = orders / "segments" / f"{1:020d}.http"
    segment.write_bytes(segment.read_bytes().replace(b"\r\n\r\n2\r\n", b"\r\n\r\n7\r\n"))
    assert faults(run) == [("chain", "the id does not match what it covers")]


def test_buffer_made_anew_without_a_key_or_with_another_is_named(
    run: Run, orders: Path, make_buffer: MakeBuffer
) -> None:
    shutil.rmtree(orders)
    make_buffer("orders", [b"%d" % number for number in range(1, 6)])
    assert faults(run) == [
        ("signatures", "it is not signed"),
        ("completeness", "--head: message 5 has another id"),
    ]
    shutil.rmtree(orders)
    assert run("hbuf-key", "new", "forger", "--kind", "sign") == INTACT
    append(run, 1, 2, 3, 4, 5, key="forger")
    assert faults(run) == [
        ("signatures", "it is signed by another key"),
        ("completeness", "--head: message 5 has another id"),
    ]


def test_signatures_taken_off_are_named(run: Run, orders: Path) -> None:
    """The ids do not cover them, so the chain is whole."""
    for segment in orders.glob("segments/*.http"):
        segment.write_bytes(re.sub(rb"(?m)^x-hbuf-sig: \S+\r\n", b"", segment.read_bytes()))
        segment.with_suffix(".idx").unlink()
    kinds = {kind for kind, _ in faults(run)}
    assert "signatures" in kinds
    assert "chain" not in kinds


def test_note_that_another_key_signed_is_named(run: Run, orders: Path) -> None:
    """Number and id are right, the signature is that of another message."""
    old = Path("note").read_text()
    append(run, 6)
    take_note(run)
    text, _ = Path("note").read_text().split("\n\n")
    Path("note").write_text(f"{text}\n\n{old.split(chr(10) * 2)[1]}")
    assert faults(run) == [("signatures", "--head: the note is not signed by this buffer")]


def test_file_that_is_no_note_is_65_and_is_not_taken_for_a_fault_of_the_buffer(run: Run, orders: Path) -> None:
    Path("note").write_bytes(Path("note").read_bytes()[:-1])
    done = run("hbuf-verify", "--head", "note", "orders")
    assert (done.code, done.out) == (65, b"")
    assert len(done.err.splitlines()) == 1


def test_key_of_another_kind_is_no_signer(run: Run, orders: Path) -> None:
    done = run("hbuf-verify", "--signer", "spare", "orders")
    assert (done.code, done.out) == (2, b"")
    assert "kind recovery" in done.err
