"""Keys as text: they come back as they were, nothing else is taken for one, and no secret is shown."""

import base64
import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbuf.errors import Damaged, NewerFormat, UsageError
from hbuf.format.keys import (
    KINDS,
    KeyFile,
    Kind,
    PublicKey,
    encode_key_file,
    encode_public,
    fingerprint,
    looks_public,
    looks_secret,
    new_key_file,
    parse_key_file,
    parse_public,
    public_key,
    public_of_secret,
)

UUID = "2f6d1f0e-7a2b-4c56-9d3e-0123456789ab"
PUT = b"0123456789abcdef" * 4

# RFC 8032 section 7.1 test 1, and RFC 7748 section 6.1, Alice. The texts and sums were made with shell tools.
ED25519_SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
ED25519_PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
X25519_SECRET = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
X25519_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
KNOWN = [
    (
        "sign",
        ED25519_SECRET,
        ED25519_PUBLIC,
        "hbuf-sign-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "6f0884b435285239",
    ),
    (
        "recovery",
        ED25519_SECRET,
        ED25519_PUBLIC,
        "hbuf-recovery-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "5c5222745b5a68f6",
    ),
    (
        "encrypt",
        X25519_SECRET,
        X25519_PUBLIC,
        "hbuf-encrypt-1 hSDwCYkwp1R0i33ctD73Wg2_Og0mOBr066SpjqqbTmo",
        "41d56422fbe46f85",
    ),
]
# RFC 8032 section 7.1 test 2, and RFC 7748 section 6.1, Bob.
OTHER_PAIRS: list[tuple[Kind, str, str]] = [
    (
        "sign",
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
    ),
    (
        "encrypt",
        "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
    ),
]
KNOWN_FILE = b"""\
hbuf secret key, version 1
kind: sign
secret: nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A
public: 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo
checksum: 3cbd8f530d4b65c7f38442368d67a4eb8277f2df458ba5bef109677310ce8879
"""

PLAIN = new_key_file("sign", ED25519_SECRET)
SERVING = replace(PLAIN, buffer=UUID, first=bytes(range(32)), put=PUT, next_secret=bytes(range(64, 96)))
ENCRYPT = new_key_file("encrypt", X25519_SECRET)

KEYS = st.binary(min_size=32, max_size=32)


@st.composite
def key_files(draw: st.DrawFn) -> KeyFile:
    key = new_key_file(draw(st.sampled_from(KINDS)), draw(KEYS))
    if key.kind != "sign" or draw(st.booleans()):
        return key
    return replace(
        key,
        buffer=str(draw(st.uuids())),
        first=draw(st.none() | KEYS),
        put=draw(st.none() | KEYS.map(lambda data: data.hex().encode())),
        next_secret=draw(st.none() | KEYS),
    )


def with_checksum(text: bytes) -> bytes:
    return text + f"checksum: {hashlib.sha256(text).hexdigest()}\n".encode()


def changed(key: KeyFile, old: bytes, new: bytes) -> bytes:
    """The key's file with a change in it that the checksum covers."""
    text = encode_key_file(key).rpartition(b"checksum: ")[0]
    assert text.count(old) == 1
    return with_checksum(text.replace(old, new))


# Public keys


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), KEYS, st.sampled_from(["", "\n"]))
def test_public_key_comes_back_from_its_text(kind: Kind, data: bytes, end: str) -> None:
    text = encode_public(PublicKey(kind, data))
    assert "\n" not in text
    assert parse_public(text + end) == PublicKey(kind, data)


@pytest.mark.parametrize(("kind", "secret", "public", "text", "short"), KNOWN, ids=[known[0] for known in KNOWN])
def test_known_keys_have_known_texts_and_fingerprints(
    kind: Kind, secret: bytes, public: bytes, text: str, short: str
) -> None:
    key = public_key(new_key_file(kind, secret))
    assert key == PublicKey(kind, public)
    assert encode_public(key) == text
    assert fingerprint(key) == short


@pytest.mark.parametrize(("kind", "secret", "public"), OTHER_PAIRS)
def test_public_key_is_that_of_its_secret(kind: Kind, secret: str, public: str) -> None:
    assert public_of_secret(kind, bytes.fromhex(secret)).hex() == public


@pytest.mark.parametrize("kind", KINDS)
def test_fingerprint_is_a_sum_that_anybody_can_make(kind: Kind) -> None:
    summed = hashlib.sha256(f"hbuf1 key\n{kind}\n".encode() + ED25519_PUBLIC).hexdigest()
    assert fingerprint(PublicKey(kind, ED25519_PUBLIC)) == summed[:16]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hbuf-sign-1",
        "hbuf-sign-1 ",
        "hbuf-sign-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHUR",
        "hbuf-sign-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURoo",
        "hbuf-sign-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
        "hbuf-sign-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURp",  # not canonical
        "hbuf-sign-1 11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo",  # not base64url
        "hbuf-sign-1  11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        " hbuf-sign-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "hbuf-sign-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\n\n",
        "hbuf-sign-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\r\n",
        "hbuf-sign-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo me@host",
        "hbuf-sign-2 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "hbuf-sign-01 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "hbuf-other-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "HBUF-SIGN-1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        KNOWN_FILE.decode(),
    ],
)
def test_text_that_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_public(text)


