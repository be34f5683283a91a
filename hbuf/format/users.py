"""Who may do what: the model of `users.json`, of its roles and patterns, and of the text of a token.

It must not know where the file is. Fields that are not known here are kept: a change is made to what was read.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from hbuf.errors import CannotCreate, Damaged, NotFound, UsageError
from hbuf.format.times import parse_time

Role = Literal["reader", "writer", "consumer", "operator", "admin"]
Action = Literal["read", "append", "operate", "erase", "see"]

ROLES: tuple[Role, ...] = get_args(Role)
# What each role may. Any role may see: numbers and state.
MAY: Mapping[Role, frozenset[Action]] = {
    "reader": frozenset(("see", "read")),
    "writer": frozenset(("see", "append")),
    "consumer": frozenset(("see",)),
    "operator": frozenset(("see", "operate")),
    "admin": frozenset(get_args(Action)),
}
# hbuf's own buffers, whose names begin with `_`, are written by hbuf alone.
_OF_OWN_BUFFERS: frozenset[Action] = frozenset(("see", "read"))

SERVER = "+"  # stands for the tenant where a user of the whole server is meant; no tenant is called so

_USER_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,127}")
_PATTERN = re.compile(r"[a-z0-9._*-]{1,128}")
_TENANT_AND_8 = r"(\+|[a-z0-9][a-z0-9._-]{0,127})\.[a-z0-9]{8}"
_TOKEN_ID = re.compile(_TENANT_AND_8)
# Of a fixed length at its end, so that a `_` in a tenant's name or in the secret itself is no riddle.
_TOKEN = re.compile(rf"hbuf_({_TENANT_AND_8})_([A-Za-z0-9_-]{{43}})")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SERIAL = re.compile(r"[0-9a-f]{1,40}")


class Grant(NamedTuple):
    """A role on the buffers whose names match a pattern, in which `*` is any run of characters."""

    role: Role
    buffers: str

    def may(self, action: Action, buffer: str) -> bool:
        if action not in MAY[self.role]:
            return False
        if buffer.startswith("_"):
            if action not in _OF_OWN_BUFFERS:
                return False
            # A role on all buffers is not meant to be one on the audit trail; but an administrator sees everything.
            if self.role != "admin" and not self.buffers.startswith("_"):
                return False
        return matches(self.buffers, buffer)

    def may_somewhere(self, action: Action) -> bool:
        """Whether there can be a buffer on which it gives this."""
        return action in MAY[self.role] and (action in _OF_OWN_BUFFERS or not self.buffers.startswith("_"))


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token: `sha256` is that of its secret."""

    id: str
    sha256: str
    created: str
    expires: str | None
    note: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that was issued by hbuf's own authority: `sha256` is its fingerprint."""

    serial: str
    sha256: str
    created: str
    expires: str


@dataclass(frozen=True, slots=True)
class User:
    name: str
    created: str
    grants: tuple[Grant, ...]
    tokens: tuple[Token, ...]
    certificates: tuple[Certificate, ...]


class Users:
    """A `users.json` that was checked. It never changes: who changes something gets another one."""

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        """Raises Damaged for what cannot be right: nobody is let in by a file that is only half understood."""
        self._values: dict[str, Any] = {"users": {}} if values is None else values
        named = self._values.get("users")
        if not isinstance(named, dict):
            raise Damaged("there is no object 'users' in it")
        self._users = {name: _user(name, value) for name, value in named.items()}
        ids = [token.id for user in self._users.values() for token in user.tokens]
        if len(set(ids)) < len(ids):
            raise Damaged("two tokens have the same id")

    def __iter__(self) -> Iterator[User]:
        return iter(self._users.values())

    def __len__(self) -> int:
        return len(self._users)

    def find(self, name: str) -> User | None:
        return self._users.get(name)

    def get(self, name: str) -> User:
        user = self._users.get(name)
        if user is None:
            raise NotFound(f"there is no user '{name}'", hint="hbuf-user list shows those that there are")
        return user

    def encode(self) -> bytes:
        return json.dumps(self._values, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    def with_user(self, name: str, created: str, grants: Iterable[Grant]) -> Users:
        check_user_name(name)
        if name in self._users:
            raise CannotCreate(f"there is a user '{name}' already", hint="hbuf-user grant gives it more roles")
        made: dict[str, Any] = {"created": created, "grants": [], "tokens": [], "certificates": []}
        added = self._changed(lambda values: values["users"].update({name: made}))
        return added.with_grants(name, grants)

    def without_user(self, name: str) -> Users:
        self.get(name)
        return self._changed(lambda values: values["users"].pop(name))

    def with_grants(self, name: str, grants: Iterable[Grant]) -> Users:
        """What the user has already stays as it is."""
        new = [grant for grant in dict.fromkeys(grants) if grant not in self.get(name).grants]
        return self._with(name, "grants", [grant._asdict() for grant in new])

    def without_grants(self, name: str, grants: Iterable[Grant]) -> Users:
        gone = set(grants)
        missing = gone - set(self.get(name).grants)
        if missing:
            raise NotFound(f"user '{name}' does not have {encode_grant(min(missing))}")
        return self._without(name, "grants", lambda value: Grant(value["role"], value["buffers"]) in gone)

    def with_token(self, name: str, token: Token) -> Users:
        return self._with(name, "tokens", [_fields(token)])

    def without_token(self, name: str, token_id: str) -> Users:
        if token_id not in [token.id for token in self.get(name).tokens]:
            raise NotFound(f"user '{name}' has no token with this id", hint="hbuf-user list --json shows the ids")
        return self._without(name, "tokens", lambda value: value["id"] == token_id)

    def with_certificate(self, name: str, certificate: Certificate) -> Users:
        return self._with(name, "certificates", [_fields(certificate)])

    def without_certificate(self, name: str, fingerprint: str) -> Users:
        if fingerprint not in [certificate.sha256 for certificate in self.get(name).certificates]:
            hint = "hbuf-user list --json shows the fingerprints"
            raise NotFound(f"user '{name}' has no certificate with this fingerprint", hint=hint)
        return self._without(name, "certificates", lambda value: value["sha256"] == fingerprint)

    def _with(self, name: str, what: str, new: list[dict[str, Any]]) -> Users:
        self.get(name)
        return self._changed(lambda values: values["users"][name].setdefault(what, []).extend(new))

    def _without(self, name: str, what: str, is_gone: Callable[[dict[str, Any]], bool]) -> Users:
        def remove(values: dict[str, Any]) -> None:
            user = values["users"][name]
            user[what] = [value for value in user[what] if not is_gone(value)]

        return self._changed(remove)

    def _changed(self, change: Callable[[dict[str, Any]], object]) -> Users:
        values = copy.deepcopy(self._values)
        change(values)
        return Users(values)


def parse_users(data: bytes) -> Users:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise Damaged("it is not JSON") from None
    if not isinstance(values, dict):
        raise Damaged("it is not a JSON object")
    return Users(values)


# Names, patterns, grants


def check_user_name(name: str) -> str:
    if not _USER_NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot be a user's name",
            hint="a name is 1 to 128 of a-z, 0-9, '.', '_', '@' and '-', and starts with a letter or a digit",
        )
    return name


