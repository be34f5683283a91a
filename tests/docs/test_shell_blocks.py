"""What the documents tell a user to type works as it is printed: in an empty directory, with bin/ on the PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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


def shell_blocks(document: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


def examples_of_page(page: Path) -> str:
    """The commands in the section EXAMPLES, as they are shown to a reader."""
    section = re.search(r"^\.SH EXAMPLES\n(.*?)(?=^\.SH )", page.read_text(), re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^\.EX\n(.*?)^\.EE$", section[1] if section else "", re.MULTILINE | re.DOTALL)
    text = "".join(blocks).replace(r"\-", "-").replace(r"\(aq", "'").replace(r"\e", "\\")
    return "".join(f"{line.strip()}\n" for line in text.splitlines())


def run(script: str, directory: Path) -> str:
    """Runs lines as a user would, and stops at the first that fails. Returns what was printed."""
    lines = [line for line in script.splitlines() if line not in NOT_RUN]
    done = subprocess.run(
        ["/bin/sh", "-ec", "\n".join(lines)],
        cwd=directory,
        env={
            "PATH": f"{ROOT / 'bin'}{os.pathsep}{os.environ['PATH']}",
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
    printed = [run(block, tmp_path) for block in shell_blocks("README.md")]
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
    blocks = [*shell_blocks("README.md"), *shell_blocks("docs/operations.md"), *pages]
    assert set(NOT_RUN) <= {line for block in blocks for line in block.splitlines()}


def test_command_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run("hbuf-tail orders\ntrue", tmp_path)
