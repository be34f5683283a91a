"""What holds for all tests, and what those of more than one kind use."""

import base64
import hashlib
import importlib
import importlib.util
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from running_daemon import RunningDaemon as RunningDaemon

# A shell starts what it puts into the background with SIGINT ignored, and programs that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A Java that is started for seconds need not compile as for hours. It is asked for all that tests start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_MEMORY = Path("/dev/shm")


@pytest.fixture
def ram_path(tmp_path: Path) -> Iterator[Path]:
    """An empty directory in memory, where there is one: for tests that sync thousands of times and cut no power."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="hbuf-test-", dir=_MEMORY) as path:
        yield Path(path)


CONTRIB = Path(__file__).parents[1] / "contrib"
OpenNote = Callable[[bytes, str, bytes], list[str]]


@pytest.fixture
def open_note() -> OpenNote:
    """open_note(note, key name, public key): the lines of a note that this key signed.

    Written after https://c2sp.org/signed-note, and knows nothing of hbuf: what it takes, other tools take.
    """

    def opened(note: bytes, key_name: str, public: bytes) -> list[str]:
        from nacl.bindings import crypto_sign_open

        lines = note.decode("utf-8", "strict")
        assert not [char for char in lines if char < " " and char != "\n"], "a control character"
        assert lines.endswith("\n")
        # The text ends at the last blank line, and its own newline is signed with it.
        text, blank, signatures = lines.rpartition("\n\n")
        assert blank, "no signatures"
        text += "\n"
        key_hash = hashlib.sha256(key_name.encode() + b"\x0a" + b"\x01" + public).digest()[:4]
        found = []
        for line in signatures.removesuffix("\n").split("\n"):
            dash, name, encoded = line.split(" ")
            assert dash == "\u2014"
            assert name, "a key has a name"
            assert "+" not in name
            signature = base64.b64decode(encoded, validate=True)
            assert base64.b64encode(signature).decode() == encoded
            if name == key_name and signature[:4] == key_hash:
                found.append(signature[4:])
        [signature] = found
        assert len(signature) == 64
        assert crypto_sign_open(signature + text.encode(), public) == text.encode()
        return text.removesuffix("\n").split("\n")

    return opened


SlipIn = Callable[..., None]


@pytest.fixture
def slip_in() -> SlipIn:
    """slip_in(buffer, b"one", b"two"): messages behind the last one, chained and listed, by somebody without a key.

    With `sign`, which is given a number and an id, the last of them carries what it returns as its signature.
    """

    def slip(path: Path, *bodies: bytes, sign: Callable[[int, bytes], bytes] | None = None) -> None:
        import itertools
        import time

        from hbuf.format.chain import hasher_named
        from hbuf.format.fields import NO_FIELDS
        from hbuf.format.index import DURABLE_LENGTH_AT, LENGTH
        from hbuf.format.record import encode_messages
        from hbuf.store.clock import draw_salts

        segment = max(path.glob("segments/*.http"))
        content = segment.read_bytes()
        last = re.findall(rb"^x-hbuf-id: ([0-9a-f]{64})\r$", content, re.MULTILINE)[-1]
        seq = max(int(number) for number in [b"0", *re.findall(rb"^x-hbuf-seq: (\d+)\r$", content, re.MULTILINE)])
        batch = encode_messages(
            hasher_named("blake3"),
            path.name,
            last,
            (seq or int(segment.stem) - 1) + 1,
            time.time_ns() // 1000,
            draw_salts(len(bodies)),
            bodies,
            itertools.repeat(NO_FIELDS),
            itertools.repeat(b""),
            offset=len(content),
            sign=sign,
        )
        segment.write_bytes(content + batch.data)
        index = segment.with_suffix(".idx")
        listed = bytearray(index.read_bytes() + batch.entries)
        LENGTH.pack_into(listed, DURABLE_LENGTH_AT, len(content) + len(batch.data))
        index.write_bytes(listed)

    return slip


NewKey = Callable[..., tuple[Path, str]]


@pytest.fixture
def new_key(tmp_path: Path) -> NewKey:
    """new_key("alice"), new_key("audit", "sign"): a key file, and its public key as text.

    The secret is always the same, and another for each name.
    """

    def made(name: str, kind: Literal["sign", "encrypt"] = "encrypt") -> tuple[Path, str]:
        from hbuf.format.keys import encode_public, new_key_file, public_key
        from hbuf.store.keyring import create_key, load_key

        path = tmp_path / "keys" / f"{name}.key"
        create_key(path, new_key_file(kind, name.encode().ljust(32, b"\xfb")))
        return path, encode_public(public_key(load_key(path)))

    return made


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a module of contrib/soak."""
    monkeypatch.syspath_prepend(str(CONTRIB))
    return lambda name: importlib.import_module(f"soak.{name}")


def _running_daemon() -> Any:
    """The module beside this one, known by its name from now on: folders of tests are not on Python's path."""
    name = "running_daemon"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


_running_daemon()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RunningDaemon]":
    """A real hbufd that all tests share: each has a tenant, or buffers, of its own, and leaves the rest as it is."""
    with _running_daemon().running(tmp_path_factory.mktemp("daemon") / "root") as running:
        yield running


StartDaemon = Callable[..., "RunningDaemon"]


@pytest.fixture
def start_daemon(tmp_path: Path) -> Iterator[StartDaemon]:
    """start_daemon("root", "--flag", config="[limits]…", listen=[…]): a real hbufd of this test alone, on a new root.

    The same name again is the same root. All of them are killed at the end.
    """
    with ExitStack() as ended:

        def start(name: str = "root", *arguments: str, **settings: Any) -> "RunningDaemon":
            started: RunningDaemon = ended.enter_context(
                _running_daemon().running(tmp_path / name, *arguments, **settings)
            )
            return started

        yield start


@pytest.fixture
def own_daemon(start_daemon: StartDaemon) -> "RunningDaemon":
    """A real hbufd of this test alone: to be killed, stopped and broken."""
    return start_daemon()