def matches(pattern: str, name: str) -> bool:
    """`*` is any run of characters, every other character stands for itself."""
    start, *others = pattern.split("*")
    if not others:
        return name == pattern
    *inner, end = others
    if not name.startswith(start) or not name.endswith(end) or len(name) < len(start) + len(end):
        return False
    at, last = len(start), len(name) - len(end)
    for piece in inner:  # the first place that fits leaves the most room for what follows
        found = name.find(piece, at, last)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def parse_grant(text: str) -> Grant:
    """`reader:orders`, `writer:shop-*`; a role alone is one on all buffers."""
    role, colon, buffers = text.partition(":")
    if role not in ROLES:
        raise UsageError(
            f"'{text}' is not a role on buffers", hint=f"roles are {', '.join(ROLES)}, as in reader:orders"
        )
    if not colon:
        buffers = "*"
    if not _PATTERN.fullmatch(buffers):
        hint = "in a pattern '*' is any run of characters, the others are a-z, 0-9, '.', '_' and '-'"
        raise UsageError(f"'{buffers}' cannot be a pattern of buffers", hint=hint)
    return Grant(role, buffers)


def encode_grant(grant: Grant) -> str:
    return f"{grant.role}:{grant.buffers}"


# Tokens


class TokenText(NamedTuple):
    """A token that somebody shows, taken apart."""

    id: str
    tenant: str  # or SERVER
    secret: str


def parse_token(text: str) -> TokenText | None:
    """None where it cannot be a token."""
    found = _TOKEN.fullmatch(text)
    return TokenText(*found.groups()) if found else None


def encode_token(token_id: str, secret: str) -> str:
    return f"hbuf_{token_id}_{secret}"


def hash_of_secret(secret: str) -> str:
    """SHA-256 is enough: a secret of 256 random bits cannot be tried out."""
    return hashlib.sha256(secret.encode()).hexdigest()


# Checking what a file says


def _user(name: str, value: Any) -> User:
    if not _USER_NAME.fullmatch(name):
        raise Damaged(f"{_shown(name)} cannot be a user's name")
    where = f"user '{name}'"
    if not isinstance(value, dict):
        raise Damaged(f"{where} is not an object")
    return User(
        name,
        _time(value, "created", where),
        tuple(_grant(each, where) for each in _objects(value, "grants", where)),
        tuple(_token(each, where) for each in _objects(value, "tokens", where)),
        tuple(_certificate(each, where) for each in _objects(value, "certificates", where)),
    )


def _grant(value: dict[str, Any], where: str) -> Grant:
    role = value.get("role")
    if role not in ROLES:
        raise Damaged(f"{where} has a role that is none: {_shown(role)}")
    return Grant(role, _text(value, "buffers", where, _PATTERN))


def _token(value: dict[str, Any], where: str) -> Token:
    expires = None if value.get("expires") is None else _time(value, "expires", where)
    return Token(
        _text(value, "id", where, _TOKEN_ID),
        _text(value, "sha256", where, _SHA256),
        _time(value, "created", where),
        expires,
        _text(value, "note", where) if "note" in value else "",
    )


def _certificate(value: dict[str, Any], where: str) -> Certificate:
    return Certificate(
        _text(value, "serial", where, _SERIAL),
        _text(value, "sha256", where, _SHA256),
        _time(value, "created", where),
        _time(value, "expires", where),
    )


def _objects(value: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    found = value.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Damaged(f"'{name}' of {where} is not a list of objects")
    return found


def _text(value: dict[str, Any], name: str, where: str, form: re.Pattern[str] | None = None) -> str:
    found = value.get(name)
    if not isinstance(found, str) or (form is not None and not form.fullmatch(found)):
        # What is there is not repeated: it may be a secret that somebody put in the wrong place.
        raise Damaged(f"'{name}' of {where} is not what it must be")
    return found


def _time(value: dict[str, Any], name: str, where: str) -> str:
    found = _text(value, name, where)
    try:
        parse_time(found)
    except (ValueError, TypeError):
        raise Damaged(f"'{name}' of {where} is not a time") from None
    return found


def _fields(value: Token | Certificate) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
