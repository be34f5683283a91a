"""Verifying all of a buffer, beside hashing the same files once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bench.material import Material, segment_files
from bench.measure import Ran, in_turns, run_process
from bench.programs import hbuf_program, yardstick
from bench.table import Row, peak_row, rate_row


def verify_rows(material: Material) -> list[Row]:
    buffer = material.large_buffer()
    files = segment_files(buffer)
    cores = len(os.sched_getaffinity(0))
    found = in_turns(
        {
            "verify 1": lambda: run_process(hbuf_program("hbuf-verify", "--jobs", "1", buffer)),
            "hash 1": lambda: _hash(files, 1),
            "verify all": lambda: run_process(hbuf_program("hbuf-verify", buffer)),
            "hash all": lambda: _hash(files, 0),
        },
        material.repeats,
        quick=["hash 1", "hash all"],
    )
    name = "b3sum" if shutil.which("b3sum") else "blake3 in Python (b3sum is not installed)"
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    rows = []
    for threads, what in (("1", "1 process"), ("all", f"all {cores} cores")):
        ours, hashing = found[f"verify {threads}"], found[f"hash {threads}"]
        said, beside = f"hbuf-verify, {what}", f"{name}, {what}"
        rows.append(rate_row("verify", said, ours, beside, hashing, material.messages, "messages/s"))
        rows.append(rate_row("verify", said, ours, beside, hashing, megabytes, "MB/s"))
    one, all_cores = found["verify 1"], found["verify all"]
    beside = "hbuf-verify, 1 process"
    rows.append(rate_row("verify", f"hbuf-verify, all {cores} cores", all_cores, beside, one, megabytes, "MB/s"))
    rows.append(peak_row("verify", "hbuf-verify, 1 process", one))
    return rows


def _hash(files: list[Path], threads: int) -> Ran:
    if shutil.which("b3sum"):
        return run_process(["b3sum", *([f"--num-threads={threads}"] if threads else []), *files])
    return run_process(yardstick("hash_files", str(threads), *files))
