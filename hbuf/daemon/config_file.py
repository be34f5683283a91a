"""The daemon's configuration as TOML. Every problem of a file is told at once, each by the full name of its key.

It must not know what a setting does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hbuf.daemon.addresses import parse_address
from hbuf.daemon.config import DEFAULT_LISTEN, Config, Limits, Log, Quota, Tls, is_credential
from hbuf.errors import UsageError
from hbuf.format.grammar import MAX_BODY_BYTES
from hbuf.format.names import check_tenant_name
from hbuf.format.settings import parse_size_bytes
from hbuf.format.times import encode_duration, parse_duration_seconds

_Parser = Callable[[str, Any], Any]
_LEAST_HEADER_BYTES = 1024
_MOST_HEADER_BYTES = 1024**2
_MOST_SECONDS = 86400.0
_MOST = 2**62


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says instead of the file."""

    root: Path | None = None
    listen: tuple[str, ...] = ()
    unix: Path | None = None


class WrongConfig(UsageError):
    """All that is wrong with a configuration."""

    def __init__(self, problems: list[str]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(problems[0] + more, hint="hbufd --check-config tells all" if more else None)
        self.problems = problems


def load_config(file: Path | None, flags: Flags, default_root: Callable[[], Path]) -> Config:
    """The effective configuration. Raises WrongConfig. The default root is asked for only where nobody says one."""
    values = _read(file) if file else {}
    folder = file.absolute().parent if file else Path.cwd()
    reading = _Reading(folder)
    tables = {name: reading.table(values.pop(name, {}), name) for name in ("tls", "log", "limits", "tenants")}
    top = reading.values("", values, {"root": _path, "listen": _addresses, "unix": _path, "keys": _path})
    if flags.listen:
        top["listen"] = reading.value("--listen", list(flags.listen), _addresses) or ()
    limits = Limits(**reading.values("limits.", tables["limits"], _LIMITS))
    tls = Tls(**reading.values("tls.", tables["tls"], _TLS))
    if (tls.certificate is None) != (tls.key is None):
        reading.problems.append("tls: certificate and key are said together or not at all")
    log = Log(**reading.values("log.", tables["log"], _LOG))
    tenants = _tenants(reading, tables["tenants"], Quota(limits.tenant_bytes, limits.tenant_buffers))
    if reading.problems:
        raise WrongConfig(reading.problems)
    root = flags.root.absolute() if flags.root else top.get("root") or default_root()
    unix = flags.unix.absolute() if flags.unix else top.get("unix")
    return Config(
        root=root,
        keys=top.get("keys") or root / "keys",
        listen=top.get("listen", DEFAULT_LISTEN),
        unix=unix,
        tls=tls,
        log=log,
        limits=limits,
        tenants=tenants,
    )


def encode_config(config: Config) -> str:
    """The whole of it as TOML that load_config reads back."""
    lines = [f"root = {_quoted(config.root)}", f"listen = {_quoted(list(config.listen))}"]
    if config.unix:
        lines.append(f"unix = {_quoted(config.unix)}")
    lines += [f"keys = {_quoted(config.keys)}", "", "[tls]"]
    tls = ((name, getattr(config.tls, name)) for name in ("certificate", "key", "client_ca"))
    lines += [f"{name} = {_quoted(value)}" for name, value in tls if value is not None]
    lines += [f"names = {_quoted(list(config.tls.names))}", "", "[log]"]
    lines += [f"format = {_quoted(config.log.format)}", f"level = {_quoted(config.log.level)}"]
    lines += [f"access = {_quoted(config.log.access)}", "", "[limits]"]
    lines += [f"{each.name} = {encode_limit(each.name, getattr(config.limits, each.name))}" for each in fields(Limits)]
    for tenant, quota in sorted(config.tenants.items()):
        lines += ["", f"[tenants.{_quoted(tenant)}]"]
        lines += [f"{each.name} = {encode_limit(each.name, getattr(quota, each.name))}" for each in fields(Quota)]
    return "\n".join(lines) + "\n"


def encode_size(size: int) -> str:
    """A number of bytes as people write it: `64MiB`."""
    for unit in ("GiB", "MiB", "KiB"):
        scale = parse_size_bytes("", f"1{unit}")
        if size and size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)


def encode_limit(name: str, value: float | None) -> str:
    """A limit by its name, as a value of TOML."""
    if value is None:
        return _quoted("none")
    if name.endswith("_seconds"):
        return _quoted(encode_duration(value))
    return _quoted(encode_size(int(value))) if name.endswith("_bytes") else str(value)


