"""What the documents tell a user to type works as it is printed: in an empty directory, with bin/ on the PATH."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import hbuf

ROOT = Path(__file__).parents[2]
JOURNAL = Path(__file__).parent / "journal.json"  # what journalctl -o json has printed
TIMEOUT_SECONDS = 120

# Lines that are not run, each with its reason. One that no document has any more is a fault too.
NOT_RUN = {
    "bin/test          # check everything: format, lint, types, layers, tests": "it runs these tests",
    "hbuf-pause buffers/* -- rsync -a buffers/ backup-host:buffers/": "it needs another machine",
    "hbuf-pipeline run --once shop.toml": "Spark takes long to start, and tests/spark/pipelines runs it",
    "hbuf-pipeline rerun shop.toml upper --from @1h": "Spark takes long to start, and tests/spark/pipelines runs it",
    "hbuf-tail shouted": "it is what the run has made",
    "hbuf-tail .shop-state/_pipelines --key upper": "it is what the run has made",
    "hbuf-tail -f orders": "it follows for ever",
    "hbuf tail -f orders": "it follows for ever",
}

# A line that is run until it has shown this many messages, because it never ends.
FOLLOWED = "curl -K curlrc -N -H 'accept: text/event-stream' 'https://127.0.0.1:4280/b/sales?from=-3'"
FOLLOWED_MESSAGES = 3

# What the daemon's examples run in: a network of their own, where the port that they name is free.
ALONE = ("unshare", "--net", "--map-root-user")
LOOPBACK_UP = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh22x', b'lo', 0x41))"
PORT = 4280
CURLRC = "silent\nshow-error\nfail-with-body\n"  # no meter where there is no terminal; an error ends the example

# What the examples of man pages and docs/operations.md take for granted.
SET_UP = """\
printf '%s\\n' 'order 1' '{"total": 42}' | hbuf-append -k user-17 orders
printf '%s\\n' 'disk ok' 'Error: fan' | hbuf-append logs
echo closing | hbuf-append orders-2026
for name in orders logs; do echo 'in a tree' | hbuf-append buffers/$name; done
echo '{"total": 7}' > order.json
printf '%s\\n' one two three > lines.txt
hbuf-append -v orders < lines.txt | tail -n 1 | tr ' ' ':' > orders.head
"""


def environment_is_ready() -> bool:
    """Whether bin/ runs without making its environment first, for which it may need the network."""
    mark = ROOT / ".venv" / "hbuf-ready"
    return mark.is_file() and mark.read_bytes() == f"{ROOT}\n".encode() + (ROOT / "pyproject.toml").read_bytes()


pytestmark = pytest.mark.skipif(not environment_is_ready(), reason="bin/ has no environment: run bin/hbuf --version")


def blocks_of(text: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def shell_blocks(document: str) -> list[str]:
    return blocks_of((ROOT / document).read_text())


def daemon_blocks(document: str) -> list[str]:
    """From the block that starts a daemon to the end of its section; in docs/http.md, to its end."""
    text = (ROOT / document).read_text()
    if document == "README.md":
        [text] = re.findall(r"^## The daemon\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    return blocks_of(text)


def examples_of_page(page: Path) -> str:
    """The commands in the section EXAMPLES, as they are shown to a reader."""
    section = re.search(r"^\.SH EXAMPLES\n(.*?)(?=^\.SH )", page.read_text(), re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^\.EX\n(.*?)^\.EE$", section[1] if section else "", re.MULTILINE | re.DOTALL)
    text = "".join(blocks).replace(r"\-", "-").replace(r"\(aq", "'").replace(r"\e", "\\")
    return "".join(f"{line.strip()}\n" for line in text.splitlines())


def run(script: str, directory: Path, within: Sequence[str] = ()) -> str:
    """Runs lines as a user would, and stops at the first that fails. Returns what was printed."""
    lines = [line for line in script.splitlines() if line not in NOT_RUN]
    done = subprocess.run(
        [*within, "/bin/sh", "-ec", "\n".join(lines)],
        cwd=directory,
        env={
            "PATH": os.pathsep.join([str(ROOT / "bin"), str(directory / "programs"), os.environ["PATH"]]),
            "HOME": str(directory),
            "HBUF_KEYS": str(directory / "keys"),  # root's own keys are elsewhere, and stay as they are
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{script}\n{done.stdout}"
    return done.stdout


def run_with_daemon(blocks: list[str], directory: Path) -> list[str]:
    """The first block starts a daemon, in a terminal of its own; the others are typed into a second one.

    Returns what each of these has printed.
    """
    start, *typed = blocks
    assert re.fullmatch(r"hbufd .*\n", start)
    lines = [
        ": > hbufd.log",  # which the next but one looks at, whether it has begun or not
        f"{start.strip()} > hbufd.log 2>&1 &",
        "daemon=$!",
        "trap 'kill $daemon; wait $daemon' EXIT",
        "until grep -q ' event=ready ' hbufd.log; do kill -0 $daemon; sleep 0.05; done",
    ]
    for block in typed:
        lines += [_followed(line) if line == FOLLOWED else line for line in block.splitlines()]
        lines.append(r"printf '\f'")
    (directory / ".curlrc").write_text(CURLRC)
    in_namespace = shutil.which("unshare") and subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0
    if in_namespace:
        lines.insert(0, f'python3 -c "{LOOPBACK_UP}"')
    elif not is_free(PORT):
        pytest.skip(f"port {PORT} is taken, and this machine lets nobody leave its network")
    script = "\n".join(["set -e", *lines])
    *printed, rest = run(script, directory, ALONE if in_namespace else ()).split("\f")
    assert rest == ""
    return printed


def _followed(line: str) -> str:
    return (
        f": > followed; (exec {line}) > followed & follower=$!\n"
        f'until [ "$(grep -c ^data: followed)" -eq {FOLLOWED_MESSAGES} ]; do kill -0 $follower; sleep 0.05; done\n'
        "{ kill $follower; wait $follower || true; } 2> ended; cat followed"
    )


def is_free(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.fixture(scope="module")
def set_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("set_up")
    run(SET_UP, directory)
    return directory


@pytest.fixture
def directory(set_up: Path, tmp_path: Path) -> Path:
    """A directory of its own in which everything is set up."""
    return Path(shutil.copytree(set_up, tmp_path / "directory"))


def test_readme_s_commands_work_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to(ROOT / "bin")
    with_daemon = daemon_blocks("README.md")
    printed = [run(block, tmp_path) for block in shell_blocks("README.md") if block not in with_daemon]
    assert "all is well again" in printed[0]
    _, _, read, looked, verified, backed_up, signed, checked, encrypted, erased, retired, compressed = printed
    assert read.startswith('first order\nsecond order\n{"total": 42}\nsecond order\n{"tenant":"default",')
    # The last command shows the message from its key to its body.
    assert looked.startswith("second order\n")
    assert '{"total": 42}' in looked
    assert verified.startswith("orders: intact: 3 messages, last 3 ")
    assert backed_up == ""
    assert (tmp_path / "orders.tar").stat().st_size
    assert signed == ""
    assert checked.startswith("ledger: intact: 2 messages, last 2 ")
    assert encrypted == "blood type 0\n"
    assert "\n  chain:        1 message, 1 erased, 1 encrypted: ok\n" in erased
    assert retired.startswith("visits: messages 1 to 800, ")
    assert "\n  completeness: numbers 801 to 1001, 800 retired: ok\n" in compressed
    assert list((tmp_path / "visits" / "segments").glob("*.http.zst"))


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@needs_curl
def test_readme_s_daemon_answers_as_it_is_told(tmp_path: Path) -> None:
    asked, by_commands, as_a_user = run_with_daemon(daemon_blocks("README.md"), tmp_path)
    assert '"name": "tickets"' in asked
    assert '"count": 1' in asked
    assert '"body":"first ticket"' in asked
    assert by_commands.startswith("first ticket\nsecond ticket\nhttps://localhost:4280/b/tickets: intact: 2 messages, ")
    assert "\nsrv/tenants/default/buffers/tickets: intact: 2 messages, " in by_commands
    assert as_a_user == "first ticket\nsecond ticket\n"


def journal_is_here() -> bool:
    """Whether journalctl has something to show: in a container it may not."""
    if shutil.which("journalctl") is None:
        return False
    return bool(subprocess.run(["journalctl", "-o", "json", "-n", "1"], capture_output=True).stdout)


@needs_curl
def test_requests_and_recipes_of_the_interface_work_one_after_the_other(tmp_path: Path) -> None:
    if not journal_is_here():
        journalctl = tmp_path / "programs" / "journalctl"
        journalctl.parent.mkdir()
        journalctl.write_text(f'#!/bin/sh\n[ "$1 $2" = "-o json" ] && cat {shlex.quote(str(JOURNAL))}\n')
        journalctl.chmod(0o755)
    blocks = daemon_blocks("docs/http.md")
    assert FOLLOWED in blocks[-2]
    first, _, order, lines, batch, twice, conditional, waited, followed, _ = run_with_daemon(blocks, tmp_path)
    assert '"body":"first order"' in first
    assert '"segment_age": 86400.0' in order
    assert '"first": 2, "last": 4, "count": 3' in lines
    assert ['"count": 3' in batch, '"count": 4' in batch] == [True, True]
    assert re.findall(r'"duplicates": (\d)', twice) == ["0", "1"]
    assert '"first": 6, "last": 6' in conditional
    assert waited == "here it is"
    events = [json.loads(line) for line in re.findall(r"^data: (.*)$", followed, re.MULTILINE)]
    assert [event["body"] for event in events] == ["paid", "nobody was faster", "here it is"]
    buffers = tmp_path / "srv" / "tenants" / "default" / "buffers"
    assert (tmp_path / "srv" / "admin.token").stat().st_mode & 0o077 == 0
    with hbuf.open(buffers / "sales") as sales, hbuf.open(buffers / "copy") as copy:
        kept = list(sales.read("first"))
        assert (kept[0].key, kept[0].tags, kept[0].body) == ("user-17", ("host=web1",), b'{"total": 42}\n')
        assert [message.body for message in copy.read("first")] == [b"1", b"2", b"3", kept[0].body, b"1", b"2", b"3"]
    with hbuf.open(buffers / "journal") as journal:
        entries = [json.loads(message.body) for message in journal.read("first")]
        assert all("MESSAGE" in entry and "__CURSOR" in entry for entry in entries)
        assert journal_is_here() or len(entries) == len(JOURNAL.read_text().splitlines())


def test_operations_commands_work_one_after_the_other(directory: Path) -> None:
    blocks = shell_blocks("docs/operations.md")
    assert len(blocks) >= 3
    for block in blocks:
        run(block, directory)


@pytest.mark.parametrize("page", sorted((ROOT / "man").glob("*.[157]")), ids=lambda page: page.name)
def test_examples_of_a_page_work_one_after_the_other(page: Path, directory: Path) -> None:
    examples = examples_of_page(page)
    assert examples
    run(examples, directory)


def test_every_line_that_is_not_run_is_in_a_document() -> None:
    pages = [examples_of_page(page) for page in (ROOT / "man").glob("*.[157]")]
    documents = ("README.md", "docs/operations.md", "docs/http.md")
    blocks = [*(block for document in documents for block in shell_blocks(document)), *pages]
    assert set(NOT_RUN) <= {line for block in blocks for line in block.splitlines()}


def test_command_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run("hbuf-tail orders\ntrue", tmp_path)
