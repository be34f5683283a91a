"""What power cuts leave: of all that may happen to what was not synced, what is most likely to be a surprise."""

from __future__ import annotations

import random

from .forgetful import Loss


def none(i: int, count: int) -> bool:
    return False


def every(i: int, count: int) -> bool:
    return True


def last(i: int, count: int) -> bool:
    return i == count - 1


def all_but_first(i: int, count: int) -> bool:
    return i > 0


def all_but_second(i: int, count: int) -> bool:
    return i != 1


def second(i: int, count: int) -> bool:
    return i % 2 == 1


def by_chance(seed: int) -> Loss:
    chance = random.Random(seed)
    return Loss("by chance", lambda i, count: chance.random() < 0.5, lambda i, count: chance.random() < 0.5)


LOSSES = [
    Loss("all that was not synced", none, none),
    Loss("data, not names", every, none),
    Loss("data, not names and lengths", every, none, "without pages"),
    Loss("lengths", every, every, "not"),
    Loss("names, not data", none, every),
    Loss("earlier names", last, every),
    Loss("earlier pages", every, last),
    Loss("the first page", every, all_but_first),
    Loss("every second page", none, second),
    Loss("nothing", every, every),
]
