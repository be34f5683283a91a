"""The attacks, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .buffers import KINDS, Attack


@dataclass(frozen=True)
class Tampering:
    name: str
    tamper: Attack
    kinds: tuple[str, ...]  # of buffer, that it applies to
    unnoticed: tuple[str, ...]  # of these, where a verifier cannot tell: docs/security.md does not promise it
    aged: bool  # tried on a buffer in which a message was erased, and segments were retired


TAMPERINGS: dict[str, Tampering] = {}


def attack(
    name: str, *, kinds: Sequence[str] = KINDS, unnoticed: Sequence[str] = (), aged: bool = False
) -> Callable[[Attack], Attack]:
    """Names a way to tamper. A verifier notices it, but for the kinds of buffer that are `unnoticed`."""

    def register(tamper: Attack) -> Attack:
        assert name not in TAMPERINGS
        TAMPERINGS[name] = Tampering(name, tamper, tuple(kinds), tuple(unnoticed), aged)
        return tamper

    return register
