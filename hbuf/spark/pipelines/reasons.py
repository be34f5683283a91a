"""Why a stage failed, in one line: what Spark says takes a page, and the cause stands somewhere in it."""

from __future__ import annotations

import re

from hbuf import errors
from hbuf.errors import HbufError

# A function or a query that fails is no fault of the file, the buffers or the machine.
STAGE_FAILED = 70

_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"^([A-Za-z_][\w.]*): (.*)$", re.MULTILINE)
_TERMINATED = re.compile(r"^\[STREAM_FAILED\].*? terminated with exception: ", re.DOTALL)
_FROM_JAVA = re.compile(r"^An error occurred while calling \S+\n: (?:[\w$]+\.)+[\w$]+(?:: |$)", re.MULTILINE)
_STATE = re.compile(r"\s*SQLSTATE: \w{5}")
_MOST_CHARACTERS = 500


def reason_of(error: BaseException) -> tuple[str, int]:
    """The line, and the exit code that goes with it."""
    if isinstance(error, HbufError):
        return error.message, error.exit_code
    text = str(error) if type(error).__module__.startswith(("pyspark.", "py4j.")) else _of_python(error)
    raised = _RAISED.findall(text[text.rindex(_TRACEBACK) :]) if _TRACEBACK in text else []
    if raised:
        # Java repeats the cause behind the traceback, indented or with its own classes: the first is Python's.
        name, message = raised[0]
        kind = getattr(errors, name.removeprefix("hbuf.errors."), None) if name.startswith("hbuf.errors.") else None
        if isinstance(kind, type) and issubclass(kind, HbufError):
            return _one_line(message.removeprefix("hbuf: ")), kind.exit_code
        return _one_line(f"{name.rpartition('.')[2]}: {message}"), STAGE_FAILED
    text = _TERMINATED.sub("", _FROM_JAVA.sub("", text))
    return _one_line(_STATE.sub("", text.strip().split("\n")[0])) or type(error).__name__, STAGE_FAILED


def _of_python(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _one_line(text: str) -> str:
    line = " ".join(_STATE.sub("", text).split())
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"
