"""What a process is doing when it dies: each scenario has a state before, the work, and what is asked afterwards.

Bodies are all different, so that each message can be told from every other. Some are longer than a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from hbuf.ops.compress import compress
from hbuf.ops.create import create
from hbuf.ops.reindex import reindex
from hbuf.ops.set import read_settings, set_settings
from hbuf.ops.verify import verify
from hbuf.store.outgoing import Outgoing

from .checking import Answers, Stored, append, append_to, check_survived, open_writer, read_all

PAGE_BYTES = 4096
BEFORE = [b"before %d" % n for n in range(3)]
WHILE = [b"while %d" % n for n in range(6)]
LONG = [b"long %d " % n + b"." * (PAGE_BYTES * (n + 1) + 100) for n in range(2)]
MANY = [b"%d" % n for n in range(400)]  # their index has four pages
UNITS = [[WHILE[0], LONG[0]], [WHILE[1], LONG[1], WHILE[2]]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`prepare` makes the state before, below an empty directory; `work` is what dies. Both tell what was answered."""

    name: str
    prepare: Callable[[Path, Answers], None]
    work: Callable[[Path, Answers], None]
    attempted: tuple[bytes, ...] = ()
    check: Callable[[Path, Answers], None] = lambda path, answers: None
    makes: bool = False  # the buffer itself: it may be absent until that was answered for
    locks_readers_out: bool = False  # without an index they wait for the lock, which the worker has
    fewest_calls: int = 3  # that change files: with fewer the scenario would not do what it says
    key: str | None = None  # of a signed buffer: the key file, below the directory that the scenario was given
    identity: str | None = None  # the key file that decrypts an encrypted one, below the same directory
    again: Callable[[Path], None] = lambda where: None  # what its user does first, who was not told that it was done

    def __str__(self) -> str:
        return self.name

    def check_after(self, where: Path, answers: Answers, shown: Iterable[Stored] = ()) -> None:
        """`where` is the directory that the scenario was given."""
        path = buffer_in(where)
        self.open_again(where, answers)
        key, identity = self.key_in(where), self.identity_in(where)
        check_survived(path, answers.stored, self.attempted, shown=shown, key=key, identity=identity)
        self.check(path, answers)

    def open_again(self, where: Path, answers: Answers) -> None:
        """What the user does who finds the process dead."""
        if self.makes and "made" not in answers.done:
            create(str(buffer_in(where)), may_exist=True)
        self.again(where)

    def key_in(self, where: Path) -> Path | None:
        return where / self.key if self.key else None

    def identity_in(self, where: Path) -> Path | None:
        return where / self.identity if self.identity else None


def buffer_in(where: Path) -> Path:
    return where / "deep" / "orders"


def segment_file(where: Path, first: int = 1) -> Path:
    return buffer_in(where) / "segments" / f"{first:020d}.http"


def index_file(where: Path, first: int = 1) -> Path:
    return segment_file(where, first).with_suffix(".idx")


# What is there before


def nothing(where: Path, answers: Answers) -> None:
    pass


def no_messages(where: Path, answers: Answers) -> None:
    create(str(buffer_in(where)))


def some_messages(where: Path, answers: Answers) -> None:
    create(str(buffer_in(where)))
    answers.note_stored(append_to(buffer_in(where), *BEFORE))


def small_segments(where: Path, answers: Answers) -> None:
    create(str(buffer_in(where)), {"segment_messages": "2"})
    answers.note_stored(append_to(buffer_in(where), *BEFORE))


def segments_to_compress(where: Path, answers: Answers) -> None:
    create(str(buffer_in(where)), {"segment_messages": "2"})
    answers.note_stored(append_to(buffer_in(where), *LONG, *BEFORE))


def compressing_segments(where: Path, answers: Answers) -> None:
    create(str(buffer_in(where)), {"segment_messages": "2", "compress": "true"})
    answers.note_stored(append_to(buffer_in(where), *BEFORE))


