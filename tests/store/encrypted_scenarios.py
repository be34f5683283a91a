"""What a process does to an encrypted buffer when it dies: whatever is left of it can be read with the recipient's key.

A data key is nowhere but in the PUT that brings it: a message whose PUT is lost would verify, and be lost all the same.
"""

from __future__ import annotations

from pathlib import Path

from hbuf.ops.create import create
from hbuf.ops.set import set_settings
from hbuf.store.signing import Signer

from .checking import Answers, append, append_to, check_verifies, open_writer, read_all
from .encryption_keys import create_encrypted, make_identity, public_text
from .scenarios import BEFORE, LONG, UNITS, WHILE, Scenario, buffer_in, index_file, segment_file
from .signed_scenarios import KEY, PUBLICS, make_key

IDENTITY, OTHER_IDENTITY = "keys/alice.key", "keys/bob.key"
TORN = b"of which only a part is there " + b"." * 100

# What is there before


def _some_messages(where: Path, answers: Answers) -> None:
    create_encrypted(buffer_in(where), make_identity(where, "alice"), segment_messages="4")
    answers.note_stored(append_to(buffer_in(where), *BEFORE))


def _some_messages_and_another_identity(where: Path, answers: Answers) -> None:
    _some_messages(where, answers)
    make_identity(where, "bob")


def _a_key_without_its_message(where: Path, answers: Answers) -> None:
    """A process died in an append: behind what is listed is a data key, and half of the message that it was for."""
    _some_messages(where, answers)
    listed, durable = index_file(where).read_bytes(), segment_file(where).stat().st_size
    append_to(buffer_in(where), TORN)
    index_file(where).write_bytes(listed)
    segment = segment_file(where).read_bytes()[: -len(TORN)]
    segment_file(where).write_bytes(segment)
    answers.torn = segment[durable:]


def _some_signed_messages(where: Path, answers: Answers) -> None:
    signer, recipients = Signer(make_key(where, KEY)), [public_text(make_identity(where, "alice"))]
    create(str(buffer_in(where)), {"segment_messages": "2"}, signer=signer, recipients=recipients)
    answers.note_stored(append_to(buffer_in(where), *BEFORE, key=where / KEY))


def _some_signed_messages_compressed(where: Path, answers: Answers) -> None:
    _some_signed_messages(where, answers)
    set_settings(str(buffer_in(where)), {"compress": "true"}, timeout_seconds=20, signer=Signer(where / KEY))


# What dies


def _append_over_segments(where: Path, answers: Answers) -> None:
    """Two writers, each with its own data key in the first segment, and a third in the next."""
    with open_writer(buffer_in(where)) as writer:
        answers.note_stored(append(writer, WHILE[:1]))
        answers.note_stored(append(writer, [LONG[0], WHILE[1]]))
        answers.note_stored(append(writer, WHILE[2:3]))
    answers.note_stored(append_to(buffer_in(where), WHILE[3]))


def _append_units(where: Path, answers: Answers) -> None:
    with open_writer(buffer_in(where)) as writer:
        for unit in UNITS:
            answers.note_stored(append(writer, unit, unit=True))


def _append_two(where: Path, answers: Answers) -> None:
    with open_writer(buffer_in(where)) as writer:
        for body in WHILE[:2]:
            answers.note_stored(append(writer, [body]))


def _add_recipient(where: Path, answers: Answers) -> None:
    added = [public_text(where / OTHER_IDENTITY)]
    set_settings(str(buffer_in(where)), {}, timeout_seconds=20, added=added)
    answers.note_stored(append_to(buffer_in(where), *WHILE[:2]))


def _append_signed(where: Path, answers: Answers) -> None:
    with open_writer(buffer_in(where), key=where / KEY) as writer:
        answers.note_stored(append(writer, WHILE[:1]))
        answers.note_stored(append(writer, [LONG[0], WHILE[1]]))


# What is asked afterwards


def _no_body_is_on_disk(path: Path, answers: Answers) -> None:
    content = b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())
    assert [body for body in (*BEFORE, *WHILE, *LONG, TORN) if body in content] == []


def _torn_bytes_are_set_aside(path: Path, answers: Answers) -> None:
    _no_body_is_on_disk(path, answers)
    assert answers.torn in [file.read_bytes() for file in (path / "quarantine").iterdir()]


def _units_are_whole_or_absent(path: Path, answers: Answers) -> None:
    _no_body_is_on_disk(path, answers)
    bodies = [message.body for message in read_all(path, path.parents[1] / IDENTITY)]
    for unit in UNITS:
        assert [body for body in bodies if body in unit] in ([], unit)


def _all_is_signed(path: Path, answers: Answers) -> None:
    _no_body_is_on_disk(path, answers)
    check_verifies(path, len(read_all(path)), signer=PUBLICS[KEY])


ENCRYPTED_ROLLING = Scenario(
    "rolling an encrypted one",
    _some_messages,
    _append_over_segments,
    (*WHILE[:4], LONG[0]),
    _no_body_is_on_disk,
    fewest_calls=25,
    identity=IDENTITY,
)
ENCRYPTED_UNITS = Scenario(
    "encrypted units",
    _some_messages,
    _append_units,
    (*UNITS[0], *UNITS[1]),
    _units_are_whole_or_absent,
    fewest_calls=15,
    identity=IDENTITY,
)
ENCRYPTED_RECOVERING = Scenario(
    "recovering a data key without its message",
    _a_key_without_its_message,
    _append_two,
    tuple(WHILE[:2]),
    _torn_bytes_are_set_aside,
    fewest_calls=12,
    identity=IDENTITY,
)
CHANGING_RECIPIENTS = Scenario(
    "changing recipients",
    _some_messages_and_another_identity,
    _add_recipient,
    tuple(WHILE[:2]),
    _no_body_is_on_disk,
    fewest_calls=15,
    identity=IDENTITY,
)
ENCRYPTED_AND_SIGNED = Scenario(
    "rolling an encrypted and signed one",
    _some_signed_messages,
    _append_signed,
    (*WHILE[:2], LONG[0]),
    _all_is_signed,
    fewest_calls=20,
    key=KEY,
    identity=IDENTITY,
)

ENCRYPTED_SIGNED_AND_COMPRESSING = Scenario(
    "rolling an encrypted, signed and compressing one",
    _some_signed_messages_compressed,
    _append_signed,
    (*WHILE[:2], LONG[0]),
    _all_is_signed,
    fewest_calls=30,
    key=KEY,
    identity=IDENTITY,
)

ENCRYPTED = [
    ENCRYPTED_ROLLING,
    ENCRYPTED_UNITS,
    ENCRYPTED_RECOVERING,
    CHANGING_RECIPIENTS,
    ENCRYPTED_AND_SIGNED,
    ENCRYPTED_SIGNED_AND_COMPRESSING,
]
