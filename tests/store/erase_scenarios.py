"""What a process that erases is doing when it dies. However it ends, each message is whole, or erased by rule.

Messages have a key, a tag, a field and a body of their own, which can be looked for in every file.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import zstandard

from hbuf.format.fields import encode_fields
from hbuf.format.message import Message
from hbuf.ops.compress import compress
from hbuf.ops.create import create
from hbuf.ops.verify import verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.erase import erase
from hbuf.store.located import Located, SegmentMessages
from hbuf.store.outgoing import Outgoing
from hbuf.store.signing import Signer

from .checking import append_to, open_writer, read_all
from .encryption_keys import make_identity, public_text
from .scenarios import PAGE_BYTES, buffer_in
from .signed_scenarios import KEY, PUBLICS, make_key

WORDS = ("apple", "birch", "cedar", "daisy", "elder", "ferns")


@dataclass(frozen=True, slots=True)
class Secret:
    """What a message says, and its salt: all that has to be gone."""

    key: bytes
    tag: bytes
    field: bytes
    body: bytes
    salt: bytes = b""
    stored: bytes = b""  # the body as it is on disk, which may be encrypted

    @property
    def texts(self) -> list[bytes]:
        return [text for text in (self.key, self.tag, self.field, self.stored or self.body, self.salt) if text]


def secret(word: str, *, pages: int = 0) -> Secret:
    body = f"body of {word}".encode() + b"." * PAGE_BYTES * pages
    return Secret(f"key-{word}".encode(), f"tag-{word}".encode(), f"field-{word}".encode(), body)


SECRETS = [secret(word, pages=pages) for word, pages in zip(WORDS, (0, 1, 0, 2, 0, 0), strict=True)]


def store_secrets(path: Path, secrets: list[Secret], *, unit: bool = False, key: Path | None = None) -> None:
    fields = [
        encode_fields(each.key.decode(), [each.tag.decode()], [("x-field", each.field.decode())]) for each in secrets
    ]
    with open_writer(path, key=key) as writer:
        writer.append(Outgoing([each.body for each in secrets], fields, unit=unit))


def salt_of(path: Path, seq: int) -> bytes:
    return _located(path, seq).record.salt


def _located(path: Path, seq: int) -> Located:
    directory = BufferDirectory(path)
    first = max(first for first in directory.segment_firsts() if first <= seq)
    with SegmentMessages(directory, first) as messages:
        located = messages.find(seq)
    assert located is not None
    return located


def holders(path: Path, text: bytes) -> list[str]:
    """The files below a buffer's directory in which a text can be found, compressed or not."""
    files = [file for file in path.rglob("*") if file.is_file()]
    return [str(file.relative_to(path)) for file in files if text in _decoded(file.read_bytes())]


def _decoded(content: bytes) -> bytes:
    """What whole frames hold, and a last one that is cut, as far as it goes."""
    if not content.startswith(zstandard.FRAME_HEADER):
        return content
    decoded = b""
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content), read_across_frames=True) as reader:
        while piece := reader.read(65_536):
            decoded += piece
    return content + decoded


def erase_in(path: Path, *numbers: int, key: Path | None = None, again: bool = False) -> int:
    with open_writer(path, key=key) as writer:
        return erase(writer, numbers, b"me@here", b"asked for", again=again)


def check_whole_or_erased(
    path: Path,
    secrets: list[Secret],
    wanted: tuple[int, ...],
    *,
    done: bool,
    identity: Path | None = None,
    signer: bytes | None = None,
) -> None:
    """Of each message of `secrets` all is there, or nothing is; those of `wanted` are gone if that was `done`."""
    found = read_all(path, identity)[: len(secrets)]
    assert [message.seq for message in found] == list(range(1, len(secrets) + 1))
    for message, said in zip(found, secrets, strict=True):
        if message.erased:
            assert message.seq in wanted
            assert said_by(message) == (None, (), (), b"")
        else:
            assert not done or message.seq not in wanted
            assert said_by(message) == (said.key, (said.tag,), (said.field,), said.body)
    report = verify(str(path), jobs=1, signer=signer)
    assert report.ok, [str(fault) for fault in report.faults]
    erased = [message.seq for message in found if message.erased]
    assert report.verdicts["chain"]["erased"] == len(erased)
    for seq in erased:
        for text in secrets[seq - 1].texts:
            assert holders(path, text) == []


def said_by(message: Message) -> tuple[bytes | None, tuple[bytes, ...], tuple[bytes, ...], bytes]:
    key = message.key.encode() if message.key is not None else None
    return key, tuple(tag.encode() for tag in message.tags), tuple(v.encode() for _, v in message.headers), message.body


