"""How a user gets into a server: by options, by the environment, by client.toml, or as the daemon's own user.

The first of these that says something counts, for each of CA, certificate and token. Where nobody says anything of a
server on this machine, it is taken for the daemon that this user runs: its CA and its administrator's token are used
together, so that the token goes only to who has a certificate of that CA. The environment is given.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hbuf.errors import NotAllowed, UsageError
from hbuf.remote.access import Access, Options
from hbuf.remote.location import Location
from hbuf.store.fsops import os_errors
from hbuf.store.state_root import state_root

_NAMES = ("cacert", "cert", "token_file")
_ENVIRONMENT = {"cacert": "HBUF_CACERT", "token_file": "HBUF_TOKEN_FILE"}
_MOST_TOKEN_BYTES = 4096


def access_for(location: Location, options: Options, environment: Mapping[str, str]) -> Access:
    """What is said of a server, and read of it."""
    said = dict(zip(_NAMES, options, strict=True))
    for name, variable in _ENVIRONMENT.items():
        said[name] = said[name] or environment.get(variable)
    listed = _listed_for(location.server, environment)
    said = {name: value or listed.get(name) for name, value in said.items()}
    if not any(said.values()) and location.is_loopback:
        return _local_access(environment)
    cert, token_file = said["cert"], said["token_file"]
    return Access(
        said["cacert"],
        cert,
        _key_of(cert) if cert is not None else None,
        _read_token(Path(token_file)) if token_file is not None else None,
    )


def _local_access(environment: Mapping[str, str]) -> Access:
    """That of the daemon's own user, where one runs here."""
    root = state_root(environment)
    cacert, token = root / "ca.pem", root / "admin.token"
    if not os.access(cacert, os.R_OK) or not os.access(token, os.R_OK):
        return Access()
    return Access(str(cacert), token=_read_token(token))


def _listed_for(server: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What client.toml says of a server."""
    path = _settings_path(environment)
    if path is None:
        return {}
    import tomllib

    with os_errors(path):
        try:
            content = path.read_bytes().decode()
        except FileNotFoundError:
            if environment.get("HBUF_CONFIG"):
                raise
            return {}
        except UnicodeDecodeError:
            raise UsageError(f"{path}: is not UTF-8") from None
    try:
        values = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from None
    servers = values.pop("server", {})
    if not isinstance(servers, dict) or not all(isinstance(table, dict) for table in servers.values()):
        raise UsageError(f"{path}: 'server' has no tables", hint='write them like [server."host:4280"]')
    return _checked(path, values, "") | _checked(path, servers.get(server, {}), f'server."{server}".')


def _checked(path: Path, values: dict[str, Any], above: str) -> dict[str, str]:
    found = {}
    for name, value in values.items():
        if name not in _NAMES:
            raise UsageError(f"{path}: there is no setting '{above}{name}'", hint=f"settings are {', '.join(_NAMES)}")
        if not isinstance(value, str) or not value:
            raise UsageError(f"{path}: '{above}{name}' is not the name of a file")
        found[name] = str(path.parent / os.path.expanduser(value))
    return found


def _settings_path(environment: Mapping[str, str]) -> Path | None:
    chosen = environment.get("HBUF_CONFIG")
    if chosen:
        return Path(chosen)
    settings = environment.get("XDG_CONFIG_HOME", "")
    # A path that is not absolute counts as not set, as the XDG base directory specification has it.
    base = Path(settings) if os.path.isabs(settings) else Path(os.path.expanduser("~/.config"))
    return base / "hbuf" / "client.toml" if base.is_absolute() else None


def _key_of(cert: str) -> str | None:
    """The file of a certificate's key; None where it is in the same file."""
    with os_errors(cert):
        content = Path(cert).read_bytes()
    if b"PRIVATE KEY-----" in content:
        _refuse_open(Path(cert), os.stat(cert))
        return None
    beside = Path(cert).with_suffix(".key")
    if not beside.exists():
        raise UsageError(f"{cert}: has no key in it, and {beside.name} is not beside it")
    _refuse_open(beside, os.stat(beside))
    return str(beside)


def _read_token(path: Path) -> str:
    with os_errors(path), open(path, "rb") as file:
        _refuse_open(path, os.fstat(file.fileno()))
        content = file.read(_MOST_TOKEN_BYTES + 1)
    token = content.decode("ascii", "replace").strip()
    if not token or len(content) > _MOST_TOKEN_BYTES or not all("!" <= c <= "~" for c in token):
        raise UsageError(f"{path}: holds no token")
    return token


def _refuse_open(path: Path, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
        hint = f"chmod 600 {shlex.quote(str(path))}"
        raise NotAllowed(f"{path}: others can read or write it, and it is not used as a secret", hint=hint)
