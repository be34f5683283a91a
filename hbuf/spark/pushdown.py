"""What Spark's filters say of numbers, times, keys and buffers: bounds to read within.

They only narrow what is read: Spark still applies every filter itself, so that a bound need not be exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    """None: no bound. All are inclusive."""

    first_seq: int | None = None
    last_seq: int | None = None
    first_us: int | None = None
    last_us: int | None = None
    keys: frozenset[str] | None = None
    buffers: frozenset[str] | None = None
    tenants: frozenset[str] | None = None


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """All filters hold together."""
    bounds = Bounds()
    for each in filters:
        bounds = _narrowed(bounds, each)
    return bounds


def _narrowed(bounds: Bounds, each: Filter) -> Bounds:
    match each:
        case EqualTo((name,), value) | EqualNullSafe((name,), value) if value is not None:
            return _among(bounds, name, [value])
        case In((name,), values):
            return _among(bounds, name, [value for value in values if value is not None])
        case GreaterThan((name,), value) | GreaterThanOrEqual((name,), value):
            return _from(bounds, name, value)
        case LessThan((name,), value) | LessThanOrEqual((name,), value):
            return _to(bounds, name, value)
    return bounds


def _among(bounds: Bounds, name: str, values: list[Any]) -> Bounds:
    if name in ("key", "buffer", "tenant"):
        field = f"{name}s"
        known: frozenset[str] | None = getattr(bounds, field)
        narrowed: dict[str, Any] = {field: frozenset(values) if known is None else known.intersection(values)}
        return replace(bounds, **narrowed)
    if not values:
        return bounds
    return _to(_from(bounds, name, min(values)), name, max(values))


def _from(bounds: Bounds, name: str, value: Any) -> Bounds:
    if name == "seq":
        return replace(bounds, first_seq=max(value, bounds.first_seq or value))
    if name == "time":
        return replace(bounds, first_us=max(_us(value), bounds.first_us or _us(value)))
    return bounds


def _to(bounds: Bounds, name: str, value: Any) -> Bounds:
    if name == "seq":
        return replace(bounds, last_seq=value if bounds.last_seq is None else min(value, bounds.last_seq))
    if name == "time":
        last = _us(value)
        return replace(bounds, last_us=last if bounds.last_us is None else min(last, bounds.last_us))
    return bounds


def _us(value: datetime) -> int:
    """Spark gives an instant; without a zone it is in that of the process that asks."""
    difference = value.astimezone(UTC) - _EPOCH
    return (difference.days * 86_400 + difference.seconds) * 1_000_000 + difference.microseconds
