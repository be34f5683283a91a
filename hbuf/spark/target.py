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
from hbuf.spark.delivery import Delivery, chunk_limits
from hbuf.spark.staged_file import PieceLimits
from hbuf.spark.staging import Staging, make_staging, sender_of
from hbuf.spark.telling import told
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer

_KNOWN = {"path", "create", "sign", "staging", "timeout", "producer", "batch"}
_OF_SPARK = {"checkpointlocation", "queryname"}


@dataclass(frozen=True, slots=True)
class Target:
    """A buffer that can be written. It is sent to the tasks, which use its staging directory and nothing else."""

    path: str  # as the user named it
    uuid: str
    staging: Path
    limits: PieceLimits
    sign: str | None
    timeout_seconds: float

    def staging_of(self, sender: str) -> Staging:
        return Staging(self.staging, sender_of(self.uuid, sender))

    @contextlib.contextmanager
    def delivery(self, sender: str, producer: bytes | None) -> Iterator[Delivery]:
        signer = Signer(Path(self.sign)) if self.sign is not None else None
        with Writer(BufferDirectory(self.path), timeout_seconds=self.timeout_seconds, signer=signer) as writer:
            yield Delivery(writer, self.staging_of(sender), producer, self.timeout_seconds)

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
    path = local_path(options.get("path", ""))
    try:
        if not path:
            raise UsageError("no buffer is named", hint="save(PATH) or start(PATH) names its directory")
        unknown = sorted(name for name in options if name.lower() not in _KNOWN | _OF_SPARK)
        if unknown:
            raise UsageError(f"there is no option '{unknown[0]}'", hint=f"there are {', '.join(sorted(_KNOWN))}")
        if overwrite:
            raise UsageError("is only appended to", hint="use mode('append'), or outputMode('append')")
        check_columns(to_arrow_schema(schema, timezone="UTC"))
        return _target(path, options)
    except HbufError as error:
        raise _told(error, path) from None


def local_path(path: str) -> str:
    """A path of this machine: `file:/orders` and `file:///orders` are `/orders`."""
    for prefix in ("file://", "file:"):
        if path.startswith(prefix + "/"):
            return path.removeprefix(prefix)
    return path


def _target(path: str, options: Mapping[str, str]) -> Target:
    directory = BufferDirectory(path)
    sign = options.get("sign")
    timeout_seconds = parse_duration_seconds(options.get("timeout", "30s"))
    if _flag(options, "create", default=True) and not directory.exists():
        create(path, may_exist=True, signer=Signer(Path(sign)) if sign is not None else None)
    settings = read_settings(path)
    staging = _staging(directory, settings, options.get("staging"))
    with fsops.os_errors(path):
        make_staging(staging)
    return Target(path, settings.uuid, staging, chunk_limits(settings), sign, timeout_seconds)


def _staging(directory: BufferDirectory, settings: Settings, named: str | None) -> Path:
    if named is not None:
        return Path(os.path.abspath(local_path(named)))
    if settings.recipients:
        raise UsageError(
            "is encrypted, and rows are staged as they are",
            hint="the option staging names a directory outside the buffer where they may lie for a moment",
        )
    return directory.staging


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
