"""The daemon's configuration: files and flags, what is wrong with them, and TOML that can be read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hbuf.daemon.addresses import Address, parse_address
from hbuf.daemon.config import (
    DEFAULT_LISTEN,
    Config,
    Limits,
    Log,
    Quota,
    Tls,
    file_named,
    names_that_need_a_restart,
)
from hbuf.daemon.config_file import Flags, WrongConfig, encode_config, load_config
from hbuf.errors import UsageError


def load(tmp_path: Path, text: str = "", **flags: Any) -> Config:
    file = tmp_path / "hbufd.toml"
    file.write_text(text)
    return load_config(file, Flags(**flags), lambda: Path("/default"))


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(WrongConfig) as raised:
        load(tmp_path, text)
    return raised.value.problems


def test_nothing_said_is_all_defaults() -> None:
    config = load_config(None, Flags(), lambda: Path("/var/lib/hbuf"))
    assert config == Config.of_root(Path("/var/lib/hbuf"))
    assert config.listen == DEFAULT_LISTEN
    assert config.limits == Limits()


def test_file_says_everything(tmp_path: Path) -> None:
    text = """
        root = "/srv/hbuf"
        listen = ["[::1]:1", ":2"]
        unix = "/run/hbuf/hbufd.sock"
        keys = "/etc/hbuf/keys"
        [tls]
        certificate = "credential:tls.pem"
        key = "credential:tls.key"
        client_ca = "clients.pem"
        names = ["buffers.example"]
        [log]
        format = "json"
        level = "debug"
        access = false
        [limits]
        message_bytes = "1MiB"
        request_seconds = "1.5s"
        connections = 7
        tenant_bytes = "1GiB"
        tenant_buffers = 3
        [tenants.shop]
        max_bytes = "none"
        [tenants.bank]
        max_buffers = 9
    """
    config = load(tmp_path, text)
    assert config == Config(
        root=Path("/srv/hbuf"),
        keys=Path("/etc/hbuf/keys"),
        listen=("[::1]:1", "*:2"),
        unix=Path("/run/hbuf/hbufd.sock"),
        tls=Tls("credential:tls.pem", "credential:tls.key", f"{tmp_path}/clients.pem", ("buffers.example",)),
        log=Log("json", "debug", False),
        limits=Limits(
            message_bytes=1024**2, request_seconds=1.5, connections=7, tenant_bytes=1024**3, tenant_buffers=3
        ),
        tenants={"shop": Quota(None, 3), "bank": Quota(1024**3, 9)},
    )
    assert config.quota_of("shop") == Quota(None, 3)
    assert config.quota_of("another") == Quota(1024**3, 3)


def test_what_is_printed_reads_back_as_the_same(tmp_path: Path) -> None:
    config = Config(
        root=tmp_path / 'a "quoted"\\ path\twith \x7f \N{GRINNING FACE}',
        keys=tmp_path,
        listen=("[::1]:4280", "*:0"),
        unix=tmp_path / "s",
        tls=Tls("credential:a", "/b", "/c", ("d", "e")),
        log=Log("json", "error", False),
        limits=Limits(message_bytes=12345, request_seconds=0.25, tenant_bytes=1, tenant_buffers=10**6),
        tenants={"a.b": Quota(5, None), "c": Quota(1, 0)},
    )
    assert load(tmp_path, encode_config(config)) == config
    plain = Config.of_root(tmp_path)
    assert load(tmp_path, encode_config(plain)) == plain


def test_flags_win_over_the_file_and_listen_replaces_its_list(tmp_path: Path) -> None:
    text = 'root = "/a"\nunix = "/a/s"\nlisten = ["127.0.0.1:1", "127.0.0.1:2"]'
    config = load(tmp_path, text, root=Path("/b"), unix=Path("/b/s"), listen=("127.0.0.1:3",))
    assert (config.root, config.keys, config.unix, config.listen) == (
        Path("/b"),
        Path("/b/keys"),
        Path("/b/s"),
        ("127.0.0.1:3",),
    )


def test_paths_of_a_file_are_relative_to_it(tmp_path: Path) -> None:
    config = load(tmp_path, 'root = "data"\nunix = "data/s"')
    assert config.root == tmp_path / "data"
    assert config.unix == tmp_path / "data/s"


def test_every_problem_is_told_by_the_full_name_of_its_key(tmp_path: Path) -> None:
    text = """
        rot = "/a"
        root = 7
        listen = ["127.0.0.1"]
        [tls]
        key = "a"
        cert = "b"
        [log]
        format = "xml"
        access = "yes"
        [limits]
        conections = 1
        connections = "many"
        message_bytes = "1GiB"
        batch_bytes = "64 apples"
        request_seconds = 0
        idle_seconds = true
        tenant_bytes = -1
        [tenants.Shop]
        max_byte = 1
        [tenants.bank]
        max_buffers = 1.5
    """
    assert [line.partition(":")[0] for line in problems(tmp_path, text)] == [
        "rot",
        "root",
        "listen",
        "limits.conections",
        "limits.connections",
        "limits.message_bytes",
        "limits.batch_bytes",
        "limits.request_seconds",
        "limits.idle_seconds",
        "limits.tenant_bytes",
        "tls.cert",
        "tls",
        "log.format",
        "log.access",
        "tenants.Shop",
        "tenants.Shop.max_byte",
        "tenants.bank.max_buffers",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "root = ",
        "\xff",
        "root = 1\nroot = 2",
        'limits = "none"',
        "tls = 1",
        "tenants = []",
        "[limits]\nconnections = 0",
    ],
)
def test_file_that_is_wrong_is_one_problem_of_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "hbufd.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(WrongConfig) as raised:
        load_config(tmp_path / "hbufd.toml", Flags(), lambda: Path("/default"))
    [line] = raised.value.problems
    assert "\n" not in line


def test_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(WrongConfig, match="No such file"):
        load_config(tmp_path / "missing.toml", Flags(), lambda: Path("/default"))


@pytest.mark.parametrize(("name", "limit"), [("message_bytes", 512 * 1024**2), ("header_bytes", 1024**2)])
def test_limit_of_a_limit_can_be_said_and_one_more_cannot(tmp_path: Path, name: str, limit: int) -> None:
    assert getattr(load(tmp_path, f"[limits]\n{name} = {limit}").limits, name) == limit
    assert problems(tmp_path, f"[limits]\n{name} = {limit + 1}")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4280", Address("127.0.0.1", 4280)),
        ("[::1]:0", Address("::1", 0)),
        (":443", Address("", 443)),
        ("*:443", Address("", 443)),
        ("buffers.example:65535", Address("buffers.example", 65535)),
    ],
)
def test_addresses_are_read_and_written(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", "4280", "127.0.0.1", "a:65536", "::1:80", "[::1]", "[z]:1", "[:::]:1", "a b:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


def test_credential_is_found_where_systemd_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials/hbufd.service")
    assert file_named("credential:tls.key") == Path("/run/credentials/hbufd.service/tls.key")
    assert file_named("/etc/tls.key") == Path("/etc/tls.key")
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    with pytest.raises(UsageError):
        file_named("credential:tls.key")


def test_where_it_listens_and_stores_needs_a_restart_and_nothing_else(tmp_path: Path) -> None:
    before = Config.of_root(tmp_path)
    after = Config(
        tmp_path / "b",
        tmp_path / "k",
        ("127.0.0.1:1",),
        tmp_path / "s",
        Tls("a", "b"),
        Log("json"),
        Limits(connections=1),
        {"a": Quota(1)},
    )
    assert names_that_need_a_restart(before, after) == ["root", "keys", "listen", "unix"]
    assert names_that_need_a_restart(before, before) == []
