"""Whatever byte of a segment is changed: hbuf-verify notices, and names the record that it is in."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import hbuf
from hbuf.format.scan import scan
from hbuf.ops.verify import verify

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=8).map(lambda text: text.strip(" "))
DRAFTS = st.builds(
    lambda body, key, tags, value: hbuf.draft(body, key=key or None, tags=tags, headers=[("x-a", value)]),
    st.binary(max_size=40),
    TEXT,
    st.lists(TEXT, max_size=2),
    TEXT,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(DRAFTS, min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from(["blake3", "sha256"]),
    st.sampled_from(["true", "false"]),
    st.data(),
)
def test_any_changed_byte_is_named_at_its_record(
    drafts: list[hbuf.Draft], atomic: bool, hash_name: str, erasable: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with hbuf.create(Path(folder) / "orders", hash=hash_name, erasable=erasable) as buffer:
            buffer.append_many(drafts, atomic=atomic)
        assert verify(f"{folder}/orders").ok
        [segment] = Path(folder).glob("orders/segments/*.http")
        content = bytearray(segment.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        record = next(record for record in scan(bytes(content)).records if record.start <= at < record.end)
        content[at] = (content[at] + data.draw(st.integers(1, 255))) % 256
        segment.write_bytes(content)
        report = verify(f"{folder}/orders")
    assert not report.ok
    assert record.start in {fault.at for fault in report.faults if fault.file == segment.name}
