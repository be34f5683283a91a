"""Parsers that know nothing of hbuf read a segment as it stands."""

import json
import shutil
import subprocess
from itertools import repeat

import httptools
import pytest

from hbuf.format.chain import ZERO_ID, hasher_named
from hbuf.format.fields import encode_fields
from hbuf.format.record import encode_messages, encode_put

BODIES = [b"one", b"", b"\0\r\n\r\nPOST / HTTP/1.1\r\n\r\n\xff", b"x" * 5000]
SETTINGS = b'{"name": "orders"}\n'


def segment() -> tuple[bytes, list[str]]:
    """A segment of a PUT and several messages, and the ids of all of them."""
    hasher = hasher_named("blake3")
    salts = (b"A" * 43 + b"\n") * len(BODIES)
    put, put_id = encode_put(
        hasher, "orders", ZERO_ID, 1, 0, salts[:43], SETTINGS, hash_name="blake3",
        uuid="6f1c2a52-94a5-4c1f-9d0b-0f6f1d7c8e11", epoch=1,
    )  # fmt: skip
    fields = encode_fields("user-17", ["host=web1", ""], [("content-type", "text/plain")])
    batch = encode_messages(hasher, "orders", put_id, 1, 0, salts, BODIES, repeat(fields), repeat(b""), offset=len(put))
    return put + batch.data, [record_id.decode() for record_id in [put_id, *batch.ids]]


class Requests:
    """What llhttp tells of a stream."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.bodies: list[bytes] = []
        self.methods: list[bytes] = []
        self.parser = httptools.HttpRequestParser(self)

    def on_message_begin(self) -> None:
        self.bodies.append(b"")

    def on_header(self, name: bytes, value: bytes) -> None:
        if name == b"x-hbuf-id":
            self.ids.append(value.decode())

    def on_body(self, body: bytes) -> None:
        self.bodies[-1] += body

    def on_message_complete(self) -> None:
        self.methods.append(self.parser.get_method())


@pytest.mark.parametrize("step", [1, 100, 1_000_000])
def test_llhttp_reads_a_segment_as_it_stands(step: int) -> None:
    data, ids = segment()
    requests = Requests()
    for at in range(0, len(data), step):
        requests.parser.feed_data(data[at : at + step])
    assert requests.ids == ids
    assert requests.bodies == [SETTINGS, *BODIES]
    assert requests.methods == [b"PUT", *[b"POST"] * len(BODIES)]


NODE_SCRIPT = """
const http = require('http'), net = require('net');
const expected = Number(process.argv[1]), parts = [], seen = [];
process.stdin.on('data', part => parts.push(part)).on('end', () => {
  const server = http.createServer((request, response) => {
    const body = [];
    request.on('data', part => body.push(part)).on('end', () => {
      seen.push([request.method, request.headers['x-hbuf-id'], Buffer.concat(body).toString('hex')]);
      response.end();
      if (seen.length === expected) { console.log(JSON.stringify(seen)); process.exit(0); }
    });
  });
  server.on('clientError', error => { console.error(String(error)); process.exit(1); });
  server.listen(0, '127.0.0.1', () => net.connect(server.address().port, '127.0.0.1').end(Buffer.concat(parts)));
});
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node_reads_a_segment_as_it_stands() -> None:
    data, ids = segment()
    node = shutil.which("node") or "node"
    done = subprocess.run(
        [node, "-e", NODE_SCRIPT, str(len(ids))], input=data, capture_output=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    bodies = [SETTINGS, *BODIES]
    methods = ["PUT", *["POST"] * len(BODIES)]
    assert json.loads(done.stdout) == [
        [method, record_id, body.hex()] for method, record_id, body in zip(methods, ids, bodies, strict=True)
    ]