def _quoted(value: Any) -> str:
    """Strings, lists and booleans of JSON are those of TOML, but for one character."""
    text = str(value) if isinstance(value, Path) else value
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_bytes().decode())
    except OSError as error:
        raise WrongConfig([f"{file}: {error.strerror}"]) from None
    except (ValueError, RecursionError) as error:  # not UTF-8, or not TOML
        raise WrongConfig([f"{file}: {' '.join(str(error).split())}"]) from None


class _Reading:
    """Collects what is wrong, and goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # of the file, which its paths are relative to
        self.problems: list[str] = []

    def table(self, value: Any, name: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self.problems.append(f"{name}: it is a table, [{name}]")
        return {}

    def values(self, prefix: str, values: Mapping[str, Any], parsers: Mapping[str, _Parser]) -> dict[str, Any]:
        found = {}
        for name, given in values.items():
            if name not in parsers:
                self.problems.append(f"{prefix}{name}: there is no such setting")
                continue
            before = len(self.problems)
            value = self.value(prefix + name, given, parsers[name])
            if len(self.problems) == before:
                found[name] = value
        return found

    def value(self, name: str, given: Any, parser: _Parser) -> Any:
        try:
            value = parser(name, given)
        except UsageError as error:
            said = error.message if error.message.startswith(f"{name}:") else f"{name}: {error.message}"
            self.problems.append(said + (f"; {error.hint}" if error.hint else ""))
            return None
        if isinstance(value, Path):
            return self.folder / value
        if isinstance(value, _File):
            return str(value) if is_credential(value) else str(self.folder / value)
        return value


class _File(str):
    """A path that may be a credential's name."""


def _tenants(reading: _Reading, tables: Mapping[str, Any], default: Quota) -> dict[str, Quota]:
    quotas = {}
    for name, table in tables.items():
        full = f"tenants.{name}"
        reading.value(full, name, lambda _, tenant: check_tenant_name(tenant))
        found = reading.values(f"{full}.", reading.table(table, full), _QUOTA)
        quotas[name] = replace(default, **found)
    return quotas


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise UsageError(f"{name}: it is text, between quotes")
    return value


def _path(name: str, value: Any) -> Path:
    return Path(_text(name, value))


def _file(name: str, value: Any) -> _File:
    return _File(_text(name, value))


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UsageError(f"{name}: it is a list of text, between brackets")
    return tuple(_text(name, each) for each in value)


def _addresses(name: str, value: Any) -> tuple[str, ...]:
    return tuple(str(parse_address(text)) for text in _texts(name, value))


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name}: it is true or false")
    return value


def _one_of(*choices: str) -> _Parser:
    def parse(name: str, value: Any) -> str:
        if value not in choices:
            raise UsageError(f"{name}: it is {' or '.join(choices)}")
        return str(value)

    return parse


def _size(name: str, value: Any) -> int:
    return parse_size_bytes(name, str(_number_or_text(name, value)))


def _count(name: str, value: Any) -> int:
    given = _number_or_text(name, value)
    if isinstance(given, float) or not str(given).isascii() or not str(given).isdigit():
        raise UsageError(f"{name}: '{given}' is not a number")
    return int(given)


def _seconds(name: str, value: Any) -> float:
    return parse_duration_seconds(str(_number_or_text(name, value)))


def _number_or_text(name: str, value: Any) -> int | float | str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UsageError(f"{name}: it is a number, or text between quotes")
    return value


def _between(parser: _Parser, low: float, high: float) -> _Parser:
    def parse(name: str, value: Any) -> Any:
        parsed = parser(name, value)
        if not low <= parsed <= high:
            raise UsageError(f"{name}: {value} is not between {low} and {high}")
        return parsed

    return parse


def _or_none(parser: _Parser) -> _Parser:
    return lambda name, value: None if value == "none" else parser(name, value)


def _limit_parser(name: str) -> _Parser:
    if name.endswith("_seconds"):
        return _between(_seconds, 0.001, _MOST_SECONDS)
    parser = _between(_size if name.endswith("_bytes") else _count, 1, _MOST)
    return _or_none(parser) if name.startswith("tenant_") else parser


_LIMITS: dict[str, _Parser] = {each.name: _limit_parser(each.name) for each in fields(Limits)} | {
    "message_bytes": _between(_size, 1, MAX_BODY_BYTES),
    "header_bytes": _between(_size, _LEAST_HEADER_BYTES, _MOST_HEADER_BYTES),
}
_QUOTA: dict[str, _Parser] = {
    "max_bytes": _or_none(_between(_size, 0, _MOST)),
    "max_buffers": _or_none(_between(_count, 0, _MOST)),
}
_TLS: dict[str, _Parser] = {"certificate": _file, "key": _file, "client_ca": _file, "names": _texts}
_LOG: dict[str, _Parser] = {
    "format": _one_of("logfmt", "json"),
    "level": _one_of("debug", "info", "warning", "error"),
    "access": _flag,
}
