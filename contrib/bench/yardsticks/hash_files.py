"""BLAKE3 of whole files, as b3sum does it. Usage: hash_files.py THREADS FILE... (THREADS 0: all cores)"""

from __future__ import annotations

import sys

from blake3 import blake3

_READ_BYTES = 4 * 1024 * 1024


def main() -> None:
    threads = int(sys.argv[1]) or blake3.AUTO
    for name in sys.argv[2:]:
        hasher = blake3(max_threads=threads)
        with open(name, "rb", buffering=0) as file:
            while data := file.read(_READ_BYTES):
                hasher.update(data)
        print(hasher.hexdigest(), name)


if __name__ == "__main__":
    main()
