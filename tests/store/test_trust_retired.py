"""Messages that are erased, then retired with their segments, then restored from an old backup and erased again."""

import shutil
from pathlib import Path

import pytest

from hbuf.errors import HbufError
from hbuf.format.erased_list import parse_erased_list
from hbuf.ops.erase import Erasing, apply_list, list_erased
from hbuf.ops.set import set_settings
from hbuf.ops.verify import verify
from hbuf.store.signing import RecoveryKey, Signer

from .checking import content_of
from .erase_scenarios import holders
from .signed_scenarios import KEY, NEW_KEY, PUBLICS, RECOVERY_KEY, make_key
from .trusted_buffer import EVERYTHING, TRUSTS, Trust, TrustedBuffer


def listed(buffer: TrustedBuffer) -> list[int]:
    return [what.seq for what in parse_erased_list(list_erased(str(buffer.path)))[1]]


def retiring(where: Path, trust: Trust) -> TrustedBuffer:
    return TrustedBuffer(where, trust, retention_messages="4")


@pytest.mark.parametrize("trust", TRUSTS, ids=str)
def test_erased_message_is_retired_and_the_delete_that_is_left_names_what_is_not_there(
    trust: Trust, ram_path: Path
) -> None:
    buffer = retiring(ram_path, trust)
    buffer.erase(2, 5)  # 8 and 9 say so
    assert buffer.retire().end == 3
    report = verify(str(buffer.path), jobs=1, signer=buffer.first_key)
    assert (report.ok, report.faults, report.not_checked) == (True, [], {})
    assert report.verdicts["completeness"]["retired"] == 3
    assert report.verdicts["chain"]["erased"] == 1
    assert [(message.seq, message.erased) for message in buffer.read()] == [
        (4, False),
        (5, True),
        (6, False),
        (7, False),
    ]
    assert listed(buffer) == [2, 5]
    assert all(holders(buffer.path, text) == [] for each in buffer.secrets[:3] for text in each.texts)


def test_erasing_what_is_erased_and_retired_is_refused_and_changes_nothing(ram_path: Path) -> None:
    buffer = retiring(ram_path, EVERYTHING)
    buffer.erase(2)
    buffer.retire()
    before = content_of(ram_path)
    with pytest.raises(HbufError, match="message 2 is not there"):
        buffer.erase(2)
    assert content_of(ram_path) == before


@pytest.mark.parametrize("trust", TRUSTS, ids=str)
def test_delete_of_an_erased_message_is_retired_later_and_all_verifies(trust: Trust, ram_path: Path) -> None:
    buffer = retiring(ram_path, trust)
    buffer.erase(2, 5)
    buffer.retire()
    for _ in range(3):
        buffer.append(*[b"more"] * 6)
        if trust.compressed:
            buffer.compress()
        buffer.retire()
        buffer.check_verifies()
    assert buffer.directory.segment_firsts()[0] > 9
    assert listed(buffer) == []
    assert [message.body for message in buffer.read()][-6:] == [b"more"] * 6


def test_erased_messages_are_counted_right_while_segments_go_one_by_one(ram_path: Path) -> None:
    """Oldest first: a DELETE never goes before the message that it names."""
    buffer = retiring(ram_path, Trust(signed=True, compressed=True))
    buffer.append(*[b"more"] * 6)
    buffer.erase(1, 13)
    for _ in range(6):
        buffer.append(b"on", b"and on")
        buffer.retire()
        left = buffer.read()
        assert verify(str(buffer.path), jobs=1, signer=buffer.first_key).verdicts["chain"]["erased"] == sum(
            message.erased for message in left
        )
        buffer.check_verifies()


def test_keys_of_retired_segments_carry_the_line_across_a_recovery_and_an_erase(ram_path: Path) -> None:
    buffer = retiring(ram_path, EVERYTHING)
    buffer.erase(4)
    new = make_key(ram_path, NEW_KEY)
    recovery = RecoveryKey(ram_path / RECOVERY_KEY)
    set_settings(str(buffer.path), {}, timeout_seconds=20, signer=Signer(new), recovery=recovery)
    buffer.key = new
    buffer.append(*[b"more"] * 6)
    buffer.erase(6)
    buffer.compress()
    buffer.append(*[b"yet more"] * 6)
    buffer.retire()
    kept = (buffer.path / "keys.http").read_bytes()
    report = verify(str(buffer.path), jobs=1, signer=PUBLICS[KEY])
    assert (report.ok, report.recoveries) == (True, 1), report.faults
    assert b"x-hbuf-recovery-key: " in kept
    assert buffer.directory.segment_firsts()[0] > 9, "the segment of the recovery is not retired"
    (buffer.path / "keys.http").write_bytes(kept.replace(b"x-hbuf-recovery-key: ", b"x-hbuf-recovery-kez: "))
    assert not verify(str(buffer.path), jobs=1, signer=PUBLICS[KEY]).ok


# An old backup that is restored


@pytest.mark.parametrize("compressed", [False, True], ids=["as it was", "compressed first"])
@pytest.mark.parametrize("trust", TRUSTS, ids=str)
def test_list_erases_again_what_a_restored_backup_brought_back(trust: Trust, compressed: bool, ram_path: Path) -> None:
    buffer = TrustedBuffer(ram_path, trust)
    shutil.copytree(buffer.path, ram_path / "backup")
    keys = ram_path / "keys as they were"
    shutil.copytree(ram_path / "keys", keys)
    buffer.erase(2, 5)
    told = list_erased(str(buffer.path))
    shutil.rmtree(buffer.path)
    shutil.copytree(ram_path / "backup", buffer.path)
    shutil.rmtree(ram_path / "keys")
    shutil.copytree(keys, ram_path / "keys")  # a restore goes back to the key of its newest segment
    if compressed:
        buffer.compress()
    assert all(holders(buffer.path, text) for text in buffer.secrets[1].texts)
    assert apply_list(str(buffer.path), told, Erasing("asked for", signer=buffer.signer)) == 2
    buffer.check(2, 5)
    buffer.check_verifies()
    assert listed(buffer) == [2, 5]
    before = content_of(buffer.path)
    assert apply_list(str(buffer.path), told, Erasing("asked for", signer=buffer.signer)) == 0
    assert content_of(buffer.path) == before


def test_list_without_the_key_is_refused_on_a_signed_buffer_and_changes_nothing(ram_path: Path) -> None:
    buffer = TrustedBuffer(ram_path, EVERYTHING)
    shutil.copytree(buffer.path, ram_path / "backup")
    buffer.erase(2)
    told = list_erased(str(buffer.path))
    before = content_of(ram_path / "backup")
    with pytest.raises(HbufError):
        apply_list(str(ram_path / "backup"), told, Erasing("asked for"))
    assert content_of(ram_path / "backup") == before


def test_list_applied_to_a_backup_of_which_some_is_retired_erases_what_is_left(ram_path: Path) -> None:
    buffer = retiring(ram_path, EVERYTHING)
    buffer.retire()
    shutil.copytree(buffer.path, ram_path / "backup")
    buffer.erase(5)
    told = list_erased(str(buffer.path))
    shutil.rmtree(buffer.path)
    shutil.copytree(ram_path / "backup", buffer.path)
    assert apply_list(str(buffer.path), told, Erasing("asked for", signer=buffer.signer)) == 1
    assert [message.seq for message in buffer.read() if message.erased] == [5]
    buffer.check_verifies()
