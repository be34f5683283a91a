"""hbuf: durable, readable, provable messages in plain files.

`hbuf.open`, `hbuf.create`, `hbuf.draft`, `hbuf.Buffer` and `hbuf.Message` are the library; they are loaded when
they are first used, so that a command imports only what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hbuf.format.message import Draft, Message
    from hbuf.library import Buffer, Receipt, create, draft, open  # noqa: A004

__all__ = ["Buffer", "Draft", "Message", "Receipt", "create", "draft", "open"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from hbuf import library

        return getattr(library, name)
    raise AttributeError(f"module 'hbuf' has no attribute '{name}'")
