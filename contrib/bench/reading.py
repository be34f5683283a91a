"""Reading all of a buffer, and searching it, beside programs that read the same segment files."""

from __future__ import annotations

from bench.material import NEEDLE, Material, segment_files
from bench.measure import in_turns, run_process
from bench.programs import hbuf_program
from bench.table import Row, peak_row, rate_row

_CAT = "cat *.http, from the cache"


def tail_rows(material: Material) -> list[Row]:
    """From the first message to the last, to nowhere. The files are in the cache: `cat` shows what memory can do."""
    buffer = material.large_buffer()
    files = segment_files(buffer)
    found = in_turns(
        {
            "bodies": lambda: run_process(hbuf_program("hbuf-tail", "-o", "first", buffer)),
            "json": lambda: run_process(hbuf_program("hbuf-tail", "-o", "first", "--json", buffer)),
            "cat": lambda: run_process(["cat", *files]),
        },
        material.repeats,
        quick=["cat"],
    )
    bodies, cat = found["bodies"], found["cat"]
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    return [
        rate_row("read", "hbuf-tail -o first", bodies, _CAT, cat, material.messages, "messages/s"),
        rate_row("read", "hbuf-tail -o first, of segments", bodies, _CAT, cat, megabytes, "MB/s"),
        rate_row("read", "hbuf-tail -o first --json", found["json"], _CAT, cat, material.messages, "messages/s"),
        peak_row("read", "hbuf-tail -o first", bodies),
    ]


def grep_rows(material: Material) -> list[Row]:
    """Counting the few messages that have a word."""
    buffer = material.large_buffer()
    files = segment_files(buffer)
    # Into a file: GNU grep stops at the first match when its output goes to /dev/null.
    out = material.directory / "counted"
    found = in_turns(
        {
            "hbuf-grep": lambda: run_process(hbuf_program("hbuf-grep", "-c", NEEDLE, buffer), stdout=out),
            "grep": lambda: run_process(["grep", "-a", "-c", NEEDLE, *files], stdout=out, env={"LC_ALL": "C"}),
        },
        material.repeats,
        quick=["grep"],
    )
    what, beside = "hbuf-grep -c WORD", "grep -a -c WORD *.http, from the cache"
    return [rate_row("search", what, found["hbuf-grep"], beside, found["grep"], material.messages, "messages/s")]
