"""By what a server is trusted, and by what it is told who asks. Values; where they come from it does not know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Options(NamedTuple):
    """What is said of getting in, as a user gave it: names of files."""

    cacert: str | None = None
    cert: str | None = None
    token_file: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    cacert: str | None = None  # the file of the CA that must have signed; None for those that the system trusts
    cert: str | None = None  # the file of our own certificate
    key: str | None = None  # that of its key; None where it is in the same file
    token: str | None = field(default=None, repr=False)
