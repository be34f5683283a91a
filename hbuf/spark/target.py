"""What the options of a write say: which buffer, how it is written, where rows are staged. Found out on the driver."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from hbuf.arrow.outgoing import check_columns
from hbuf.errors import HbufError, UsageError
from hbuf.format.settings import Settings
from hbuf.format.times import parse_duration_seconds
from hbuf.ops.create import create
from hbuf.ops.set import read_settings
from hbuf.remote.access import Options
from hbuf.remote.buffer import RemoteBuffer
from hbuf.remote.client_settings import access_for
from hbuf.remote.location import is_url, parse_location
from hbuf.spark.delivery import Delivery, Destination, chunk_limits
from hbuf.spark.destinations import IntoDirectory, IntoServer, open_or_make
from hbuf.spark.inputs import local_path
from hbuf.spark.staged_file import PieceLimits
from hbuf.spark.staging import Staging, make_staging, sender_of
from hbuf.spark.telling import told
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer

_OF_SERVER = ("cacert", "cert", "token_file")
_KNOWN = {"path", "create", "sign", "staging", "timeout", "producer", "batch", *_OF_SERVER}
_OF_SPARK = {"checkpointlocation", "queryname"}


@dataclass(frozen=True, slots=True)
class Target:
    """A buffer that can be written. It is sent to the tasks, which use its staging directory and nothing else.

    So it holds no secret: what a server is asked with is read from its files on the driver, for each batch anew.
    """

    path: str  # as the user named it
    uuid: str
    staging: Path
    limits: PieceLimits
    timeout_seconds: float
    sign: str | None = None
    access: Options | None = None  # where the path is a URL

    def staging_of(self, sender: str) -> Staging:
        return Staging(self.staging, sender_of(self.uuid, sender))

    @contextlib.contextmanager
    def delivery(self, sender: str, producer: bytes | None) -> Iterator[Delivery]:
        with self._destination() as destination:
            yield Delivery(destination, self.staging_of(sender), producer, self.timeout_seconds)

    def _destination(self) -> Destination:
        if self.access is not None:
            return IntoServer(_remote_buffer(self.path, self.access), self.timeout_seconds)
        signer = Signer(Path(self.sign)) if self.sign is not None else None
        return IntoDirectory(Writer(BufferDirectory(self.path), timeout_seconds=self.timeout_seconds, signer=signer))

    @contextlib.contextmanager
    def telling(self, where: str = "") -> Iterator[None]:
        """Errors become the one line that users find in Spark's: it names the buffer, and the way out."""
        try:
            with fsops.os_errors(self.path):
                yield
        except HbufError as error:
            raise _told(error, self.path, where) from None


def target_of(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Target:
    """Refuses what cannot be written before anything runs; makes the buffer where it is missing and may be."""
    path = options.get("path", "")
    of_server = is_url(path) and not path.startswith("file:")
    try:
        path = path if of_server else local_path(path)
        if not path:
            raise UsageError("no buffer is named", hint="save(PATH) or start(PATH) names its directory, or its URL")
        unknown = sorted(name for name in options if name.lower() not in _KNOWN | _OF_SPARK)
        if unknown:
            raise UsageError(f"there is no option '{unknown[0]}'", hint=f"there are {', '.join(sorted(_KNOWN))}")
        if overwrite:
            raise UsageError("is only appended to", hint="use mode('append'), or outputMode('append')")
        check_columns(to_arrow_schema(schema, timezone="UTC"))
        return _target_on_server(path, options) if of_server else target_in_directory(path, options)
    except HbufError as error:
        raise _told(error, "" if of_server and "@" in path else path) from None  # it may have a password in it


def target_in_directory(path: str, options: Mapping[str, str]) -> Target:
    for name in _OF_SERVER:
        if name in options:
            raise UsageError(f"option {name} is for a URL, and this is a directory")
    directory = BufferDirectory(path)
    sign = options.get("sign")
    timeout_seconds = _timeout_seconds(options)
    if _flag(options, "create", default=True) and not directory.exists():
        create(path, may_exist=True, signer=Signer(Path(sign)) if sign is not None else None)
    settings = read_settings(path)
    staging = _staging(directory, settings, options.get("staging"))
    with fsops.os_errors(path):
        make_staging(staging)
    return Target(path, settings.uuid, staging, chunk_limits(settings), timeout_seconds, sign)


def _target_on_server(url: str, options: Mapping[str, str]) -> Target:
    access = Options(*(options.get(name) for name in _OF_SERVER))
    buffer = _remote_buffer(url, access)
    if "sign" in options:
        raise UsageError("option sign is for a directory", hint="the daemon has the key of a signed buffer, and signs")
    named = options.get("staging")
    if named is None:
        raise UsageError(
            "option staging is missing: rows cannot be staged in a buffer that is on a server",
            hint="it names a directory that driver and workers share",
        )
    staging = _absolute(named)
    timeout_seconds = _timeout_seconds(options)
    settings = open_or_make(buffer, create=_flag(options, "create", default=True))
    with fsops.os_errors(staging):
        make_staging(staging)
    return Target(url, settings.uuid, staging, chunk_limits(settings), timeout_seconds, access=access)


def _remote_buffer(url: str, access: Options) -> RemoteBuffer:
    location = parse_location(url)
    return RemoteBuffer(location, access_for(location, access, os.environ))


def _staging(directory: BufferDirectory, settings: Settings, named: str | None) -> Path:
    if named is not None:
        return _absolute(named)
    if settings.recipients:
        raise UsageError(
            "is encrypted, and rows are staged as they are",
            hint="the option staging names a directory outside the buffer where they may lie for a moment",
        )
    return directory.staging


def _absolute(named: str) -> Path:
    return Path(os.path.abspath(local_path(named)))


def _timeout_seconds(options: Mapping[str, str]) -> float:
    return parse_duration_seconds(options.get("timeout", "30s"))


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise UsageError(f"option {name}: '{text}' is not true or false")
    return text == "true"


def _told(error: HbufError, path: str, where: str = "") -> HbufError:
    line = error.message
    if path and not line.startswith((path, "'" + path)):
        line = f"{path}: {where}{line}"
    return told(type(error)(line, hint=error.hint))
