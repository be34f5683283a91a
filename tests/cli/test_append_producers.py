"""hbuf-append --producer: what is sent again is stored once."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run, WaitUntil

FROM_1 = ["--producer", "till 4", "--producer-seq", "1"]


@pytest.mark.over_https
def test_each_message_has_the_next_number_of_its_producer(run: Run) -> None:
    assert run("hbuf-append", "orders", "--producer", "till 4", "--producer-seq", "9", stdin=b"a\nb\n").code == 0
    shown = run("hbuf-tail", "--http", "orders").out
    assert b"x-hbuf-producer: till 4\r\nx-hbuf-producer-seq: 9\r\n" in shown
    assert b"x-hbuf-producer: till 4\r\nx-hbuf-producer-seq: 10\r\n" in shown


@pytest.mark.over_https
def test_duplicates_do_nothing_and_say_nothing(run: Run, bodies: Bodies) -> None:
    run("hbuf-append", "orders", *FROM_1, stdin=b"a\nb\nc\n")
    size = Path("orders/segments/00000000000000000001.http").stat().st_size
    assert run("hbuf-append", "orders", *FROM_1, stdin=b"a\nb\nc\n") == (0, b"", "")
    assert Path("orders/segments/00000000000000000001.http").stat().st_size == size
    assert bodies("orders") == [b"a", b"b", b"c"]


@pytest.mark.over_https
def test_verbose_says_which_were_duplicates(run: Run) -> None:
    first = run("hbuf-append", "-v", "orders", *FROM_1, stdin=b"a\nb\nc\n")
    again = run("hbuf-append", "-v", "orders", *FROM_1, stdin=b"a\nb\nc\nd\n")
    assert (first.code, again.code) == (0, 0)
    assert [line.split()[1] for line in again.lines[:3]] == ["duplicate"] * 3
    # The last number is known with its message; what is below it is a duplicate whose message nobody looks for.
    assert again.lines[2] == "3 duplicate"
    assert again.lines[3].startswith("4 ")
    assert len(again.lines) == 4
    assert len(again.lines[3]) == len("4 ") + 64


@pytest.mark.over_https
def test_producers_do_not_get_into_each_others_way(run: Run, bodies: Bodies) -> None:
    for producer, text in (("one", b"a\n"), ("two", b"b\n"), ("one", b"c\n"), ("two", b"d\n"), ("two", b"e\n")):
        run("hbuf-append", "orders", "--producer", producer, "--producer-seq", "5", stdin=text)
    assert bodies("orders") == [b"a", b"b"]


@pytest.mark.over_https
@pytest.mark.parametrize("segment_messages", ["4", "none"])
@pytest.mark.parametrize("loss", ["removed", "damaged", "none"])
def test_state_is_rebuilt_from_the_messages(
    run: Run, make_buffer: MakeBuffer, bodies: Bodies, segment_messages: str, loss: str
) -> None:
    make_buffer("orders", segment_messages=segment_messages)
    lines = [b"%d\n" % i for i in range(1, 11)]
    run("hbuf-append", "orders", *FROM_1, stdin=b"".join(lines))
    run("hbuf-append", "orders", "--producer", "other", "--producer-seq", "1", stdin=b"x\n")
    state = Path("orders/producers")
    if loss == "removed":
        state.unlink(missing_ok=True)
    elif loss == "damaged":
        state.write_bytes(state.read_bytes().replace(b"till", b"tall") if state.exists() else b"damaged\n{}\n")
    assert run("hbuf-append", "orders", *FROM_1, stdin=b"".join([*lines, b"11\n"])) == (0, b"", "")
    assert bodies("orders") == [b"%d" % i for i in range(1, 11)] + [b"x", b"11"]
    assert run("hbuf-verify", "--quiet", "orders").code == 0


@pytest.mark.over_https
@pytest.mark.parametrize("seen_before_the_kill", [1, 150])
def test_file_sent_again_after_a_kill_gives_each_message_once(
    run: Run, make_buffer: MakeBuffer, bodies: Bodies, wait_until: WaitUntil, seen_before_the_kill: int
) -> None:
    make_buffer("orders", segment_messages="100")
    lines = [b"%d\n" % i for i in range(1, 2001)]
    process = run.start("hbuf-append", "orders", "--fsync", "always", *FROM_1)
    assert process.stdin
    process.stdin.write(b"".join(lines[:1500]))
    wait_until(lambda: len(bodies("orders")) >= seen_before_the_kill, "the first messages are stored")
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert run("hbuf-append", "orders", *FROM_1, stdin=b"".join(lines)).code == 0
    assert bodies("orders") == [line.rstrip() for line in lines]
    assert run("hbuf-verify", "--quiet", "orders").code == 0


@pytest.mark.over_https
def test_gap_is_taken_unless_strict(run: Run, bodies: Bodies) -> None:
    run("hbuf-append", "orders", *FROM_1, stdin=b"a\n")
    far = ["--producer", "till 4", "--producer-seq", "3"]
    done = run("hbuf-append", "orders", "--strict-seq", *far, stdin=b"c\n")
    assert done == (65, b"", "hbuf-append: orders: producer till 4 goes from 1 to 3; 0 messages were stored\n")
    assert run("hbuf-append", "orders", *far, stdin=b"c\n") == (0, b"", "")
    assert bodies("orders") == [b"a", b"c"]


@pytest.mark.over_https
def test_strict_takes_the_next_number_and_duplicates(run: Run, bodies: Bodies) -> None:
    run("hbuf-append", "orders", "--strict-seq", *FROM_1, stdin=b"a\nb\n")
    from_2 = ["--producer", "till 4", "--producer-seq", "2"]
    assert run("hbuf-append", "orders", "--strict-seq", *from_2, stdin=b"b\nc\n") == (0, b"", "")
    assert bodies("orders") == [b"a", b"b", b"c"]


@pytest.mark.over_https
def test_requests_can_carry_their_producer(run: Run, bodies: Bodies) -> None:
    def sent(number: int, body: bytes) -> bytes:
        return b"POST / HTTP/1.1\r\nx-hbuf-producer: p\r\nx-hbuf-producer-seq: %d\r\ncontent-length: %d\r\n\r\n%b" % (
            number,
            len(body),
            body,
        )

    stream = sent(1, b"a") + sent(2, b"b")
    assert run("hbuf-append", "--http", "orders", stdin=stream) == (0, b"", "")
    assert run("hbuf-append", "--http", "orders", stdin=stream + sent(3, b"c")) == (0, b"", "")
    assert bodies("orders") == [b"a", b"b", b"c"]


@pytest.mark.over_https
def test_atomic_unit_sent_again_is_not_stored_again(run: Run, bodies: Bodies) -> None:
    for _ in range(2):
        assert run("hbuf-append", "orders", "--atomic", *FROM_1, stdin=b"a\nb\n") == (0, b"", "")
    assert bodies("orders") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--producer", "p"], "--producer and --producer-seq come together"),
        (["--producer-seq", "1"], "--producer and --producer-seq come together"),
        (["--producer", "", "--producer-seq", "1"], "cannot be empty"),
        (["--producer", "a\nb", "--producer-seq", "1"], "control character"),
        (["--producer", "p", "--producer-seq", "-1"], "--producer-seq is a number from 0 on"),
        (["--producer", "p", "--producer-seq", str(10**18)], "--producer-seq is a number from 0 on"),
        (["--producer", "p", "--producer-seq", "one"], "--producer-seq"),
        (["--producer", "p" * 129, "--producer-seq", "1"], "128"),
        (["--producer", "é" * 65, "--producer-seq", "1"], "128"),
    ],
)
def test_producer_that_cannot_be_is_refused(run: Run, options: list[str], said: str) -> None:
    done = run("hbuf-append", "orders", *options, stdin=b"a\n")
    assert (done.code, done.out) == (2, b"")
    assert said in done.err
    assert not list(Path("orders/segments").glob("*"))


@pytest.mark.over_https
def test_longest_name_and_largest_number_of_a_producer_are_taken(run: Run, bodies: Bodies) -> None:
    options = ["--producer", "é" * 64, "--producer-seq", str(10**18 - 1)]
    for _ in range(2):
        assert run("hbuf-append", "orders", *options, stdin=b"a\n") == (0, b"", "")
    assert bodies("orders") == [b"a"]
    assert run("hbuf-verify", "--quiet", "orders").code == 0
