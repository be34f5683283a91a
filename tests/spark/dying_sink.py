"""The sink, in a process that kills itself at a chosen step of a commit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from hbuf.ops.append import Sending
from hbuf.spark.delivery import Delivery
from hbuf.spark.sink import HbufStreamWriter
from hbuf.spark.source import HbufSource
from hbuf.spark.staging import Staging

# What is called at each step, whether death comes before or after it, and at which of its calls.
STEPS: dict[str, tuple[type, str, bool, int]] = {
    "after staging": (Delivery, "deliver", True, 1),
    "after the manifest": (Staging, "save_manifest", False, 1),
    "after the first chunk": (Sending, "send_columns", False, 1),
    "between chunks": (Sending, "send_columns", True, 3),
    "after the last append": (Staging, "remove_until", True, 1),
    "in the clean-up": (Staging, "remove", False, 1),
    "before Spark notes the batch": (Delivery, "deliver", False, 1),
}


class DyingSource(HbufSource):
    """The option `dying` is the step, and `armed` a file: while it is there, and once for each."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> HbufStreamWriter:  # noqa: N802
        if "armed" in self.options:
            _arm(self.options.pop("dying"), Path(self.options.pop("armed")))  # the sink does not know them
        return super().streamWriter(schema, overwrite)


def _arm(step: str, armed: Path) -> None:
    owner, name, before, at = STEPS[step]
    call: Callable[..., Any] = getattr(owner, name)
    count = 0

    def called(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if before and count == at:
            _die(armed)
        result = call(*arguments, **named)
        if not before and count == at:
            _die(armed)
        return result

    setattr(owner, name, called)


def _die(armed: Path) -> None:
    try:
        armed.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
