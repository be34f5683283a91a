"""What a process does to a signed buffer when it dies: its key file is changed with the buffer, and lies beside it.

However it ends, the key file that is left signs on, the first public key verifies all, and once the next segment is
opened nothing on disk can sign for the ones before.
"""

from __future__ import annotations

import base64
from pathlib import Path

from nacl.signing import SigningKey

from hbuf.format.keys import Kind, new_key_file
from hbuf.ops.create import create
from hbuf.ops.set import set_settings
from hbuf.store.keyring import create_key
from hbuf.store.signing import RecoveryKey, Signer

from .checking import Answers, append, append_to, check_verifies, open_writer, read_all
from .scenarios import BEFORE, LONG, WHILE, Scenario, buffer_in

KEY, NEW_KEY, RECOVERY_KEY = "keys/audit.key", "keys/new.key", "keys/recovery.key"
SECRETS = {KEY: b"a" * 31 + b"\xfb", NEW_KEY: b"n" * 31 + b"\xfb", RECOVERY_KEY: b"r" * 31 + b"\xfb"}
PUBLICS = {name: bytes(SigningKey(secret).verify_key) for name, secret in SECRETS.items()}


def make_key(where: Path, name: str, kind: Kind = "sign") -> Path:
    create_key(where / name, new_key_file(kind, SECRETS[name]))
    return where / name


def holders_of(secret: bytes, below: Path) -> list[Path]:
    """The files below a directory in which a secret can be found, in any of the ways to write it down."""
    forms = [secret, secret.hex().encode(), base64.b64encode(secret)[:42], base64.urlsafe_b64encode(secret)[:42]]
    files = [path for path in below.rglob("*") if path.is_file()]
    return [path for path in files if any(form in path.read_bytes() for form in forms)]


# What is there before


def _a_key(where: Path, answers: Answers) -> None:
    make_key(where, KEY)


def _no_messages(where: Path, answers: Answers) -> None:
    make_key(where, KEY)
    make_key(where, RECOVERY_KEY, "recovery")
    settings, recovery = {"segment_messages": "2"}, PUBLICS[RECOVERY_KEY]
    create(str(buffer_in(where)), settings, signer=Signer(where / KEY), recovery_key=recovery)


def _some_messages(where: Path, answers: Answers) -> None:
    _no_messages(where, answers)
    answers.note_stored(append_to(buffer_in(where), *BEFORE, key=where / KEY))


def _a_lost_key(where: Path, answers: Answers) -> None:
    _some_messages(where, answers)
    make_key(where, NEW_KEY)


# What dies


def _create(where: Path, answers: Answers) -> None:
    create(str(buffer_in(where)), {"segment_messages": "2"}, signer=Signer(where / KEY))
    answers.note_done("made")
    answers.note_stored(append_to(buffer_in(where), WHILE[0], key=where / KEY))


def _append_over_segments(where: Path, answers: Answers) -> None:
    with open_writer(buffer_in(where), key=where / KEY) as writer:
        answers.note_stored(append(writer, WHILE[:1]))
        answers.note_stored(append(writer, [LONG[0], *WHILE[1:3]]))


def _change_settings(where: Path, answers: Answers) -> None:
    set_settings(str(buffer_in(where)), {"segment_messages": "70"}, timeout_seconds=20, signer=Signer(where / KEY))
    answers.note_stored(append_to(buffer_in(where), *WHILE[:2], key=where / KEY))


def _start_line(where: Path, answers: Answers) -> None:
    _take_over(where)
    answers.note_stored(append_to(buffer_in(where), WHILE[0], key=where / NEW_KEY))


# What is done again, and asked, afterwards


def _make_again(where: Path) -> None:
    create(str(buffer_in(where)), {"segment_messages": "2"}, may_exist=True, signer=Signer(where / KEY))


def _take_over(where: Path) -> None:
    """The new key takes over, unless it has."""
    signer, recovery = Signer(where / NEW_KEY), RecoveryKey(where / RECOVERY_KEY)
    set_settings(str(buffer_in(where)), {}, timeout_seconds=20, signer=signer, recovery=recovery)


def _key_signs_on_and_its_first_secret_is_gone(path: Path, answers: Answers) -> None:
    _check_key(path, KEY)


def _new_key_signs_on(path: Path, answers: Answers) -> None:
    _check_key(path, NEW_KEY)


def _check_key(path: Path, name: str) -> None:
    where = path.parents[1]
    with open_writer(path, key=where / name) as writer:
        writer.roll()
    append_to(path, b"behind a roll", key=where / name)
    check_verifies(path, len(read_all(path)), signer=PUBLICS[KEY])
    assert holders_of(SECRETS[name], where) == []


SIGNED_CREATING = Scenario(
    "creating a signed one",
    _a_key,
    _create,
    (WHILE[0],),
    _key_signs_on_and_its_first_secret_is_gone,
    fewest_calls=20,
    key=KEY,
    again=_make_again,
)
SIGNED_ROLLING = Scenario(
    "rolling a signed one",
    _some_messages,
    _append_over_segments,
    (*WHILE[:3], LONG[0]),
    _key_signs_on_and_its_first_secret_is_gone,
    fewest_calls=40,
    key=KEY,
)
SIGNED_SETTING = Scenario(
    "setting an empty signed one",
    _no_messages,
    _change_settings,
    tuple(WHILE[:2]),
    _key_signs_on_and_its_first_secret_is_gone,
    fewest_calls=12,
    key=KEY,
)
NEW_LINE = Scenario(
    "starting a new line of keys",
    _a_lost_key,
    _start_line,
    (WHILE[0],),
    _new_key_signs_on,
    fewest_calls=20,
    key=NEW_KEY,
    again=_take_over,
)

SIGNED = [SIGNED_CREATING, SIGNED_ROLLING, SIGNED_SETTING, NEW_LINE]
