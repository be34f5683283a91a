"""Retiring what the rules of a buffer do not keep: its oldest segments."""

from __future__ import annotations

from collections.abc import Callable

from hbuf.format.deletes import check_reason
from hbuf.format.settings import has_rule
from hbuf.store.clock import Clock, SystemClock
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.reserve import keep_first_reserve
from hbuf.store.retention import Plan, plan_retirement
from hbuf.store.retire import retire_segments
from hbuf.store.signing import Signer
from hbuf.store.tail import Opening, newest_opening
from hbuf.store.writer import Writer


def retire(
    path: str,
    *,
    dry_run: bool = False,
    idle: bool = False,
    reason: str = "",
    timeout_seconds: float = 0,
    notice: Callable[[str], None] = lambda line: None,
    signer: Signer | None = None,
    clock: Clock | None = None,
) -> Plan:
    """Returns what went (or, with `dry_run`, what would go). Where that is nothing, nothing is written.

    `reason` is added to the rule that is named. With `idle` a buffer that got no message for longer than
    retention_age is taken for idle, where it could be a clock that jumped.
    """
    directory = BufferDirectory(path)
    directory.require()
    if reason:
        check_reason(reason)
    clock = clock or SystemClock()

    def plan_by(opening: Opening) -> Plan:
        return plan_retirement(directory, opening.settings, clock.now_us(), idle=idle)

    with os_errors(directory.shown):
        opening, plan = _looked_at(directory, plan_by)
        if plan.has_work and not dry_run:
            with Writer(
                directory, timeout_seconds=timeout_seconds, clock=clock, notice=notice, signer=signer
            ) as writer:
                plan = retire_segments(writer, plan_by, lambda plan: _reason(plan, reason))
        elif has_rule(opening.settings) and not dry_run:
            keep_first_reserve(directory, timeout_seconds)
    if plan.held_back:
        notice(
            f"nothing goes by {plan.held_back}: for longer than that no message came,"
            " and a clock may have jumped; --idle retires all the same"
        )
    return plan


def _looked_at(directory: BufferDirectory, plan_by: Callable[[Opening], Plan]) -> tuple[Opening, Plan]:
    """Without the lock another one may take a segment away meanwhile: then it is looked at again."""
    while True:
        before = directory.segment_firsts()
        try:
            opening = newest_opening(directory)
            return opening, plan_by(opening)
        except FileNotFoundError:
            if directory.segment_firsts() == before:
                raise


def _reason(plan: Plan, reason: str) -> bytes:
    return check_reason(f"{plan.reason}: {reason}" if reason else plan.reason)
