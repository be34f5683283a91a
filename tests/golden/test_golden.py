"""The golden buffers: read, verified and written by this version, byte for byte. Nothing here changes them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import httptools
import pytest

from hbuf.library import Buffer
from hbuf.ops.reindex import reindex
from hbuf.ops.verify import verify

GOLDEN = Path(__file__).parent
NAMES = ["orders", "audit"]
AUDIT_SCRIPT = GOLDEN.parents[1] / "contrib" / "hbuf-audit.sh"

B3SUM = f"""\
#!{sys.executable}
import sys
from blake3 import blake3
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        print(f"{{blake3(file.read()).hexdigest()}}  {{name}}")
"""


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def buffer(name: str, tmp_path: Path) -> Path:
    """A copy, to do things to."""
    return Path(shutil.copytree(GOLDEN / name, tmp_path / name))


def contents(buffer: Path) -> dict[str, bytes]:
    return {str(path.relative_to(buffer)): path.read_bytes() for path in buffer.rglob("*") if path.is_file()}


def expected_lines(name: str) -> list[bytes]:
    return (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()


def segments(buffer: Path) -> list[Path]:
    return sorted((buffer / "segments").glob("*.http"))


def test_golden_buffer_is_intact(name: str, buffer: Path) -> None:
    report = verify(str(buffer))
    last = json.loads(expected_lines(name)[-1])
    assert (report.faults, report.not_checked, report.notes) == ([], {}, [])
    assert report.ok
    assert (report.segments, report.last_seq, report.last_id) == (2, last["seq"], last["id"])


def test_reading_gives_exactly_the_lines_that_were_kept(name: str, buffer: Path, make: ModuleType) -> None:
    assert make.json_lines(buffer).splitlines() == expected_lines(name)


def test_command_prints_exactly_the_lines_that_were_kept(name: str, buffer: Path) -> None:
    code = "from hbuf.cli.tail import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "-o", "first", "--json", str(buffer)],
        env={**os.environ, "PYTHONPATH": str(GOLDEN.parents[1])},
        capture_output=True,
        check=True,
    )
    assert (done.stdout.splitlines(), done.stderr) == (expected_lines(name), b"")


def test_reading_and_verifying_change_nothing(name: str, buffer: Path, make: ModuleType) -> None:
    make.json_lines(buffer)
    verify(str(buffer))
    assert contents(buffer) == contents(GOLDEN / name)


def test_writing_it_again_gives_the_same_bytes_in_the_same_files(name: str, tmp_path: Path, make: ModuleType) -> None:
    written = make.write(name, tmp_path)
    kept = contents(GOLDEN / name)
    # A writer makes the producers file only now and then.
    assert {**contents(written), "producers": kept["producers"]} == kept
    make.finish(written)
    assert contents(written) == kept


def test_everything_rebuildable_is_rebuilt_as_it_was(name: str, buffer: Path) -> None:
    for path in [buffer / "producers", *(buffer / "segments").glob("*.idx"), *(buffer / "segments").glob("*.tags")]:
        path.unlink()
    reindex(str(buffer), timeout_seconds=0)
    assert contents(buffer) == contents(GOLDEN / name)


def test_this_version_goes_on_where_the_golden_buffer_ends(name: str, buffer: Path) -> None:
    before = {path: path.read_bytes() for path in segments(buffer)}
    with Buffer(buffer) as opened:
        receipt = opened.append(b"one more", producer="till-3", producer_seq=10)
        again = opened.append(b"one more", producer="till-3", producer_seq=9)
    assert receipt.seq == len(expected_lines(name)) + 1
    assert again.duplicate
    assert verify(str(buffer)).ok
    assert all(path.read_bytes().startswith(data) for path, data in before.items())


def test_key_and_tag_are_found_in_both_segments(tmp_path: Path) -> None:
    with Buffer(shutil.copytree(GOLDEN / "orders", tmp_path / "orders")) as orders:
        assert [message.seq for message in orders.read(key="kund-ü")] == [1, 7, 8, 9]
        assert [message.seq for message in orders.read(tag="host=web1")] == [1, 2, 3, 7, 8, 9]
        assert [message.seq for message in orders.read(tag="")] == [1, 7, 8, 9]
        assert [message.seq for message in orders.read(key="user-17", tag="host=web1")] == [2, 3]


def test_one_changed_byte_of_any_segment_is_a_fault(buffer: Path) -> None:
    for path in segments(buffer):
        whole = path.read_bytes()
        for at in range(0, len(whole), 97):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert not verify(str(buffer)).ok, f"{path.name}: byte {at}"
        path.write_bytes(whole)
    assert verify(str(buffer)).ok


class Requests:
    """What llhttp tells of a stream of requests."""

    def __init__(self, data: bytes) -> None:
        self.methods: list[bytes] = []
        self.ids: list[str] = []
        self.bodies: list[bytes] = []
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.bodies.append(b"")

    def on_header(self, name: bytes, value: bytes) -> None:
        if name == b"x-hbuf-id":
            self.ids.append(value.decode())

    def on_body(self, body: bytes) -> None:
        self.bodies[-1] += body

    def on_message_complete(self) -> None:
        self.methods.append(self.parser.get_method())


def test_llhttp_reads_the_segments_as_they_stand(name: str) -> None:
    read = [Requests(path.read_bytes()) for path in segments(GOLDEN / name)]
    with Buffer(GOLDEN / name) as golden:
        messages = list(golden.read())
    assert [each.methods[0] for each in read] == [b"PUT", b"PUT"]
    assert {method for each in read for method in each.methods[1:]} == {b"POST"}
    assert [record_id for each in read for record_id in each.ids[1:]] == [message.id for message in messages]
    assert [body for each in read for body in each.bodies[1:]] == [message.body for message in messages]
    settings = (GOLDEN / name / "buffer.json").read_bytes()
    assert [each.bodies[0] for each in read] == [settings, settings]


def audited(buffer: Path, tools: Path) -> tuple[int, str]:
    """Exit code and first output of the shell's audit. Without b3sum a shim on the blake3 package stands in."""
    path = os.environ["PATH"]
    if shutil.which("b3sum") is None:
        tools.mkdir(exist_ok=True)
        (tools / "b3sum").write_text(B3SUM)
        (tools / "b3sum").chmod(0o755)
        path = f"{tools}{os.pathsep}{path}"
    temporary = tools.parent
    done = subprocess.run(
        [AUDIT_SCRIPT, buffer],
        env={"PATH": path, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_shell_audit_calls_it_intact(name: str, buffer: Path, tmp_path: Path) -> None:
    last = json.loads(expected_lines(name)[-1])
    said = f"{buffer}: {last['seq']} messages, last {last['seq']} {last['id']}\n"
    assert audited(buffer, tmp_path / "tools") == (0, said)


def test_shell_audit_refuses_a_changed_body(buffer: Path, tmp_path: Path) -> None:
    path = segments(buffer)[-1]
    path.write_bytes(path.read_bytes()[:-3] + b"?\r\n")
    code, said = audited(buffer, tmp_path / "tools")
    assert code == 65
    assert path.name in said
