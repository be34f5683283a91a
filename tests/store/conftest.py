"""Fixtures of the fault tests."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import hbuf.store.compress
from hbuf.format.chain import Hasher
from hbuf.format.settings import Settings
from hbuf.ops.create import create
from hbuf.store import encoding
from hbuf.store.data_keys import DrawnKey
from hbuf.store.signing import Signer

from .compressed_buffer import FRAME_BYTES, CompressedBuffer
from .encryption_keys import make_identity
from .signed_scenarios import KEY, PUBLICS, RECOVERY_KEY, make_key


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "hbuf-test", str(mounted)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if ran.returncode:
        pytest.skip(f"mounting is not permitted here: {ran.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


@pytest.fixture
def signed(ram_path: Path) -> Path:
    """An empty signed buffer, three messages a segment. Keys, and a recovery key, are in `keys` beside it."""
    make_key(ram_path, KEY)
    make_key(ram_path, RECOVERY_KEY, "recovery")
    settings = {"segment_messages": "3"}
    create(str(ram_path / "orders"), settings, signer=Signer(ram_path / KEY), recovery_key=PUBLICS[RECOVERY_KEY])
    return ram_path / "orders"


@pytest.fixture
def audit(signed: Path) -> Path:
    """The key file of the buffer `signed`."""
    return signed.parent / KEY


@pytest.fixture
def compressed(ram_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompressedBuffer:
    monkeypatch.setattr(hbuf.store.compress, "FRAME_BYTES", FRAME_BYTES)
    return CompressedBuffer(ram_path / "orders")


@pytest.fixture
def alice(ram_path: Path) -> Path:
    """A key file that decrypts."""
    return make_identity(ram_path, "alice")


@pytest.fixture
def bob(ram_path: Path) -> Path:
    """Another one."""
    return make_identity(ram_path, "bob")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The data keys that writers draw from now on, as they are."""
    keys: list[bytes] = []

    class Drawing(DrawnKey):
        def __init__(self, settings: Settings, hasher: Hasher) -> None:
            super().__init__(settings, hasher)
            keys.append(self._key)

    monkeypatch.setattr(encoding, "DrawnKey", Drawing)
    return keys
