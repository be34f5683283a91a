"""contrib/bench/run spark: with small numbers it measures everything and prints every row. Nothing is judged."""

import json
import subprocess
from pathlib import Path

BENCH = Path(__file__).parents[2] / "contrib" / "bench" / "run"


def test_every_row_of_the_spark_area_is_measured(tmp_path: Path) -> None:
    done = subprocess.run(
        [BENCH, "spark", "--messages", "200", "--repeat", "1", "--json", "--dir", tmp_path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"
    rows = json.loads(done.stdout)["rows"]
    reads = [(f"{read}, {name}", beside) for read in ("read", "read cold") for name, beside in _pairs()]
    expected = [*reads, ("write, hbuf", "Parquet"), ("stream, hbuf", "Parquet")]
    for group in ("200 messages of 100 bytes", "20 messages of 1000 bytes"):
        assert [(row["what"], row["beside"]) for row in rows if row["group"] == group] == expected
    assert all(row["ratio"] > 0 for row in rows)


def _pairs() -> list[tuple[str, str]]:
    text, parquet = "spark.read.text", "Parquet"
    hbuf = [("hbuf", text), ("hbuf", parquet)]
    bodies = [("hbuf, bodies alone", text), ("hbuf, bodies alone", "Parquet, bodies alone")]
    return [*hbuf, *bodies, (parquet, text)]
