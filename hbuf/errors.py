"""One tree of errors. Each class owns its exit code, its HTTP status and its wire code.

Nothing here knows how an error is shown: a command prints one line, the daemon answers with a problem
document, both from the same three class attributes. This module imports nothing of hbuf.
"""

from __future__ import annotations


class HbufError(Exception):
    """Anything that hbuf refuses or fails to do. `hint` is the way out, where there is one."""

    exit_code = 74
    http_status = 500
    code = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        # Of an append that failed: how many of its messages were stored all the same; None where that is not known.
        self.stored: int | None = 0
        self.seq: int | None = None  # the number of the one message that it is about


class UsageError(HbufError):
    """The request itself is wrong: a bad name, field, place, size or setting."""

    exit_code = 2
    http_status = 400
    code = "malformed"


class Damaged(HbufError):
    """Stored bytes are not what they must be."""

    exit_code = 65
    http_status = 500
    code = "damaged"


class NewerFormat(HbufError):
    """Written by a version of hbuf that this one cannot read."""

    exit_code = 65
    http_status = 500
    code = "newer-format"


class BadInput(HbufError):
    """A stream given to be stored (HTTP, JSON lines) that cannot be read."""

    exit_code = 65
    http_status = 400
    code = "bad-input"


class TooLarge(BadInput):
    """A message, its fields or a unit beyond its limit."""

    http_status = 413
    code = "too-large"


class NotFound(HbufError):
    """There is no such buffer."""

    exit_code = 66
    http_status = 404
    code = "not-found"


class Gone(NotFound):
    """The message was there, and was erased or retired."""

    http_status = 410
    code = "gone"


class Unavailable(HbufError):
    """Something outside that it needs is not installed, or cannot be reached."""

    exit_code = 69
    http_status = 503
    code = "unavailable"


class NotReady(Unavailable):
    """The daemon is starting or ending."""

    code = "not-ready"


class CannotCreate(HbufError):
    """The buffer exists already, or cannot be made there."""

    exit_code = 73
    http_status = 409
    code = "cannot-create"


class StorageFailed(HbufError):
    """The operating system could not read, write or sync."""

    exit_code = 74
    http_status = 500
    code = "storage-failed"


class TryLater(HbufError):
    """It can work later, with nothing changed: locked, paused, full."""

    exit_code = 75
    http_status = 503
    code = "try-later"


class Locked(TryLater):
    code = "locked"


class Paused(TryLater):
    http_status = 423
    code = "paused"


class DiskFull(TryLater):
    http_status = 507
    code = "disk-full"


class OverQuota(TryLater):
    """The tenant has as much as it may have."""

    http_status = 507
    code = "quota"


class SlowDown(TryLater):
    """More is waiting to be written than may be. Nothing of this was stored."""

    http_status = 429
    code = "slow-down"


class ClockJumped(TryLater):
    """The wall clock ran ahead of the monotonic one by more than the limit."""

    code = "clock-jumped"


class NotAllowed(HbufError):
    """No permission, or the buffer does not take this."""

    exit_code = 77
    http_status = 403
    code = "not-allowed"


class Unauthorized(NotAllowed):
    """No credential, or none that is valid. It never says which."""

    http_status = 401
    code = "unauthorized"


class NotSigned(NotAllowed):
    """A head was asked for, of a buffer that is not signed."""

    http_status = 404
    code = "not-signed"


class Closed(NotAllowed):
    http_status = 409
    code = "closed"


class ProducerGap(HbufError):
    """A producer's number left a gap, and gaps were to be refused."""

    exit_code = 65
    http_status = 409
    code = "producer-gap"


class PreconditionFailed(HbufError):
    """Somebody else appended first: the last message is not the one that was named."""

    exit_code = 65
    http_status = 412
    code = "precondition-failed"


class PauseLost(HbufError):
    """A pause did not hold all the time: it was ended by somebody else, or was not renewed in time."""

    exit_code = 75
    http_status = 409
    code = "pause-lost"


class WrongMethod(UsageError):
    http_status = 405
    code = "method"


class NotAcceptable(UsageError):
    """There is no such form of an answer."""

    http_status = 406
    code = "not-acceptable"


class TooSlow(TryLater):
    """A request took longer to come than it may."""

    http_status = 408
    code = "too-slow"


class WrongMediaType(UsageError):
    http_status = 415
    code = "media-type"


class WrongRange(UsageError):
    """Bytes of a file that are not there."""

    http_status = 416
    code = "range"


class HeadersTooLarge(UsageError):
    """The header section of a request has more bytes than it may have."""

    http_status = 431
    code = "headers-too-large"
