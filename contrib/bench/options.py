"""The options that areas share."""

from __future__ import annotations

import argparse
from pathlib import Path


def parse_options(area: str, about: str | None, *, messages: int, repeat: int) -> argparse.Namespace:
    """`messages` and `repeat` are the defaults."""
    parser = area_parser(area, about, messages=messages, repeat=repeat)
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the lines' bytes (1)")
    return checked_options(parser)


def area_parser(area: str, about: str | None, *, messages: int, repeat: int) -> argparse.ArgumentParser:
    """For areas with options of their own."""
    parser = argparse.ArgumentParser(
        prog=f"contrib/bench/run {area}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    of_messages, of_repeat = f"of 100 bytes each ({messages})", f"runs of each, after one to warm up ({repeat})"
    parser.add_argument("--messages", type=int, default=messages, metavar="N", help=of_messages)
    parser.add_argument("--repeat", type=int, default=repeat, metavar="N", help=of_repeat)
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where to work; what is made there is removed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def checked_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    options = parser.parse_args()
    if options.messages < 1 or options.repeat < 1:
        parser.error("--messages and --repeat are at least 1")
    return options
