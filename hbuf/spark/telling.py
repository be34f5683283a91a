"""Errors as Spark's users see them: a line in the middle of Spark's own, with the way out in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hbuf.errors import HbufError


def told(error: HbufError) -> HbufError:
    return type(error)(f"hbuf: {error.message}" + (f" ({error.hint})" if error.hint else ""))


@contextlib.contextmanager
def telling() -> Iterator[None]:
    try:
        yield
    except HbufError as error:
        raise told(error) from None
