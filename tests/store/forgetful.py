"""A disk that forgets: a model of what is in the cache and what is on disk, kept beside the real files.

A file's bytes are on disk after `sync_data`, a name after `sync_directory` of its directory, and nothing else is
promised. At a power cut each page and each name that was not synced is kept or lost as a `Loss` says, and the
directory is built again, elsewhere, from what is left. The lock file is not made by fsops: it counts as made when its
directory is next synced. Nor is a key file, which is locked while it is written: it counts as made at its first write.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pytest

from hbuf.store import fsops

from .scenarios import PAGE_BYTES


@dataclass(slots=True)
class File:
    """`dirty` are the pages that the next sync puts on disk: those that were written since the last one."""

    cache: bytearray = field(default_factory=bytearray)
    disk: bytes = b""
    dirty: set[int] = field(default_factory=set)

    def write(self, data: bytes, offset: int) -> None:
        self.cache.extend(bytes(max(0, offset - len(self.cache))))
        self.cache[offset : offset + len(data)] = data
        self.dirty.update(range(offset // PAGE_BYTES, (offset + len(data) - 1) // PAGE_BYTES + 1))

    def sync(self) -> None:
        pages = bytearray(self.disk[: len(self.cache)].ljust(len(self.cache), b"\0"))
        for page in self.dirty:
            here = slice(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)
            pages[here] = self.cache[here]
        self.disk = bytes(pages)
        self.dirty.clear()


@dataclass(slots=True)
class Folder:
    """Names on disk, and the changes since then: each is what some names point to now (None: nothing)."""

    disk: dict[str, File | Folder] = field(default_factory=dict)
    changes: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def names(self, keep: Callable[[int, int], bool] = lambda i, count: True) -> dict[str, File | Folder]:
        found: dict[str, File | Folder | None] = dict(self.disk)
        for i, change in enumerate(self.changes):
            if keep(i, len(self.changes)):
                found |= change
        return {name: node for name, node in found.items() if node is not None}


@dataclass(frozen=True, slots=True)
class Loss:
    """What a power cut leaves of what was not synced: which of the changed names, which of the changed pages.

    Both are asked with a number and how many there are. A changed length is on disk "with a page" that was kept,
    "without pages" too (then zeros fill it), or "not" at all (then what lies behind the old one is lost).
    """

    name: str
    keep_name: Callable[[int, int], bool]
    keep_page: Callable[[int, int], bool]
    keep_length: Literal["with a page", "without pages", "not"] = "with a page"

    def __str__(self) -> str:
        return self.name

    def bytes_of(self, file: File) -> bytes:
        if file.cache == file.disk:
            return file.disk
        size = max(len(file.cache), len(file.disk))
        old, new = file.disk.ljust(size, b"\0"), bytes(file.cache).ljust(size, b"\0")
        starts = [at for at in range(0, size, PAGE_BYTES) if old[at : at + PAGE_BYTES] != new[at : at + PAGE_BYTES]]
        kept = [at for i, at in enumerate(starts) if self.keep_page(i, len(starts))]
        left = bytearray(old)
        for at in kept:
            left[at : at + PAGE_BYTES] = new[at : at + PAGE_BYTES]
        lengthened = self.keep_length == "without pages" or (self.keep_length == "with a page" and kept)
        return bytes(left[: len(file.cache) if lengthened else len(file.disk)])


class Disk:
    """The model of all that is below `root`. What is there at first is on disk, but for what `not_on_disk` says.

    It gives, for a file, how many of its bytes are on disk. The others are in the cache, which takes them for
    clean, as it does after a sync that failed: only writing them again puts them on disk.
    """

    def __init__(self, root: Path, not_on_disk: Mapping[Path, int] = MappingProxyType({})) -> None:
        self._root = root
        self._not_on_disk = not_on_disk
        self._files: dict[int, File] = {}  # by inode
        self._top = self._adopt(root)

    def watch(self, monkeypatch: pytest.MonkeyPatch, before_each: Callable[[], None]) -> None:
        """Follows every call that changes files from now on; `before_each` is called ahead of it."""
        for name in (
            "create_file",
            "make_directory",
            "make_outer_directory",
            "write_all_at",
            "sync_data",
            "truncate",
            "rename",
            "link",
            "unlink",
            "sync_directory",
        ):
            monkeypatch.setattr(
                fsops, name, self._watched(getattr(fsops, name), getattr(self, f"_{name}"), before_each)
            )

    def snapshot(self) -> Folder:
        return copy.deepcopy(self._top)

    def _watched(
        self, call: Callable[..., Any], follow: Callable[..., None], before_each: Callable[[], None]
    ) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            before_each()
            existed = isinstance(arguments[0], Path) and arguments[0].exists()
            result = call(*arguments)
            if call.__name__ == "create_file":
                follow(arguments[0], result, existed)
            else:
                follow(*arguments)
            return result

        return called

    def _adopt(self, path: Path) -> Folder:
        folder = Folder()
        for each in path.iterdir():
            if each.is_dir():
                folder.disk[each.name] = self._adopt(each)
            else:
                content = each.read_bytes()
                made = File(bytearray(content), content[: self._not_on_disk.get(each)])
                folder.disk[each.name] = self._files[each.stat().st_ino] = made
        return folder

    def _folder(self, path: Path) -> Folder:
        node: File | Folder = self._top
        for name in path.relative_to(self._root).parts:
            assert isinstance(node, Folder)
            node = node.names()[name]
        assert isinstance(node, Folder)
        return node

    def _file(self, fd: int) -> File:
        inode = os.fstat(fd).st_ino
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        # A file system may give the inode of a file that is gone to the next one.
        if inode not in self._files or (path.exists() and path.name not in self._folder(path.parent).names()):
            self._create_file(path, fd, existed=False)
        return self._files[inode]

    def _create_file(self, path: Path, fd: int, existed: bool) -> None:
        if existed:
            self._file(fd).cache.clear()
            return
        self._files[os.fstat(fd).st_ino] = made = File()
        self._folder(path.parent).changes.append({path.name: made})

    def _make_directory(self, path: Path) -> None:
        self._folder(path.parent).changes.append({path.name: Folder()})

    _make_outer_directory = _make_directory

    def _write_all_at(self, fd: int, data: bytes, offset: int) -> None:
        if data:
            self._file(fd).write(data, offset)

    def _sync_data(self, fd: int) -> None:
        self._file(fd).sync()

    def _truncate(self, fd: int, length: int) -> None:
        cache = self._file(fd).cache
        cache[length:] = bytes(max(0, length - len(cache)))

    def _rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent
        folder = self._folder(source.parent)
        folder.changes.append({source.name: None, target.name: folder.names()[source.name]})

    def _link(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent
        folder = self._folder(source.parent)
        folder.changes.append({target.name: folder.names()[source.name]})

    def _unlink(self, path: Path) -> None:
        self._folder(path.parent).changes.append({path.name: None})

    def _sync_directory(self, path: Path) -> None:
        if path.is_relative_to(self._root):
            folder = self._folder(path)
            folder.disk = folder.names()
            folder.changes.clear()
            if (path / "lock").exists():
                folder.disk.setdefault("lock", File())


def left_on_disk(top: Folder, loss: Loss) -> dict[str, bytes | None]:
    """The files (and, as None, directories) that a power cut leaves, by path."""
    left: dict[str, bytes | None] = {}
    for name, node in top.names(loss.keep_name).items():
        if isinstance(node, File):
            left[name] = loss.bytes_of(node)
        else:
            left[name] = None
            left |= {f"{name}/{inner}": content for inner, content in left_on_disk(node, loss).items()}
    return left


def build(where: Path, left: dict[str, bytes | None]) -> None:
    """Makes the directory `where` with what a power cut left."""
    where.mkdir()
    for name, content in sorted(left.items()):
        if content is None:
            (where / name).mkdir()
        else:
            (where / name).touch(0o600)  # a key that others can read is not used
            (where / name).write_bytes(content)
