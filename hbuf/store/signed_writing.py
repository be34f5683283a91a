"""How a writer signs: with which key, and only behind an end that is signed itself.

So nobody can slip records in for an honest writer to sign over, and a writer without the key is refused.
"""

from __future__ import annotations

from hbuf.errors import Damaged, HbufError, NotAllowed, UsageError
from hbuf.format.check import ChainState, Keys, is_put_signed, keys_of, keys_reason
from hbuf.format.key_line import split_key_line
from hbuf.format.note import head_text, is_signed
from hbuf.format.record import Sign
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import opened_index
from hbuf.store.segment import record_at
from hbuf.store.segment_file import PlainSegment, opened_segment
from hbuf.store.signing import RecoveryKey, Signer
from hbuf.store.tail import Opening, Tail, read_opening

_TELLS_MORE = "hbuf-verify --signer tells more"


class Signing:
    """The keys of one writer. Without any it lets unsigned buffers pass, and no others."""

    def __init__(self, directory: BufferDirectory, signer: Signer | None, recovery: RecoveryKey | None) -> None:
        self._directory = directory
        self._signer = signer
        self._recovery = recovery

    def admit(self, opening: Opening) -> None:
        """Refuses a key that does not sign behind `opening`, and one that is missing. It changes nothing."""
        where = self._directory.shown
        reason = _opening_reason(self._directory, opening)
        if reason:
            raise Damaged(f"{self._directory.segment_shown(opening.first)}: byte 0: {reason}", hint=_TELLS_MORE)
        if opening.keys.sign is None and self._signer is not None:
            raise UsageError(f"{where}: is not signed, and that was fixed when it was made")
        if opening.keys.sign is not None and self._signer is None:
            raise NotAllowed(f"{where}: is signed, and takes nothing without its key", hint="--sign KEY gives it")
        if self._signer is not None and not self.starts_line(opening):
            self._signer.check(opening, where)

    def take_key(self, opening: Opening) -> None:
        """The same, and binds the key to the buffer."""
        self.admit(opening)
        if self._signer is not None and not self.starts_line(opening):
            self._signer.serve(opening, self._directory.shown)

    def starts_line(self, opening: Opening) -> bool:
        """Whether the next PUT announces a new key, signed with the recovery key. A used key goes the usual way."""
        recovery, signer = self._recovery, self._signer
        if recovery is None or signer is None or signer.is_used or opening.keys.sign == signer.public:
            return False
        if opening.keys.recovery != recovery.public:
            raise NotAllowed(f"{self._directory.shown}: {recovery.path} is not its recovery key")
        return True

    def check_end(self, tail: Tail) -> None:
        """Takes the key, and raises Damaged where the last record is not signed as it must be."""
        self.take_key(tail.opening)
        reason = unsigned_end(self._directory, tail) if tail.opening.keys.sign is not None else None
        if reason:
            where = self._directory.segment_shown(tail.first)
            raise Damaged(f"{where}: {reason}", hint=_TELLS_MORE)

    def head_signer(self, uuid: str) -> Sign | None:
        return self._signer.head_signer(uuid) if self._signer is not None else None

    def put_keys(self, opening: Opening, *, rotate: bool) -> tuple[bytes | None, Sign | None]:
        """The key that the next PUT announces, and what signs it. With `rotate` it is a new key."""
        signer, recovery, uuid = self._signer, self._recovery, opening.settings.uuid
        if signer is None:
            return None, None
        if recovery is not None and self.starts_line(opening):
            return signer.public, recovery.put_signer(uuid)
        return signer.prepare_next() if rotate else signer.public, signer.put_signer(uuid)


def unsigned_end(directory: BufferDirectory, tail: Tail) -> str | None:
    """Why the last record cannot be signed over, or None: by the key that was announced, it is signed itself."""
    opening = tail.opening
    if not tail.count:
        return None
    with opened_index(directory.index(tail.first), tail.first) as listed:
        last = listed.last if listed else None
    seq = tail.next_seq - 1
    record = record_at(PlainSegment(tail.segment_fd), last, seq) if last else None
    if record is None or opening.keys.sign is None:
        return f"message {seq} cannot be read"
    text = head_text(opening.settings.uuid, seq, record.id)
    if record.sig is None or not is_signed(opening.keys.sign, text, record.sig):
        return f"byte {last.offset if last else 0}: message {seq} is not signed by the key that was announced"
    return None


def _opening_reason(directory: BufferDirectory, opening: Opening) -> str | None:
    """Why the PUTs of a segment cannot be right: each is signed by a key before it, the first of all by its own."""
    if not opening.is_signed_inside:
        return "a PUT is not signed by the key before it"
    earlier = [first for first in directory.segment_firsts() if first < opening.first]
    own = opening.first_keys.sign
    if not earlier and opening.first > 1:
        return _behind_retired_reason(directory, opening)
    if not earlier:
        is_own = own is None or is_put_signed(opening.first_put, own)
        return None if is_own else "the first PUT is not signed by its own key"
    for first in reversed(earlier):
        before = _keys_of_segment(directory, first)
        if before is None:
            continue
        if first == earlier[-1]:
            return keys_reason(opening.first_put, before, ChainState())
        # What lies between is damaged. Whether a buffer is signed is fixed for good.
        return None if (before.sign is None) == (own is None) else "whether a buffer is signed has changed"
    return None


def _behind_retired_reason(directory: BufferDirectory, opening: Opening) -> str | None:
    before = _keys_of_retired(directory, opening.first)
    if before is not None:
        return keys_reason(opening.first_put, before, ChainState())
    if opening.first_keys.sign is None:
        return None
    return f"nobody announced its key: {directory.keys.name} is missing or damaged"


def _keys_of_segment(directory: BufferDirectory, first: int) -> Keys | None:
    """None where the opening of a segment cannot be read."""
    try:
        with opened_segment(directory, first) as segment:
            return read_opening(segment, directory.segment_shown(first)).keys
    except HbufError:
        return None


def _keys_of_retired(directory: BufferDirectory, first: int) -> Keys | None:
    """Those of the last PUT of a retired segment before `first`."""
    try:
        puts, _ = split_key_line(directory.keys.read_bytes())
    except FileNotFoundError:
        return None
    earlier = [put for seq, put in puts if seq < first]
    return keys_of(earlier[-1]) if earlier else None