def torn_tail(where: Path, answers: Answers) -> None:
    """A process died in an append: behind what is listed are a whole message, of some pages, and part of another."""
    some_messages(where, answers)
    listed, length = index_file(where).read_bytes(), segment_file(where).stat().st_size
    append_to(buffer_in(where), LONG[1])
    whole = segment_file(where).stat().st_size
    append_to(buffer_in(where), LONG[0])
    index_file(where).write_bytes(listed)
    segment = segment_file(where).read_bytes()
    assert length + 2 * PAGE_BYTES < whole < len(segment) - PAGE_BYTES
    segment_file(where).write_bytes(segment[:-PAGE_BYTES])
    answers.torn = segment[whole:-PAGE_BYTES]


def torn_tail_without_index(where: Path, answers: Answers) -> None:
    torn_tail(where, answers)
    index_file(where).unlink()


def messages_of_a_producer(where: Path, answers: Answers) -> None:
    create(str(buffer_in(where)), {"segment_messages": "2"})
    answers.note_stored(_send(buffer_in(where), BEFORE, 1))


def _send(path: Path, bodies: list[bytes], number: int) -> list[Stored]:
    """As the producer `sensor`, from its `number` on. Only what is new is told as stored."""
    with open_writer(path) as writer:
        done = writer.append(Outgoing(bodies, producers=[(b"sensor", number + i) for i in range(len(bodies))]))
    told = [Stored(seq, id_.decode(), body) for seq, id_, body in zip(done.seqs, done.ids, bodies, strict=True)]
    return [stored for place, stored in enumerate(told) if place not in done.duplicates]


# What dies


def _create(where: Path, answers: Answers) -> None:
    create(str(buffer_in(where)), {"segment_messages": "2"})
    answers.note_done("made")
    answers.note_stored(append_to(buffer_in(where), WHILE[0]))


def _append(where: Path, answers: Answers) -> None:
    with open_writer(buffer_in(where)) as writer:
        for body in (*WHILE[:2], *LONG):
            answers.note_stored(append(writer, [body]))
        answers.note_stored(append(writer, WHILE[2:]))


def _append_over_segments(where: Path, answers: Answers) -> None:
    with open_writer(buffer_in(where)) as writer:
        for body in WHILE[:2]:
            answers.note_stored(append(writer, [body]))
        answers.note_stored(append(writer, [*LONG, *WHILE[2:]]))


def _change_settings(where: Path, answers: Answers) -> None:
    set_settings(str(buffer_in(where)), {"segment_messages": "70"}, timeout_seconds=20)
    answers.note_done("set")
    answers.note_stored(append_to(buffer_in(where), WHILE[0]))


def _append_two(where: Path, answers: Answers) -> None:
    with open_writer(buffer_in(where)) as writer:
        for body in WHILE[1:3]:
            answers.note_stored(append(writer, [body]))


def _open(where: Path, answers: Answers) -> None:
    with open_writer(buffer_in(where)) as writer, writer.locked():
        pass


def _append_many(where: Path, answers: Answers) -> None:
    answers.note_stored(append_to(buffer_in(where), *MANY))


def _append_units(where: Path, answers: Answers) -> None:
    with open_writer(buffer_in(where)) as writer:
        for unit in UNITS:
            answers.note_stored(append(writer, unit, unit=True))


def _send_on(where: Path, answers: Answers) -> None:
    answers.note_stored(_send(buffer_in(where), WHILE[:1], 4))
    answers.note_stored(_send(buffer_in(where), WHILE[1:3], 5))


def _reindex(where: Path, answers: Answers) -> None:
    reindex(str(buffer_in(where)), timeout_seconds=20)


def _compress(where: Path, answers: Answers) -> None:
    compress(str(buffer_in(where)), timeout_seconds=20)
    answers.note_done("compressed")


# What is asked afterwards, beside what is always asked