def test_newer_public_key_is_said_to_be_newer() -> None:
    with pytest.raises(UsageError, match="of version 2"):
        parse_public("hbuf-sign-2 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")


def test_fingerprint_differs_with_the_kind_and_with_every_bit() -> None:
    keys = [PublicKey(kind, ED25519_PUBLIC) for kind in KINDS]
    number = int.from_bytes(ED25519_PUBLIC)
    keys += [PublicKey("sign", (number ^ 1 << bit).to_bytes(32)) for bit in range(256)]
    assert len({fingerprint(key) for key in keys}) == 3 + 256


def test_what_is_meant_as_a_public_key_is_told_from_names_and_files() -> None:
    meant = ["hbuf-sign-1 ", "hbuf-sign-2 x", "hbuf-other-1 x", *(known[3] for known in KNOWN)]
    assert [text for text in meant if not looks_public(text)] == []
    others = ["", "hbuf-sign-1", "hbuf-sign-1.pub", "./hbuf-sign-1 x", "audit", KNOWN_FILE.decode()]
    assert [text for text in others if looks_public(text)] == []


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(UsageError):
        encode_public(PublicKey("sign", bytes(size)))
    for kind in KINDS:
        with pytest.raises(UsageError):
            new_key_file(kind, bytes(size))


def test_public_key_to_hand_out_stays_that_with_which_the_line_begins() -> None:
    assert public_key(PLAIN) == PublicKey("sign", ED25519_PUBLIC)
    assert public_key(SERVING) == PublicKey("sign", bytes(range(32)))


# Key files


@settings(max_examples=100, deadline=None)
@given(key_files())
def test_key_comes_back_from_its_file(key: KeyFile) -> None:
    assert parse_key_file(encode_key_file(key)) == key


def test_known_key_has_a_known_file() -> None:
    assert encode_key_file(PLAIN) == KNOWN_FILE
    assert parse_key_file(KNOWN_FILE) == PLAIN


@pytest.mark.parametrize("key", [PLAIN, SERVING, ENCRYPT], ids=["plain", "serving", "encrypt"])
def test_file_that_is_cut_off_anywhere_is_refused(key: KeyFile) -> None:
    whole = encode_key_file(key)
    for length in range(len(whole)):
        with pytest.raises(Damaged):
            parse_key_file(whole[:length])


def test_file_with_any_byte_changed_is_refused() -> None:
    whole = encode_key_file(SERVING)
    version_at = whole.index(b"1")
    for at in range(len(whole)):
        for byte in {whole[at] ^ 1, whole[at] ^ 0x20, 0x0A, 0xFF} - {whole[at]}:
            data = whole[:at] + bytes([byte]) + whole[at + 1 :]
            with pytest.raises(NewerFormat if at == version_at and chr(byte) in "23456789" else Damaged):
                parse_key_file(data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"kind: sign", b"kind: recovery"),  # which serves no buffer
        (b"kind: sign", b"kind: encrypt"),
        (b"kind: sign", b"kind: other"),
        (b"kind: sign\n", b""),
        (b"kind: sign", b"kind: sign\nkind: sign"),
        (b"kind: sign", b"kind: sign\nnote: mine"),
        (b"kind: sign", b"kind:  sign"),
        (b"\nput: ", b"\nPUT: "),
        (b"\nput: 0", b"\nput: A"),
        (b"\nput: 0", b"\nput: "),
        (UUID.encode(), b"not-a-uuid"),
        (f"buffer: {UUID}\n".encode(), b""),
        (b"public: 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\n", b""),
        (b"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", b"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURp"),
        (b"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A", b"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2B"),
        (b"next-secret: ", b"next-secret: A"),
        (b"\nsecret: ", b"\r\nsecret: "),
    ],
    ids=str,
)
def test_file_that_breaks_a_rule_is_refused_although_its_checksum_is_right(old: bytes, new: bytes) -> None:
    with pytest.raises(Damaged):
        parse_key_file(changed(SERVING, old, new))


def test_file_whose_lines_are_missing_doubled_or_moved_is_refused_although_its_checksum_is_right() -> None:
    lines = encode_key_file(SERVING).splitlines(keepends=True)[:-1]
    assert with_checksum(b"".join(lines)) == encode_key_file(SERVING)
    optional = [b"first", b"put", b"next-secret"]
    for i, line in enumerate(lines):
        without = lines[:i] + lines[i + 1 :]
        wrong = [[*lines[:i], line, *lines[i:]]]
        wrong += [[*without[:at], line, *without[at:]] for at in range(len(lines)) if at != i]
        if line.partition(b":")[0] not in optional:
            wrong.append(without)
        for changed_lines in wrong:
            with pytest.raises(Damaged):
                parse_key_file(with_checksum(b"".join(changed_lines)))


