"""hbuf-user: makes users of the daemon, gives them roles, tokens and certificates, and revokes all of that."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hbuf.cli.program import Version, program, program_of, run
from hbuf.cli.streams import printable
from hbuf.errors import UsageError
from hbuf.format.names import DEFAULT_TENANT
from hbuf.format.times import LAST_TIME_US, parse_duration_seconds, parse_moment
from hbuf.format.users import User, encode_grant, parse_grant
from hbuf.store.clock import SystemClock
from hbuf.store.state_root import state_root

NAME = "hbuf-user"
_COLUMNS = ("NAME", "ROLES", "TOKENS", "CERTIFICATES")
_DAY_SECONDS = 86400

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user.", show_default=False)]
Grants = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ROLE:BUFFERS]...", help="Roles, like reader:orders or writer:shop-*.", show_default=False),
]
Root = Annotated[
    str | None, typer.Option("--root", metavar="DIR", help="The daemon's root directory.", show_default=False)
]
Tenant = Annotated[str, typer.Option("--tenant", metavar="TENANT", help="Whose user it is.")]
Server = Annotated[bool, typer.Option("--server", help="A user of the whole server, with roles in all tenants.")]
Expires = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="A time, or how long from now: 90d.", show_default=False)
]


def user_command(version: Version = False) -> None:
    """Make users of the daemon, give them roles, tokens and certificates, and revoke all of that."""


def add_command(
    name: Name, grants: Grants = None, root: Root = None, tenant: Tenant = DEFAULT_TENANT, server: Server = False
) -> None:
    """Make a user, with roles."""
    from hbuf.ops.user import add_user

    add_user(_root(root), _tenant(tenant, server), name, [parse_grant(text) for text in grants or []])


def grant_command(
    name: Name, grants: Grants = None, root: Root = None, tenant: Tenant = DEFAULT_TENANT, server: Server = False
) -> None:
    """Give a user more roles."""
    from hbuf.ops.user import add_grants

    add_grants(_root(root), _tenant(tenant, server), name, [parse_grant(text) for text in grants or []])


def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    root: Root = None,
    tenant: Tenant = DEFAULT_TENANT,
    server: Server = False,
) -> None:
    """List users with their roles, tokens and certificates."""
    from hbuf.ops.user import list_users

    whose = _tenant(tenant, server)
    found = list_users(_root(root), whose)
    if as_json:
        for user in found:
            sys.stdout.write(json.dumps(_values(user, whose), ensure_ascii=False) + "\n")
        return
    rows = [_row(user) for user in found]
    if sys.stdout.isatty():
        rows.insert(0, _COLUMNS)
        widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
        rows = [tuple(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    for row in rows:
        sys.stdout.write(("  " if sys.stdout.isatty() else "\t").join(row).rstrip() + "\n")


def revoke_command(
    name: Name,
    token: Annotated[
        str | None, typer.Option("--token", metavar="ID", help="This token alone.", show_default=False)
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option("--certificate", metavar="FINGERPRINT", help="This certificate alone.", show_default=False),
    ] = None,
    grant: Annotated[
        list[str] | None,
        typer.Option("--grant", metavar="ROLE:BUFFERS", help="This role alone. May repeat.", show_default=False),
    ] = None,
    root: Root = None,
    tenant: Tenant = DEFAULT_TENANT,
    server: Server = False,
) -> None:
    """Remove a user with everything, or a token, a certificate or a role."""
    from hbuf.ops import user

    if sum(each is not None for each in (token, certificate, grant or None)) > 1:
        raise UsageError("only one of --token, --certificate and --grant can be revoked at a time")
    at, whose = _root(root), _tenant(tenant, server)
    if token is not None:
        user.revoke_token(at, whose, name, token)
    elif certificate is not None:
        user.revoke_certificate(at, whose, name, certificate)
    elif grant:
        user.revoke_grants(at, whose, name, [parse_grant(text) for text in grant])
    else:
        user.revoke_user(at, whose, name)


def token_command(
    name: Name,
    expires: Expires = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="What it is for.", show_default=False)] = "",
    root: Root = None,
    tenant: Tenant = DEFAULT_TENANT,
    server: Server = False,
) -> None:
    """Make a token, and print it this once."""
    from hbuf.ops.user import new_token

    expires_us = _moment(expires) if expires is not None else None
    token = new_token(_root(root), _tenant(tenant, server), name, expires_us=expires_us, note=note)
    sys.stdout.write(token + "\n")


def certificate_command(
    name: Name,
    expires: Expires = None,
    directory: Annotated[
        str, typer.Option("--directory", metavar="DIR", help="Where NAME.pem and NAME.key go.", show_default=False)
    ] = ".",
    root: Root = None,
    tenant: Tenant = DEFAULT_TENANT,
    server: Server = False,
) -> None:
    """Make a certificate and its key, as NAME.pem and NAME.key."""
    from hbuf.ops.authority import CLIENT_DAYS
    from hbuf.ops.user import new_certificate

    now_us = SystemClock().now_us()
    days = (_moment(expires) - now_us) / (_DAY_SECONDS * 1_000_000) if expires is not None else CLIENT_DAYS
    new_certificate(_root(root), _tenant(tenant, server), name, Path(directory), days=days)


def _root(given: str | None) -> Path:
    if given == "":
        raise UsageError("--root: a directory's name cannot be empty")
    return Path(given) if given is not None else state_root(os.environ)


def _tenant(tenant: str, server: bool) -> str | None:
    if server and tenant != DEFAULT_TENANT:
        raise UsageError("a user of the server is one of all tenants: --server goes without --tenant")
    return None if server else tenant


def _moment(text: str) -> int:
    """A time to come: `90d` from now, or a time as it is written elsewhere."""
    now_us = SystemClock().now_us()
    if text[-1:] in "smhdw" and text[:1].isdecimal():
        found = now_us + int(parse_duration_seconds(text) * 1_000_000)
    else:
        found = parse_moment(text, now_us)
    if not now_us < found <= LAST_TIME_US:
        raise UsageError(f"--expires: '{text}' is not a time to come", hint="write it like 90d or 2027-01-31")
    return found


def _row(user: User) -> tuple[str, ...]:
    from hbuf.ops.user import LEAST_FINGERPRINT

    shown = (
        [encode_grant(grant) for grant in user.grants],
        [token.id for token in user.tokens],
        [certificate.sha256[:LEAST_FINGERPRINT] for certificate in user.certificates],
    )
    return (printable(user.name), *(",".join(each) or "-" for each in shown))


def _values(user: User, tenant: str | None) -> dict[str, Any]:
    """All that is known of a user, but for the hashes of secrets."""
    return {
        "tenant": tenant,
        "name": user.name,
        "created": user.created,
        "grants": [grant._asdict() for grant in user.grants],
        "tokens": [
            {"id": token.id, "created": token.created, "expires": token.expires, "note": token.note}
            for token in user.tokens
        ],
        "certificates": [
            {"serial": each.serial, "sha256": each.sha256, "created": each.created, "expires": each.expires}
            for each in user.certificates
        ],
    }


app = program_of(
    [
        program("add", add_command, "Example: hbuf-user add alice reader:orders 'writer:shop-*'"),
        program("grant", grant_command, "Example: hbuf-user grant alice operator:orders"),
        program("list", list_command, "Example: hbuf-user list --json"),
        program("revoke", revoke_command, "Example: hbuf-user revoke alice --token default.k3v9q0ab"),
        program("token", token_command, "Example: hbuf-user token alice --expires 90d > alice.token"),
        program("certificate", certificate_command, "Example: hbuf-user certificate alice --expires 30d"),
    ],
    user_command,
    "Example: hbuf-user add alice reader:orders 'writer:shop-*'",
)


def main() -> None:
    run(app, NAME)
