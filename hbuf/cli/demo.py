"""hbuf demo: a tour of the main job, each command with its real output."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from hbuf.cli import daemon_for_demo, spark_for_demo
from hbuf.cli.program import Version, program, run

NAME = "hbuf-demo"

_PROGRAM = "import sys; from hbuf.cli.dispatch import main; main()"
_DAEMON = "from hbuf.cli.hbufd import main; main()"


def demo_command(
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="DIR", help="Work in DIR, and leave everything there.")
    ] = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Leave the Spark job at the end out.")] = False,
    version: Version = False,
) -> int:
    """Show what hbuf does: append, tail, grep, verify, tamper, pause, tar, restore, a daemon, and a Spark job."""
    if keep is not None:
        Path(keep).mkdir(parents=True, exist_ok=True)
        return _Tour(Path(keep).resolve()).take(with_spark=not no_spark)
    with tempfile.TemporaryDirectory(prefix="hbuf-demo-") as folder:
        return _Tour(Path(folder)).take(with_spark=not no_spark)


class _Tour:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._surprises = 0
        programs = folder / ".programs"
        programs.mkdir(exist_ok=True)
        python = f"exec {shlex.quote(sys.executable)} -P"
        lines = {"python3": f'{python} "$@"'}
        for verb in ("append", "create", "tail", "grep", "verify", "pause", "ls"):
            lines[f"hbuf-{verb}"] = f"{python} -c '{_PROGRAM}' {verb} \"$@\""
        lines["hbufd"] = f"{python} -c '{_DAEMON}' \"$@\""
        for name, line in lines.items():
            launcher = programs / name
            launcher.write_text(f"#!/bin/sh\n{line}\n")
            launcher.chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        library = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
        # Spark starts Python in the current directory, where there may be anything.
        self._environment = {**os.environ, "PATH": path, "PYTHONPATH": library, "PYTHONSAFEPATH": "1"}

    def take(self, *, with_spark: bool) -> int:
        self._say("Three messages into a buffer. A buffer is a directory; it is made by itself.")
        self._run("printf 'order 1: tea\\norder 2: milk\\norder 3: sugar\\n' | hbuf-append orders --tag shop=north -v")
        self._say("Read them back, as bodies or as JSON.")
        self._run("hbuf-tail orders")
        self._run("hbuf-tail -n 1 --json orders")
        self._say("The files are plain HTTP requests: grep reads them, and so does hbuf-grep.")
        self._run("grep -a -c '^x-hbuf-tag: shop=north' orders/segments/*.http")
        self._run("hbuf-grep -n milk orders")
        self._say("Nothing was changed: every byte is hashed, every message is chained to the one before.")
        self._run("hbuf-verify orders")
        self._run("hbuf-ls")
        self._say("Pause the buffer for as long as tar runs: a backup with nothing half-written in it.")
        self._run("hbuf-pause orders -- tar cf backup.tar orders")
        self._say("Now somebody changes one byte: milk becomes silk.")
        segment = self._folder / "orders/segments/00000000000000000001.http"
        segment.write_bytes(segment.read_bytes().replace(b"milk", b"silk"))
        self._run("hbuf-verify orders", expected=65)
        self._say("Restore the backup, and all is well again.")
        shutil.rmtree(self._folder / "orders")
        self._run("tar xf backup.tar && hbuf-verify orders")
        self._ask_the_daemon()
        if with_spark:
            self._count_with_spark()
        if self._surprises:
            self._say(f"{self._surprises} of these commands did not do what they should have done.")
        return 1 if self._surprises else 0

    def _ask_the_daemon(self) -> None:
        self._say("The daemon serves buffers over HTTPS. Its first start makes certificates and an administrator.")
        if not daemon_for_demo.has_loopback():
            sys.stdout.write("It is left out: programs of this machine cannot reach each other over a network.\n")
            return
        alone, self._environment = self._environment, daemon_for_demo.environment_for(self._environment)
        self._show(f"{daemon_for_demo.COMMAND} 2> {daemon_for_demo.LOG} &")
        with daemon_for_demo.running(self._folder, self._environment) as url:
            if url is None:
                self._run(f"cat {daemon_for_demo.LOG}", expected=None)
                return
            self._run(f"head -n 1 {daemon_for_demo.LOG}")
            self._say("Everything works with curl. The credential comes from a file, so that it is on no command line.")
            daemon_for_demo.ask_with_curl(url, self._say, self._run, self._show)
            self._say("Commands take a URL in place of a directory.")
            self._show("export HBUF_CACERT=srv/ca.pem HBUF_TOKEN_FILE=srv/admin.token")
            daemon_for_demo.ask_by_commands(url, self._say, self._run)
            self._show("kill %1")
        self._environment = alone

    def _count_with_spark(self) -> None:
        if needed := spark_for_demo.missing_extras(self._environment):
            names = " and ".join(spark_for_demo.NAMES[extra] for extra in needed)
            self._say(f"The last step is a Spark job. It needs {names}. --no-spark leaves it out.")
            if problem := spark_for_demo.install(needed):
                sys.stdout.write(f"{problem}\n")
                return
        self._say("Buffers are tables in Spark, too: messages counted by tag and minute, and found with SQL.")
        self._run("printf 'refund 1: salt\\nrefund 2: tea\\n' | hbuf-append refunds --tag shop=south")
        (self._folder / "count.py").write_text(spark_for_demo.JOB)
        self._run("cat count.py")
        self._run("python3 count.py")

    def _say(self, line: str) -> None:
        sys.stdout.write(f"\n# {line}\n")
        sys.stdout.flush()

    def _show(self, command: str) -> None:
        sys.stdout.write(f"$ {command}\n")
        sys.stdout.flush()

    def _run(self, command: str, expected: int | None = 0) -> None:
        """With `expected=None` it is a surprise whatever it does."""
        self._show(command)
        done = subprocess.run(["/bin/sh", "-c", command], cwd=self._folder, env=self._environment)
        if done.returncode:
            sys.stdout.write(f"(exit code {done.returncode})\n")
        if done.returncode != expected:
            self._surprises += 1


app = program(NAME, demo_command, "Example: hbuf demo --keep ./tour")


def main() -> None:
    run(app, NAME)
