"""`buffer.json` beside the chain: it says what the newest PUT says, or what an interrupted change left there."""

from __future__ import annotations

from hbuf.errors import Damaged, HbufError
from hbuf.format.settings import Settings, encode_settings, parse_settings
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.segment_file import opened_segment
from hbuf.store.tail import Opening, read_opening


def put_settings_right(directory: BufferDirectory, opening: Opening, firsts: list[int]) -> None:
    """`buffer.json` says what the chain says. Raises Damaged where it says what the chain never did."""
    if settings_file_fault(directory, opening, firsts):
        raise Damaged(
            f"{directory.shown}: buffer.json differs from what the chain says",
            hint="hbuf-verify tells more; remove it to have it written from the chain",
        )
    encoded = encode_settings(opening.settings)
    if not directory.settings.exists() or directory.settings.read_bytes() != encoded:
        fsops.replace_durably(directory.settings, encoded)


def settings_file_fault(directory: BufferDirectory, opening: Opening, firsts: list[int]) -> str | None:
    """Why `buffer.json` cannot be right, or None. `opening` is that of the newest segment, `firsts` all segments.

    The settings before the newest ones are no fault: a change that was interrupted leaves them, and the next
    writer mends that. They are never obeyed.
    """
    try:
        content = directory.settings.read_bytes()
    except FileNotFoundError:
        return None
    try:
        said = parse_settings(content)
    except HbufError as error:
        return error.message
    if said in (opening.settings, _settings_before(directory, opening, firsts)):
        return None
    return "it differs from what the chain says"


def _settings_before(directory: BufferDirectory, opening: Opening, firsts: list[int]) -> Settings | None:
    if opening.earlier is not None:
        return opening.earlier
    if len(firsts) < 2:
        return None
    try:
        with opened_segment(directory, firsts[-2]) as segment:
            return read_opening(segment, directory.segment_shown(firsts[-2])).settings
    except (HbufError, FileNotFoundError):
        return None  # damaged; or retired meanwhile, by somebody who had put buffer.json right
