"""contrib/bench/run spark: buffers as DataFrames, beside text of the same bodies and Parquet of the same columns.

read    every row and column, to nowhere: warm, with the files in memory and the code compiled, and cold, after the
        files were dropped from memory
write   a DataFrame of bodies into a buffer, beside Parquet, each from the same text
stream  a buffer into another by a stream that ends, exactly once, beside a Parquet sink, which is so too
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import table
from bench.material import Material
from bench.measure import Ran, Samples, in_turns, run_process
from bench.options import parse_options
from bench.programs import hbuf_program
from bench.table import Row, rate_row

# So many turns for each that is measured: Java is half as fast again when it has compiled what is run often.
_WARM_UPS = 3

HBUF, BODIES, TEXT = "hbuf", "hbuf, bodies alone", "spark.read.text"
PARQUET, PARQUET_BODIES = "Parquet", "Parquet, bodies alone"
_BESIDE = {HBUF: (TEXT, PARQUET), BODIES: (TEXT, PARQUET_BODIES), PARQUET: (TEXT,)}


def main() -> None:
    options = parse_options("spark", __doc__, messages=1_600_000, repeat=5)
    with tempfile.TemporaryDirectory(prefix="hbuf-bench-", dir=options.dir) as name:
        directory = Path(name)
        material = Material(directory, options.messages, options.messages, options.repeat, options.seed)
        about = table.machine(directory)
        session = _session(directory)
        about["pyspark"] = session.version
        rows: list[Row] = []
        for size in (100, 1000):
            print(f"bench: {size} bytes", file=sys.stderr)
            rows += _Bench(session, material, max(options.messages * 100 // size, 1), size).rows()
        session.stop()
    sys.stdout.write(table.as_json(about, rows) + "\n" if options.json else table.as_text(about, rows))


def _session(directory: Path) -> Any:
    from hbuf.spark.session import local_session

    return local_session(
        "hbuf bench", {"spark.sql.warehouse.dir": str(directory / "warehouse"), "spark.driver.memory": "2g"}
    )


@dataclass(slots=True)
class _Bench:
    session: Any
    material: Material
    count: int
    size: int

    def rows(self) -> list[Row]:
        group = f"{self.count:,} messages of {self.size} bytes"
        reads = self._reads()
        repeats = self.material.repeats
        warm_reads = {name: _timed(read) for name, (read, _) in reads.items()}
        warm = in_turns(warm_reads, repeats, warm_ups=_WARM_UPS * repeats)
        cold = in_turns({name: _timed(read, dropping=path) for name, (read, path) in reads.items()}, self._repeats)
        rows = _read_rows(group, "read", warm, self.count) + _read_rows(group, "read cold", cold, self.count)
        for what, works in (("write", self._writes()), ("stream", self._streams())):
            found = in_turns({name: _timed(work) for name, work in works.items()}, self._repeats)
            rows.append(rate_row(group, f"{what}, hbuf", found[HBUF], PARQUET, found[PARQUET], self.count, "rows/s"))
        return rows

    @property
    def _repeats(self) -> int:
        return max(self.material.repeats // 2, 1)

    @property
    def _lines(self) -> Path:
        return self.material.lines(self.count, self.size)

    def _reads(self) -> dict[str, tuple[Callable[[], None], Path]]:
        buffer, parquet = self.material.directory / f"buffer-{self.size}", self.material.directory / f"pq-{self.size}"
        run_process(hbuf_program("hbuf-append", buffer), stdin=self._lines)
        session = self.session
        session.read.format("hbuf").load(str(buffer)).write.parquet(str(parquet))
        # Each is made anew: a DataFrame of a Python source is planned once only, and a reader keeps its schema.
        return {
            HBUF: (lambda: _to_nowhere(session.read.format("hbuf").load(str(buffer))), buffer),
            BODIES: (lambda: _to_nowhere(session.read.schema("body binary").format("hbuf").load(str(buffer))), buffer),
            TEXT: (lambda: _to_nowhere(session.read.text(str(self._lines))), self._lines),
            PARQUET: (lambda: _to_nowhere(session.read.parquet(str(parquet))), parquet),
            PARQUET_BODIES: (lambda: _to_nowhere(session.read.parquet(str(parquet)).select("body")), parquet),
        }

    def _writes(self) -> dict[str, Callable[[], None]]:
        bodies = self.session.read.text(str(self._lines)).selectExpr("value AS body")

        def to_hbuf() -> None:
            bodies.write.format("hbuf").mode("append").save(str(self.material.fresh("written")))

        return {HBUF: to_hbuf, PARQUET: lambda: bodies.write.parquet(str(self.material.fresh("written-parquet")))}

    def _streams(self) -> dict[str, Callable[[], None]]:
        buffer = self.material.directory / f"buffer-{self.size}"

        def stream(sink: str, name: str) -> None:
            path, checkpoint = self.material.fresh(name), self.material.fresh(f"{name}-checkpoint")
            source = self.session.readStream.schema("body binary").format("hbuf").load(str(buffer))
            writing = source.writeStream.format(sink).option("checkpointLocation", str(checkpoint))
            writing.trigger(availableNow=True).start(str(path)).awaitTermination()

        return {HBUF: lambda: stream("hbuf", "streamed"), PARQUET: lambda: stream("parquet", "streamed-parquet")}


def _read_rows(group: str, what: str, found: dict[str, Samples], count: int) -> list[Row]:
    return [
        rate_row(group, f"{what}, {name}", found[name], beside, found[beside], count, "rows/s")
        for name, all_beside in _BESIDE.items()
        for beside in all_beside
    ]


def _to_nowhere(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _timed(work: Callable[[], None], *, dropping: Path | None = None) -> Callable[[], Ran]:
    def timed() -> Ran:
        if dropping is not None:
            _drop_from_memory(dropping)
        start = time.perf_counter()
        work()
        return Ran(time.perf_counter() - start)

    return timed


def _drop_from_memory(path: Path) -> None:
    """Asks the system to forget the pages of all files there: what is read next comes from the disk."""
    for file in [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]:
        fd = os.open(file, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
