"""What `users.json` may say, what the roles give, and what a pattern of buffers matches."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbuf.errors import CannotCreate, Damaged, NotFound, UsageError
from hbuf.format.users import (
    MAY,
    ROLES,
    Action,
    Certificate,
    Grant,
    Role,
    Token,
    Users,
    check_user_name,
    encode_grant,
    encode_token,
    hash_of_secret,
    matches,
    parse_grant,
    parse_token,
    parse_users,
)

TIME = "2026-11-18T04:51:00.000000Z"
SECRET = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"
TOKEN = Token("acme.k3v9q0ab", hash_of_secret(SECRET), TIME, None, "for web1")
CERTIFICATE = Certificate("1f", "ab" * 32, TIME, TIME)
ACTIONS: list[Action] = ["read", "append", "operate", "erase", "see"]

# The table of docs/http.md, written once more.
TABLE: dict[Role, list[Action]] = {
    "reader": ["read", "see"],
    "writer": ["append", "see"],
    "consumer": ["see"],
    "operator": ["operate", "see"],
    "admin": ACTIONS,
}


@pytest.fixture
def users() -> Users:
    made = Users().with_user("alice", TIME, [Grant("reader", "orders"), Grant("writer", "shop-*")])
    return made.with_token("alice", TOKEN).with_certificate("alice", CERTIFICATE)


# Roles


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("action", ACTIONS)
def test_role_gives_what_the_table_says_and_only_where_its_pattern_matches(role: Role, action: Action) -> None:
    grant = Grant(role, "orders")
    assert grant.may(action, "orders") == (action in TABLE[role])
    assert not grant.may(action, "orders-2")
    assert grant.may_somewhere(action) == (action in TABLE[role])


def test_every_role_is_in_the_table() -> None:
    assert set(TABLE) == set(ROLES) == set(MAY)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("pattern", ["*", "_*", "_audit"])
@pytest.mark.parametrize("action", ["append", "operate", "erase"])
def test_nobody_writes_to_hbuf_s_own_buffers(role: Role, pattern: str, action: Action) -> None:
    assert not Grant(role, pattern).may(action, "_audit")


@pytest.mark.parametrize("pattern", ["*", "*audit", "**"])
def test_own_buffers_are_not_among_all_buffers_but_for_an_administrator(pattern: str) -> None:
    assert not Grant("reader", pattern).may("read", "_audit")
    assert not Grant("operator", pattern).may("see", "_audit")
    assert Grant("admin", pattern).may("read", "_audit")


@pytest.mark.parametrize("pattern", ["_audit", "_*", "_a*t"])
def test_pattern_that_begins_with_an_underscore_is_for_own_buffers(pattern: str) -> None:
    grant = Grant("reader", pattern)
    assert grant.may("read", "_audit")
    assert not grant.may("read", "audit")
    assert grant.may_somewhere("read")
    assert not Grant("admin", pattern).may_somewhere("append")


# Patterns


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("*", "orders", True),
        ("orders", "orders", True),
        ("orders", "orders-2", False),
        ("orders", "order", False),
        ("shop-*", "shop-", True),
        ("shop-*", "shop", False),
        ("*-eu", "shop-eu", True),
        ("*-eu", "shop-eu-2", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("a*b*bc", "abc", False),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("a?", "ab", False),
    ],
)
def test_star_is_any_run_of_characters_and_nothing_else_is_special(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_pattern_matches_as_the_regular_expression_does(pattern: str, name: str) -> None:
    assert matches(pattern, name) == bool(re.fullmatch(pattern.replace("*", ".*"), name))


def test_pattern_of_many_stars_takes_no_time() -> None:
    assert not matches("*a" * 60 + "b", "a" * 129)


@pytest.mark.parametrize(
    ("text", "grant"),
    [
        ("reader:orders", Grant("reader", "orders")),
        ("writer:shop-*", Grant("writer", "shop-*")),
        ("admin", Grant("admin", "*")),
        ("reader:_audit", Grant("reader", "_audit")),
    ],
)
def test_grant_is_written_as_a_role_and_a_pattern(text: str, grant: Grant) -> None:
    assert parse_grant(text) == grant
    assert parse_grant(encode_grant(grant)) == grant


@pytest.mark.parametrize(
    "text", ["", "root", "reader:", "reader:Orders", "reader:a b", "reader:[ab]", ":orders", "Reader:a"]
)
def test_what_is_no_grant_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_grant(text)


# Names and tokens


@pytest.mark.parametrize("name", ["a", "7", "alice@example.org", "web-1.a_b", "a" * 128])
def test_name_of_a_user(name: str) -> None:
    assert check_user_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a" * 129, "Alice", "@alice", ".a", "_a", "a b", "a/b", "unix:socket", "a\n", "é"]
)
def test_what_cannot_be_a_user_s_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_user_name(name)


@pytest.mark.parametrize("tenant", ["acme", "+", "a_b", "a.b", "a_b.12345678_c", "hbuf_x"])
@pytest.mark.parametrize("secret", [SECRET, "_" * 43, "-_" * 21 + "-"])
def test_token_is_taken_apart_whatever_its_tenant_and_secret_look_like(tenant: str, secret: str) -> None:
    parsed = parse_token(encode_token(f"{tenant}.k3v9q0ab", secret))
    assert parsed == (f"{tenant}.k3v9q0ab", tenant, secret)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hbuf_",
        SECRET,
        f"hbuf_{SECRET}",
        f"hbuf_acme_{SECRET}",
        f"hbuf_acme.k3v9q0ab_{SECRET}x",
        f"hbuf_acme.k3v9q0ab_{SECRET[:-1]}",
        f"hbuf_acme.k3v9q0ab_{SECRET}\n",
        f"hbuf_../acme.k3v9q0ab_{SECRET}",
        f"hbuf_...k3v9q0ab_{SECRET}",
        f"hbuf_++.k3v9q0ab_{SECRET}",
        f"hbuf_acme.K3V9Q0AB_{SECRET}",
        f"Hbuf_acme.k3v9q0ab_{SECRET}",
        f"hbuf_acme.k3v9q0ab_{SECRET[:-1]}é",
    ],
)
def test_what_cannot_be_a_token_is_none(text: str) -> None:
    assert parse_token(text) is None


# The file


def test_file_is_read_as_it_was_written_and_is_for_people(users: Users) -> None:
    text = users.encode().decode()
    assert parse_users(users.encode()).encode() == users.encode()
    assert '\n    "alice": {\n' in text
    assert [user.name for user in users] == ["alice"]
    assert json.loads(text)["users"]["alice"]["tokens"] == [
        {"id": TOKEN.id, "sha256": TOKEN.sha256, "created": TIME, "expires": None, "note": "for web1"}
    ]


def test_secret_is_not_in_the_file(users: Users) -> None:
    assert SECRET not in users.encode().decode()


def test_fields_that_are_not_known_are_kept_by_every_change(users: Users) -> None:
    values = json.loads(users.encode())
    alice = values["users"]["alice"]
    for place in (values, alice, alice["grants"][0], alice["tokens"][0], alice["certificates"][0]):
        place["later"] = [1, {"a": None}]
    changed = parse_users(json.dumps(values).encode()).with_grants("alice", [Grant("admin", "*")])
    changed = changed.with_user("bob", TIME, []).without_user("bob").without_grants("alice", [Grant("admin", "*")])
    assert json.loads(changed.encode()) == values


def test_change_leaves_what_was_read_as_it_is(users: Users) -> None:
    before = users.encode()
    users.with_grants("alice", [Grant("admin", "*")])
    users.without_user("alice")
    users.without_token("alice", TOKEN.id)
    assert users.encode() == before


def test_grant_that_is_there_already_is_not_there_twice(users: Users) -> None:
    twice = users.with_grants("alice", [Grant("reader", "orders"), Grant("reader", "b"), Grant("reader", "b")])
    assert twice.get("alice").grants == (Grant("reader", "orders"), Grant("writer", "shop-*"), Grant("reader", "b"))


def test_what_is_revoked_is_gone_and_the_rest_stays(users: Users) -> None:
    assert users.without_token("alice", TOKEN.id).get("alice").tokens == ()
    assert users.without_token("alice", TOKEN.id).get("alice").certificates == (CERTIFICATE,)
    assert users.without_certificate("alice", CERTIFICATE.sha256).get("alice").certificates == ()
    assert users.without_grants("alice", [Grant("reader", "orders")]).get("alice").grants == (
        Grant("writer", "shop-*"),
    )
    assert len(users.without_user("alice")) == 0


def test_what_is_not_there_cannot_be_revoked(users: Users) -> None:
    changes: list[Callable[[], Users]] = [
        lambda: users.without_user("bob"),
        lambda: users.with_grants("bob", []),
        lambda: users.without_token("alice", "acme.00000000"),
        lambda: users.without_certificate("alice", "00"),
        lambda: users.without_grants("alice", [Grant("admin", "*")]),
    ]
    for change in changes:
        with pytest.raises(NotFound):
            change()


def test_user_is_not_made_twice(users: Users) -> None:
    with pytest.raises(CannotCreate):
        users.with_user("alice", TIME, [])


def changed(users: Users, *path: str | int, value: Any) -> bytes:
    values = json.loads(users.encode())
    place = values
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["users"], []),
        (["users", "Alice"], {"created": TIME}),
        (["users", "alice"], None),
        (["users", "alice", "created"], "yesterday"),
        (["users", "alice", "created"], "2026-11-18"),
        (["users", "alice", "grants"], {}),
        (["users", "alice", "grants", 0], "reader:orders"),
        (["users", "alice", "grants", 0, "role"], "root"),
        (["users", "alice", "grants", 0, "role"], None),
        (["users", "alice", "grants", 0, "role"], ["reader"]),
        (["users", "alice", "grants", 0, "buffers"], ""),
        (["users", "alice", "grants", 0, "buffers"], "[ab]"),
        (["users", "alice", "tokens", 0, "id"], "k3v9q0ab"),
        (["users", "alice", "tokens", 0, "sha256"], SECRET),
        (["users", "alice", "tokens", 0, "sha256"], TOKEN.sha256.upper()),
        (["users", "alice", "tokens", 0, "expires"], "never"),
        (["users", "alice", "tokens", 0, "expires"], 0),
        (["users", "alice", "tokens", 0, "note"], 1),
        (["users", "alice", "certificates", 0, "sha256"], ""),
        (["users", "alice", "certificates", 0, "serial"], -1),
        (["users", "alice", "certificates", 0, "expires"], None),
    ],
    ids=str,
)
def test_value_that_cannot_be_is_damage_that_is_named_without_repeating_a_secret(
    users: Users, path: list[str | int], value: Any
) -> None:
    with pytest.raises(Damaged) as raised:
        parse_users(changed(users, *path, value=value))
    assert SECRET not in raised.value.message
    assert "\n" not in raised.value.message


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000], ids=repr)
def test_what_is_no_users_file_is_damage(data: bytes) -> None:
    with pytest.raises(Damaged):
        parse_users(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
PLACES = [
    ["users"],
    ["users", "alice"],
    *(["users", "alice", name] for name in ("created", "grants", "tokens", "certificates")),
    *(["users", "alice", "grants", 0, name] for name in ("role", "buffers")),
    *(["users", "alice", "tokens", 0, name] for name in ("id", "sha256", "created", "expires", "note")),
    *(["users", "alice", "certificates", 0, name] for name in ("serial", "sha256", "created", "expires")),
]


@given(st.sampled_from(PLACES), JSON)
def test_any_value_in_any_place_is_taken_or_is_damage(path: list[str | int], value: object) -> None:
    made = Users().with_user("alice", TIME, [Grant("reader", "orders")]).with_token("alice", TOKEN)
    with contextlib.suppress(Damaged):
        users = parse_users(changed(made.with_certificate("alice", CERTIFICATE), *path, value=value))
        assert parse_users(users.encode()).encode() == users.encode()


def test_two_tokens_of_one_id_are_damage(users: Users) -> None:
    with pytest.raises(Damaged):
        users.with_user("bob", TIME, []).with_token("bob", TOKEN)


def test_note_of_any_characters_can_be_read_again(users: Users) -> None:
    odd = Token("acme.00000001", TOKEN.sha256, TIME, None, 'a "note"\n\x00\udce9 é')
    assert parse_users(users.with_token("alice", odd).encode()).get("alice").tokens[1].note == 'a "note"\n\x00? é'
