"""The demo's daemon: started on a free port with a root of its own, asked with curl and by commands, and stopped.

It must not know how the demo prints and counts: what is said and what is run is handed to it.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = "srv"
LOG = "hbufd.log"
COMMAND = f"hbufd --root {ROOT} --listen 127.0.0.1:0"
_DEADLINE_SECONDS = 30.0
_READY = re.compile(r" event=listening url=(https://\S+)\n.* event=ready ", re.DOTALL)


def has_loopback() -> bool:
    """Whether a program of this machine can reach another one: in a namespace of its own it may not."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError:
        return False
    return True


def environment_for(environment: Mapping[str, str]) -> dict[str, str]:
    """What the daemon and who asks it run with: this daemon's CA and token, and nothing of the user's own settings."""
    others = {name: value for name, value in environment.items() if name != "HBUF_CONFIG"}
    proxied = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1")
    return {**others, **proxied, "HBUF_CACERT": f"{ROOT}/ca.pem", "HBUF_TOKEN_FILE": f"{ROOT}/admin.token"}


@contextmanager
def running(folder: Path, environment: Mapping[str, str]) -> Iterator[str | None]:
    """The daemon's URL. None where it did not start, and its log says why."""
    with open(folder / LOG, "wb") as log:
        command = ["/bin/sh", "-c", f"exec {COMMAND}"]
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield _url_of(process, folder / LOG)
    finally:
        process.terminate()
        try:
            process.wait(_DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask_with_curl(
    url: str, say: Callable[[str], None], run: Callable[[str], None], show: Callable[[str], None]
) -> None:
    curl = f"curl -sS --cacert {ROOT}/ca.pem -H @{ROOT}/admin.header"
    requests = [
        f"{curl} -X PUT -o settings.json {url}/b/teas",
        f"{curl} -d 'order 4: green tea' {url}/b/teas",
        f"{curl} -H 'accept: application/x-ndjson' {url}/b/teas",
        f"{curl} {url}/b/teas/status",
    ]
    if shutil.which("curl"):
        for request in requests:
            run(request)
        return
    say("curl is not installed here, so its commands are shown and not run.")
    for request in requests:
        show(request)
    run(f"hbuf-create {url}/b/teas")


def ask_by_commands(url: str, say: Callable[[str], None], run: Callable[[str], None]) -> None:
    run(f"echo 'order 5: black tea' | hbuf-append {url}/b/teas")
    run(f"hbuf-tail {url}/b/teas")
    say("hbuf-verify does not take the server's word: it downloads the files, and checks them here.")
    run(f"hbuf-verify {url}/b/teas")
    say("They are the same directories that commands work on.")
    run(f"hbuf-tail -n 1 {ROOT}/tenants/default/buffers/teas")


def _url_of(process: subprocess.Popen[bytes], log: Path) -> str | None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if found := _READY.search(log.read_text()):
            return found[1]
        if process.poll() is not None:
            return None
        time.sleep(0.02)
    return None
