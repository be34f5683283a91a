"""Every vector through scan and check_records: what a second writer made is read as the format says."""

import importlib.util
from pathlib import Path

import pytest

from hbuf.format.chain import hasher_named
from hbuf.format.check import ChainState, Fault, check_records, unfinished_unit
from hbuf.format.scan import own_values, scan

VECTORS = Path(__file__).parents[1] / "vectors"
FILES = sorted(VECTORS.glob("*.vector"))


def faults_of(data: bytes) -> list[Fault]:
    """What a verifier of one segment finds, in order of place."""
    found = scan(data)
    opening = own_values(found.records[0].own)
    state = ChainState(prev=opening[b"x-hbuf-prev"], next_seq=int(opening[b"x-hbuf-first"]))
    faults = check_records(hasher_named(opening[b"x-hbuf-hash"].decode()), data, found.records, state, 0)
    if found.unreadable:
        faults.append(Fault("bytes", found.unreadable.at, state.next_seq, found.unreadable.reason))
    return faults + unfinished_unit(state, len(data))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_vector_is_judged_as_it_says(file: Path) -> None:
    text, _, data = file.read_bytes().partition(b"\n\n")
    said = dict(line.split(": ", 1) for line in text.decode().splitlines())
    faults = faults_of(data)
    if said["expect"] == "intact":
        assert faults == []
    else:
        assert faults
        assert (said["expect"], said["at"], said["seq"]) == (faults[0].kind, str(faults[0].at), str(faults[0].seq))


def test_vectors_are_what_make_py_makes() -> None:
    spec = importlib.util.spec_from_file_location("vectors_make", VECTORS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert {file.name: file.read_bytes() for file in FILES} == make.vectors()


def test_there_are_vectors_of_every_verdict() -> None:
    verdicts = {file.read_bytes().split(b"\n")[1] for file in FILES}
    assert verdicts == {b"expect: intact", b"expect: bytes", b"expect: chain", b"expect: completeness"}
