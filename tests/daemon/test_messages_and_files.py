"""/b/{buffer}/{seq} and /segments: one message, erasing, and the files themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hbuf.ops.verify import verify

from .served import Served

SEGMENT = "00000000000000000001.http"


@pytest.fixture
def orders(served: Served) -> Served:
    served.buffer("orders", *[b"order %d" % number for number in range(1, 6)])
    return served


def _path(served: Served, buffer: str = "orders") -> Path:
    return served.root / "tenants/default/buffers" / buffer


def test_a_message_has_its_fields_as_headers(orders: Served) -> None:
    given = [
        ("x-hbuf-key", "k"),
        ("x-hbuf-tag", "a"),
        ("x-hbuf-tag", "ü"),
        ("content-type", "image/png"),
        ("ce-id", "7"),
    ]
    appended = orders("POST", "/b/orders", b"\x89PNG", given)
    answer = orders("GET", "/b/orders/6")
    assert (answer.status, answer.body, answer["content-type"], answer["ce-id"]) == (200, b"\x89PNG", "image/png", "7")
    assert (answer["x-hbuf-key"], answer["x-hbuf-seq"]) == ("k", "6")
    assert [tag.encode("latin-1").decode() for tag in answer.headers.get_all("x-hbuf-tag") or []] == ["a", "ü"]
    assert answer["etag"] == f'"{appended["x-hbuf-id"]}"'
    assert orders("HEAD", "/b/orders/6").body == b""
    assert orders("HEAD", "/b/orders/6")["content-length"] == "4"
    again = orders("GET", "/b/orders/6", headers={"if-none-match": answer["etag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    ("seq", "status", "code"),
    [
        ("6", 404, "not-found"),
        ("999999999999999999", 404, "not-found"),
        ("0", 404, "not-found"),
        ("01", 404, "not-found"),
    ],
)
def test_a_number_that_is_not_there(orders: Served, seq: str, status: int, code: str) -> None:
    answer = orders("GET", f"/b/orders/{seq}")
    assert (answer.status, answer.json()["code"]) == (status, code)


def test_an_erased_message_is_gone(orders: Served) -> None:
    assert orders("DELETE", "/b/orders/2").json()["code"] == "malformed"
    assert orders("DELETE", "/b/orders/2?reason=asked").json() == {"erased": 1}
    assert orders("DELETE", "/b/orders/2?reason=asked").json() == {"erased": 0}
    answer = orders("GET", "/b/orders/2")
    assert (answer.status, answer.json()["code"], answer.json()["seq"]) == (410, "gone", 2)
    assert answer["x-hbuf-first"] == "1"
    assert orders("GET", "/b/orders/6").json()["code"] == "not-found"
    assert orders("DELETE", "/b/orders/6?reason=asked").status == 403
    assert orders("DELETE", "/b/orders/7?reason=asked").status == 404
    assert b"\r\nx-hbuf-by: admin@" in orders("GET", "/b/orders").body
    assert verify(str(_path(orders))).ok


def test_many_are_erased_by_number_and_by_key(orders: Served) -> None:
    for _ in range(3):
        orders("POST", "/b/orders", b"x", {"x-hbuf-key": "user-17"})
    dry = orders("POST", "/b/orders/erased", {"key": "user-17", "dry_run": True})
    assert [json.loads(line)["seq"] for line in dry.body.splitlines()] == [6, 7, 8]
    assert orders("POST", "/b/orders/erased", {"key": "user-17", "reason": "asked"}).json() == {"erased": 3}
    given = {"numbers": ["1", "3-4"], "reason": "asked"}
    assert orders("POST", "/b/orders/erased", given).json() == {"erased": 3}
    listed = orders("GET", "/b/orders/erased")
    assert listed.body.count(b"\n") == 7
    applied = orders("POST", "/b/orders/erased?reason=again", listed.body, {"content-type": "text/plain"})
    assert applied.json() == {"erased": 0, "missing": 0}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"reason": "asked"},
        {"numbers": ["1"]},
        {"numbers": ["1"], "reason": ""},
        {"numbers": ["1"], "reason": "two\nlines"},
        {"numbers": ["1"], "reason": "x" * 1025},
        {"numbers": [], "reason": "asked"},
        {"numbers": "1", "reason": "asked"},
        {"numbers": ["0"], "reason": "asked"},
        {"numbers": ["1"], "key": "k", "reason": "asked"},
        {"numbers": ["1"], "reason": "asked", "why": "asked"},
        {"numbers": ["1"], "reason": "\ud800"},
        {"key": "\udcff", "reason": "asked"},
        {"key": 7, "reason": "asked"},
        {"numbers": ["1"], "reason": "asked", "dry_run": 1},
    ],
)
def test_what_is_wrong_erases_nothing(orders: Served, given: dict[str, object]) -> None:
    assert orders("POST", "/b/orders/erased", given).status == 400
    assert orders("GET", "/b/orders/erased").body.count(b"\n") == 1


def test_what_is_no_json_object_is_refused(orders: Served) -> None:
    for body in (b"[]", b"{", b"\xff", b'{"numbers": NaN}', b"[" * 100_000):
        answer = orders("POST", "/b/orders/erased", body, {"content-type": "application/json"})
        assert (answer.status, answer.json()["code"]) == (400, "bad-input")
    answer = orders("POST", "/b/orders/erased", b"<x/>", {"content-type": "application/xml"})
    assert (answer.status, answer.json()["code"]) == (415, "media-type")
    assert orders("POST", "/b/orders/erased?reason=x", b"no list", {"content-type": "text/plain"}).status == 400


def test_the_files_are_listed_and_come_byte_for_byte(orders: Served) -> None:
    orders("PATCH", "/b/orders/settings", {"segment_messages": 5})
    orders("POST", "/b/orders", b"in the next segment")
    folder = _path(orders)
    there = {path.name: path for path in (folder / "segments").iterdir()} | {"buffer.json": folder / "buffer.json"}
    files = {each["file"]: each for each in orders("GET", "/b/orders/segments").json()["files"]}
    assert files.keys() == there.keys()
    for name, path in there.items():
        answer = orders("GET", f"/b/orders/segments/{name}")
        assert answer.body == path.read_bytes()
        assert (len(answer.body), answer["etag"]) == (files[name]["bytes"], files[name]["etag"])


def test_of_the_newest_segment_no_more_comes_than_is_surely_on_disk(orders: Served) -> None:
    file = _path(orders) / "segments" / SEGMENT
    whole = file.read_bytes()
    file.write_bytes(whole + b"POST /b/orders HTTP/1.1\r\n")
    assert orders("GET", f"/b/orders/segments/{SEGMENT}").body == whole
    [listed] = [each for each in orders("GET", "/b/orders/segments").json()["files"] if each["file"] == SEGMENT]
    assert listed["bytes"] == len(whole)


def test_a_newest_segment_without_an_index_is_served_whole(orders: Served) -> None:
    file = _path(orders) / "segments" / SEGMENT
    file.with_suffix(".idx").unlink()
    files = {each["file"]: each["bytes"] for each in orders("GET", "/b/orders/segments").json()["files"]}
    assert files[SEGMENT] == file.stat().st_size
    assert orders("GET", f"/b/orders/segments/{SEGMENT}").body == file.read_bytes()


@pytest.mark.parametrize(
    ("given", "start", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=10-", 10, None),
        ("bytes=-10", -10, None),
        ("bytes=0-99999999", 0, None),
        ("bytes=-99999999", 0, None),
        ("bytes=5-5", 5, 6),
    ],
)
def test_a_range_is_answered_with_these_bytes(orders: Served, given: str, start: int, end: int | None) -> None:
    whole = orders("GET", f"/b/orders/segments/{SEGMENT}").body
    answer = orders("GET", f"/b/orders/segments/{SEGMENT}", headers={"range": given})
    assert (answer.status, answer.body) == (206, whole[start:end])
    first = start % len(whole)
    assert answer["content-range"] == f"bytes {first}-{first + len(answer.body) - 1}/{len(whole)}"


@pytest.mark.parametrize("given", ["bytes=99999999-", "bytes=-0"])
def test_bytes_that_are_not_there_are_416(orders: Served, given: str) -> None:
    answer = orders("GET", f"/b/orders/segments/{SEGMENT}", headers={"range": given})
    assert (answer.status, answer.json()["code"]) == (416, "range")
    assert answer["content-range"].startswith("bytes */")


@pytest.mark.parametrize("given", ["bytes=9-5", "bytes=-", "bytes=0-1,3-4", "lines=1-2", "bytes=a-b"])
def test_what_is_no_single_range_is_answered_with_all(orders: Served, given: str) -> None:
    whole = orders("GET", f"/b/orders/segments/{SEGMENT}").body
    answer = orders("GET", f"/b/orders/segments/{SEGMENT}", headers={"range": given})
    assert (answer.status, answer.body) == (200, whole)


def test_a_download_goes_on_only_in_the_same_file(orders: Served) -> None:
    path = f"/b/orders/segments/{SEGMENT}"
    etag = orders("GET", path)["etag"]
    given = {"range": "bytes=10-", "if-range": etag}
    assert orders("GET", path, headers=given).status == 206
    assert orders("GET", path, headers={"if-none-match": etag}).status == 304
    orders("DELETE", "/b/orders/1?reason=asked")
    assert orders("GET", path, headers=given).status == 200
    assert orders("GET", path, headers={"if-none-match": etag}).status == 200


def test_a_large_file_comes_whole(served: Served) -> None:
    served.buffer("large", b"x" * 3_000_000)
    folder = _path(served, "large") / "segments"
    answer = served("GET", f"/b/large/segments/{SEGMENT}")
    assert answer.body == (folder / SEGMENT).read_bytes()
    part = served("GET", f"/b/large/segments/{SEGMENT}", headers={"range": "bytes=100000-2900000"})
    assert (part.status, part.body) == (206, answer.body[100_000:2_900_001])
    head = served("HEAD", f"/b/large/segments/{SEGMENT}")
    assert (head.body, head["content-length"]) == (b"", str(len(answer.body)))


@pytest.mark.parametrize(
    "name",
    [
        *("lock", "paused", "..", "%2e%2e", "..%2fbuffer.json", "%2Fetc%2Fpasswd", "..%2F..%2F..%2Fusers.json"),
        *("buffer.json%00", f".{SEGMENT}", f"{SEGMENT}%2f..%2f{SEGMENT}", ".new-segment", "00000000000000000002.http"),
        *("producers", "00000000000000000001", f"{SEGMENT}.bak", ""),
    ],
)
def test_only_files_of_the_listing_are_given(orders: Served, name: str) -> None:
    (_path(orders) / "segments" / f"{SEGMENT}.bak").write_bytes(b"secret")
    (_path(orders) / "lock").touch()
    answer = orders("GET", f"/b/orders/segments/{name}")
    assert (answer.status, answer.json()["code"]) == (404, "not-found")


def test_an_encrypted_buffer_gives_what_is_stored(served: Served, tmp_path: Path) -> None:
    from hbuf.ops.key import export, new

    new("reader", "encrypt", tmp_path / "keys")
    served.buffer("secret", b"nobody reads this", recipients=[export("reader", tmp_path / "keys")])
    answer = served("GET", "/b/secret/1")
    assert (answer.status, answer["x-hbuf-encrypted"]) == (200, "1")
    assert b"nobody" not in answer.body
    assert len(answer.body) > 10
    assert served("GET", "/b/secret", headers={"accept": "application/octet-stream"}).body == b""
    line = json.loads(served("GET", "/b/secret", headers={"accept": "application/x-ndjson"}).body)
    assert (line["body"], line["encrypted"]) == (None, True)
    assert served("GET", "/b/secret/status").json()["encrypted"] is True