def _settings_are_old_or_new(path: Path, answers: Answers) -> None:
    settings = read_settings(str(path))
    assert settings.segment_messages in ((70,) if "set" in answers.done else (None, 70))


def _torn_bytes_are_set_aside(path: Path, answers: Answers) -> None:
    assert answers.torn in [file.read_bytes() for file in (path / "quarantine").iterdir()]


def _units_are_whole_or_absent(path: Path, answers: Answers) -> None:
    bodies = [message.body for message in read_all(path)]
    for unit in UNITS:
        assert [body for body in bodies if body in unit] in ([], unit)


def _sending_again_stores_what_is_missing(path: Path, answers: Answers) -> None:
    sent = [*BEFORE, *WHILE[:3]]
    _send(path, sent, 1)
    assert sorted(message.body for message in read_all(path) if message.body in sent) == sorted(sent)


def _can_be_compressed_to_the_end(path: Path, answers: Answers) -> None:
    segments = path / "segments"
    if "compressed" in answers.done:
        assert not (segments / f"{1:020d}.http").exists()
    before = read_all(path)
    assert compress(str(path), timeout_seconds=20)
    assert read_all(path) == before
    assert len(list(segments.glob("*.http"))) == 1
    assert not list(segments.glob(".new-compressed*"))
    assert verify(str(path), jobs=1).ok


CREATING = Scenario("creating", nothing, _create, (WHILE[0],), makes=True, fewest_calls=15)
APPENDING = Scenario("appending", some_messages, _append, (*WHILE, *LONG), fewest_calls=15)
ROLLING = Scenario("rolling", small_segments, _append_over_segments, (*WHILE, *LONG), fewest_calls=40)
SETTING = Scenario("setting", some_messages, _change_settings, (WHILE[0],), _settings_are_old_or_new, fewest_calls=15)
SETTING_AN_EMPTY_ONE = Scenario(
    "setting an empty one", no_messages, _change_settings, (WHILE[0],), _settings_are_old_or_new, fewest_calls=8
)
RECOVERING = Scenario(
    "recovering", torn_tail, _append_two, (*WHILE[1:3], LONG[1]), _torn_bytes_are_set_aside, fewest_calls=12
)
RECOVERING_WITHOUT_INDEX = Scenario(
    "recovering without an index",
    torn_tail_without_index,
    _append_two,
    (*WHILE[1:3], LONG[1]),
    _torn_bytes_are_set_aside,
    locks_readers_out=True,
    fewest_calls=12,
)
OPENING = Scenario("opening", torn_tail, _open, (LONG[1],), _torn_bytes_are_set_aside, fewest_calls=8)
APPENDING_MANY = Scenario("appending many", some_messages, _append_many, tuple(MANY))
UNITS_OF_MESSAGES = Scenario(
    "units", small_segments, _append_units, (*UNITS[0], *UNITS[1]), _units_are_whole_or_absent, fewest_calls=20
)
PRODUCING = Scenario(
    "producing", messages_of_a_producer, _send_on, tuple(WHILE[:3]), _sending_again_stores_what_is_missing
)
REINDEXING = Scenario("reindexing", messages_of_a_producer, _reindex, fewest_calls=15)
COMPRESSING = Scenario(
    "compressing", segments_to_compress, _compress, (), _can_be_compressed_to_the_end, fewest_calls=15
)
COMPRESSING_AS_IT_ROLLS = Scenario(
    "compressing as it rolls",
    compressing_segments,
    _append_over_segments,
    (*WHILE, *LONG),
    _can_be_compressed_to_the_end,
    fewest_calls=60,
)

SCENARIOS = [
    CREATING,
    APPENDING,
    ROLLING,
    SETTING,
    SETTING_AN_EMPTY_ONE,
    RECOVERING,
    RECOVERING_WITHOUT_INDEX,
    UNITS_OF_MESSAGES,
    PRODUCING,
    REINDEXING,
    COMPRESSING,
    COMPRESSING_AS_IT_ROLLS,
]