@dataclass(frozen=True, slots=True)
class EraseScenario:
    """A buffer with the messages of SECRETS, from which `numbers` are erased."""

    name: str
    prepare: Callable[[Path], None]
    numbers: tuple[int, ...]
    key: str | None = None
    identity: str | None = None
    fewest_calls: int = 15

    def __str__(self) -> str:
        return self.name

    def work(self, where: Path) -> None:
        erase_in(buffer_in(where), *self.numbers, key=self._key(where))

    def open(self, where: Path) -> None:
        with open_writer(buffer_in(where), key=self._key(where)) as writer, writer.locked():
            pass

    def check_readable(self, where: Path, secrets: list[Secret]) -> None:
        """As a reader finds it, before a writer has opened it."""
        found = read_all(buffer_in(where), self.identity_in(where))
        assert [message.seq for message in found] == list(range(1, len(SECRETS) + 1)), "a reader calls one damaged"
        for message, said in zip(found, secrets, strict=True):
            assert message.erased or message.body == said.body

    def check_opened(self, where: Path, secrets: list[Secret], *, done: bool) -> None:
        """After a writer has opened it."""
        path = buffer_in(where)
        append_to(path, b"one more", key=self._key(where))
        assert not (path / "erasing").exists()
        self.check(where, secrets, done=done)

    def check(self, where: Path, secrets: list[Secret], *, done: bool) -> None:
        identity, signer = self.identity_in(where), PUBLICS[self.key] if self.key else None
        path = buffer_in(where)
        check_whole_or_erased(path, secrets, self.numbers, done=done, identity=identity, signer=signer)

    def identity_in(self, where: Path) -> Path | None:
        return where / self.identity if self.identity else None

    def _key(self, where: Path) -> Path | None:
        return where / self.key if self.key else None


def with_salts(path: Path) -> list[Secret]:
    found = []
    for seq, each in enumerate(SECRETS, 1):
        _, data, record = _located(path, seq)
        found.append(replace(each, salt=record.salt, stored=data[record.body_start : record.body_end]))
    return found


def _newest_segment(where: Path) -> None:
    create(str(buffer_in(where)))
    store_secrets(buffer_in(where), SECRETS)


def _sealed_segments(where: Path) -> None:
    create(str(buffer_in(where)), {"segment_messages": "3"})
    store_secrets(buffer_in(where), SECRETS)


def _sha256(where: Path) -> None:
    create(str(buffer_in(where)), {"segment_messages": "4", "hash": "sha256"})
    store_secrets(buffer_in(where), SECRETS)


def _unit(where: Path) -> None:
    create(str(buffer_in(where)))
    store_secrets(buffer_in(where), SECRETS[:2])
    store_secrets(buffer_in(where), SECRETS[2:5], unit=True)
    store_secrets(buffer_in(where), SECRETS[5:])


def _signed(where: Path) -> None:
    make_key(where, KEY)
    create(str(buffer_in(where)), {"segment_messages": "4"}, signer=Signer(where / KEY))
    store_secrets(buffer_in(where), SECRETS, key=where / KEY)


def _compressed(where: Path) -> None:
    """The last of them are in the newest segment, which is not compressed."""
    _sealed_segments(where)
    assert compress(str(buffer_in(where)), timeout_seconds=20)


def _interrupted_compressing(where: Path) -> None:
    """A process died when it had the compressed file, and not yet removed the plain one."""
    _sealed_segments(where)
    plain = buffer_in(where) / "segments" / f"{1:020d}.http"
    content = plain.read_bytes()
    assert compress(str(buffer_in(where)), timeout_seconds=20)
    plain.write_bytes(content)


def _everything(where: Path) -> None:
    """Signed, encrypted, compressed as it rolls."""
    signer, recipients = Signer(make_key(where, KEY)), [public_text(make_identity(where, "alice"))]
    settings = {"segment_messages": "3", "compress": "true", "hash": "sha256"}
    create(str(buffer_in(where)), settings, signer=signer, recipients=recipients)
    store_secrets(buffer_in(where), SECRETS, key=where / KEY)
    assert (buffer_in(where) / "segments" / f"{1:020d}.http.zst").exists()


def _set_aside(where: Path) -> None:
    """An append was interrupted, and done again: its bytes are in quarantine/, whole and cut off."""
    create(str(buffer_in(where)))
    path = buffer_in(where)
    store_secrets(path, [SECRETS[0]])
    segment, index = path / "segments" / f"{1:020d}.http", path / "segments" / f"{1:020d}.idx"
    listed = index.read_bytes()
    store_secrets(path, SECRETS[1:4], unit=True)
    segment.write_bytes(segment.read_bytes()[: -PAGE_BYTES // 2])
    index.write_bytes(listed)
    store_secrets(path, SECRETS[1:])
    [kept] = (path / "quarantine").iterdir()
    assert SECRETS[1].body in kept.read_bytes()
    assert SECRETS[3].key in kept.read_bytes()


NEWEST = EraseScenario("in the newest segment", _newest_segment, (2, 3, 4))
SEALED = EraseScenario("in sealed segments", _sealed_segments, (1, 3, 4), fewest_calls=25)
EVERYTHING = EraseScenario("of everything", _sealed_segments, (1, 2, 3, 4, 5, 6), fewest_calls=30)
SHA256 = EraseScenario("with SHA-256", _sha256, (4,))
UNIT = EraseScenario("in an atomic unit", _unit, (3, 5))
SIGNED = EraseScenario("in a signed buffer", _signed, (2, 4, 6), KEY)
SET_ASIDE = EraseScenario("of what was set aside, too", _set_aside, (2, 4))

COMPRESSED = EraseScenario("in a compressed segment", _compressed, (1, 3, 4), fewest_calls=25)
BOTH_FILES = EraseScenario("where compressing was interrupted", _interrupted_compressing, (1, 3), fewest_calls=20)
ALL_AT_ONCE = EraseScenario(
    "in a signed, encrypted and compressed one", _everything, (2, 3, 5), KEY, "keys/alice.key", fewest_calls=25
)

INTERRUPTED = [NEWEST, SEALED, UNIT, SIGNED, SET_ASIDE, COMPRESSED, BOTH_FILES, ALL_AT_ONCE]
ERASE_SCENARIOS = [*INTERRUPTED, EVERYTHING, SHA256]
