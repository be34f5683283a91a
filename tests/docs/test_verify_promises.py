"""What hbuf-verify(1) and docs/format.md say a verifier finds, it finds: in buffers that another writer could make.

Every id in them is right. Only the rules about what may stand where are broken.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from pathlib import Path

import pytest

from hbuf.format.chain import ZERO_ID, hasher_named
from hbuf.format.fields import NO_FIELDS
from hbuf.format.record import encode_messages, encode_put
from hbuf.format.settings import Settings, encode_settings
from hbuf.ops.verify import verify

UUID = "6f1c2a9e-3b47-4d58-9c60-7a8b9cadbecf"
SETTINGS = Settings(UUID, "orders", "2026-11-18T11:06:40.000000Z")
TIME_US = 1_795_000_000_000_000
SALT = b"A" * 43


class Forger:
    """Writes chained records, and obeys no rule but that of the chain."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "orders"
        self._segments = self.path / "segments"
        self._segments.mkdir(parents=True)
        (self.path / "lock").touch()
        self._file = self._segments / "none"
        self._prev = ZERO_ID
        self._seq = 1
        self._hash = "blake3"

    def put(
        self, settings: Settings = SETTINGS, *, salted: bool = True, hash_name: str | None = None, inside: bool = False
    ) -> None:
        """Opens a segment, or adds a PUT to the one that is open."""
        self._hash = hash_name or settings.hash
        encoded = encode_settings(settings)
        data, self._prev = encode_put(
            hasher_named(self._hash), "orders", self._prev, self._seq, TIME_US, SALT if salted else None, encoded,
            hash_name=self._hash, uuid=settings.uuid, epoch=1,
        )  # fmt: skip
        if not inside:
            self._file = self._segments / f"{self._seq:020}.http"
        self._write(data)
        (self.path / "buffer.json").write_bytes(encoded)

    def post(self, body: bytes, *, salted: bool = True) -> None:
        batch = encode_messages(
            hasher_named(self._hash), "orders", self._prev, self._seq, TIME_US, SALT + b"." if salted else None, [body],
            repeat(NO_FIELDS), repeat(b""), offset=0,
        )  # fmt: skip
        self._prev = batch.ids[-1]
        self._seq += 1
        self._write(batch.data)

    def _write(self, data: bytes) -> None:
        with self._file.open("ab") as file:
            file.write(data)

    def kinds(self) -> set[str]:
        """Under which headings a verifier finds something."""
        report = verify(str(self.path))
        kinds = {fault.kind for fault in report.faults}
        assert report.ok == (not kinds)
        return kinds


@pytest.fixture
def forger(tmp_path: Path) -> Forger:
    made = Forger(tmp_path)
    made.put()
    made.post(b"one")
    return made


def test_forged_buffer_that_breaks_no_rule_is_intact(forger: Forger) -> None:
    forger.put(replace(SETTINGS, segment_bytes=4096))
    forger.put(replace(SETTINGS, segment_bytes=8192), inside=True)
    forger.post(b"two")
    assert forger.kinds() == set()


@pytest.mark.parametrize(
    "changed",
    [
        replace(SETTINGS, hash="sha256"),
        replace(SETTINGS, erasable=False),
        replace(SETTINGS, name="sales"),
        replace(SETTINGS, created="2020-01-01T00:00:00.000000Z"),
        replace(SETTINGS, uuid="00000000-0000-4000-8000-000000000000"),
    ],
    ids=["hash", "erasable", "name", "created", "uuid"],
)
def test_fixed_setting_that_changed_in_a_later_segment_is_a_fault(forger: Forger, changed: Settings) -> None:
    forger.put(changed, salted=changed.erasable)
    forger.post(b"two", salted=changed.erasable)
    assert "settings" in forger.kinds()


def test_hash_line_that_says_another_hash_than_the_settings_is_a_fault(tmp_path: Path) -> None:
    forger = Forger(tmp_path)
    forger.put(hash_name="sha256")
    forger.post(b"one")
    assert "settings" in forger.kinds()


def test_full_put_behind_a_message_of_the_same_segment_is_a_fault(forger: Forger) -> None:
    forger.put(inside=True)
    forger.post(b"two")
    assert forger.kinds()


@pytest.mark.parametrize("erasable", [True, False])
def test_salt_that_is_missing_or_too_much_is_a_fault(tmp_path: Path, erasable: bool) -> None:
    forger = Forger(tmp_path)
    forger.put(replace(SETTINGS, erasable=erasable), salted=erasable)
    forger.post(b"one", salted=not erasable)
    assert forger.kinds()