def test_file_with_something_behind_its_end_is_refused() -> None:
    for more in (b"\n", b"x", KNOWN_FILE, with_checksum(KNOWN_FILE)[len(KNOWN_FILE) :]):
        with pytest.raises(Damaged):
            parse_key_file(KNOWN_FILE + more)


@pytest.mark.parametrize("key", [PLAIN, ENCRYPT], ids=["Ed25519", "X25519"])
def test_public_key_of_another_secret_is_noticed(key: KeyFile) -> None:
    with pytest.raises(Damaged, match="does not belong"):
        parse_key_file(encode_key_file(replace(key, public=bytes(range(32)))))


@pytest.mark.parametrize("version", ["2", "10", "999999999"])
def test_file_of_a_newer_version_is_said_to_be_newer(version: str) -> None:
    with pytest.raises(NewerFormat):
        parse_key_file(f"hbuf secret key, version {version}\nwhatever\n".encode())


def test_file_that_begins_as_a_key_file_does_is_taken_for_a_secret_one_even_if_cut_off() -> None:
    first_line_bytes = KNOWN_FILE.index(b"\n") + 1
    for length in range(len(KNOWN_FILE) + 1):
        assert looks_secret(KNOWN_FILE[:length]) == (length >= first_line_bytes)
    assert looks_secret(b"hbuf secret key, version 7\n")
    assert not looks_secret(KNOWN[0][3].encode())
    assert not looks_secret(b"\n" + KNOWN_FILE)


@pytest.mark.parametrize("version", ["0", "-1", "01", "1.0", "1 ", "", "1000000000", "one"])
def test_file_of_a_version_that_never_was_is_no_key(version: str) -> None:
    with pytest.raises(Damaged, match="it is not a key file"):
        parse_key_file(KNOWN_FILE.replace(b"version 1", f"version {version}".encode()))


@pytest.mark.parametrize("data", [b"", b"\0" * 200, b"-----BEGIN OPENSSH PRIVATE KEY-----\n", b"\xff\xfe", b"hbuf"])
def test_other_file_is_no_key(data: bytes) -> None:
    with pytest.raises(Damaged, match="it is not a key file"):
        parse_key_file(data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_behind_the_first_line_are_damaged_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(Damaged):
        parse_key_file(b"hbuf secret key, version 1\n" + data)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"secret": b"short"},
        {"public": b"short"},
        {"buffer": "orders"},
        {"buffer": None},
        {"buffer": UUID + "\n"},
        {"first": b"short"},
        {"put": b"0" * 63},
        {"put": b"A" * 64},
        {"next_secret": b"short"},
        {"kind": "recovery"},
    ],
    ids=str,
)
def test_key_that_could_not_be_read_again_is_not_written(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        encode_key_file(replace(SERVING, **change))


# Secrets


def encodings(secret: bytes) -> list[str]:
    return [
        secret.hex(),
        base64.b64encode(secret).decode().rstrip("="),
        base64.urlsafe_b64encode(secret).decode().rstrip("="),
        repr(secret)[2:-1],
    ]


def test_a_key_that_is_printed_shows_no_secret() -> None:
    shown = f"{SERVING!r} {SERVING} {[SERVING]}"
    assert SERVING.next_secret is not None
    for text in [*encodings(SERVING.secret), *encodings(SERVING.next_secret)]:
        assert text not in shown
    assert UUID in shown


@pytest.mark.parametrize(
    "data",
    [
        encode_key_file(SERVING)[:-1],
        changed(SERVING, UUID.encode(), b"orders"),
        changed(SERVING, b"next-secret: ", b"next-secret: A"),
        encode_key_file(replace(PLAIN, public=bytes(range(32)))),
        KNOWN_FILE.replace(b"version 1", b"version 2"),
    ],
    ids=["cut off", "wrong uuid", "wrong base64", "other public key", "newer"],
)
def test_an_error_about_a_key_file_says_no_secret(data: bytes) -> None:
    with pytest.raises((Damaged, NewerFormat)) as caught:
        parse_key_file(data)
    said = f"{caught.value!r} {caught.value.hint} {caught.value.__context__!r} {caught.value.__cause__!r}"
    for text in encodings(ED25519_SECRET):
        assert text not in said


@pytest.mark.parametrize("text", [*encodings(ED25519_SECRET), KNOWN_FILE.decode()])
def test_a_secret_that_is_given_as_a_public_key_is_not_repeated(text: str) -> None:
    for wrong in (text, f"hbuf-sign-1 {text}="):
        with pytest.raises(UsageError) as caught:
            parse_public(wrong)
        assert not any(each in f"{caught.value!r} {caught.value.hint}" for each in encodings(ED25519_SECRET))
