"""What the daemon counts, and how Prometheus wants it told. Counting is a few additions a request.

What concerns one tenant is kept by tenant: nobody is told of another's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hbuf.store.outgoing import Appended

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(slots=True)
class Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))
    sum: float = 0.0

    def note(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS, seconds)] += 1
        self.sum += seconds


@dataclass(slots=True)
class OfTenant:
    appends: int = 0  # requests
    messages: int = 0
    duplicates: int = 0
    bytes: int = 0
    reads: int = 0
    read_messages: int = 0
    read_bytes: int = 0


class Metrics:
    def __init__(self) -> None:
        self._tenants: dict[str, OfTenant] = {}
        self._statuses: Counter[tuple[str, int]] = Counter()  # by tenant and class
        self._seconds = {"GET": Histogram(), "POST": Histogram(), "other": Histogram()}

    def note_append(self, tenant: str, bodies: Sequence[bytes], appended: Appended) -> None:
        of = self._of(tenant)
        of.appends += 1
        duplicates = len(appended.duplicates)
        of.duplicates += duplicates
        of.messages += len(bodies) - duplicates
        of.bytes += len(bodies[0]) if len(bodies) == 1 else sum(map(len, bodies))

    def note_read(self, tenant: str, messages: int, size: int) -> None:
        of = self._of(tenant)
        of.reads += 1
        of.read_messages += messages
        of.read_bytes += size

    def note_request(self, tenant: str, method: str, status: int, seconds: float) -> None:
        """`tenant` is that of the caller, whatever was asked for; empty where there was none."""
        self._statuses[tenant, status // 100] += 1
        (self._seconds.get(method) or self._seconds["other"]).note(seconds)

    def _of(self, tenant: str) -> OfTenant:
        found = self._tenants.get(tenant)
        if found is None:
            found = self._tenants[tenant] = OfTenant()
        return found

    def tenants_lines(self, tenants: Iterable[str], sizes: Mapping[str, tuple[int, int | None]]) -> list[str]:
        """Of these tenants. `sizes`: bytes on disk and the quota."""
        shown = sorted(tenants)
        lines: list[str] = []
        for name, kind, what, value in _OF_TENANT:
            lines += _header(name, kind, what)
            lines += [f'{name}{{tenant="{each}"}} {getattr(self._of(each), value)}' for each in shown]
        lines += _header("hbuf_requests_total", "counter", "Requests by the class of their status.")
        for (tenant, status), count in sorted(self._statuses.items()):
            if tenant in shown:
                lines.append(f'hbuf_requests_total{{tenant="{tenant}",status="{status}xx"}} {count}')
        lines += _header("hbuf_tenant_bytes", "gauge", "Bytes of the files of the tenant's buffers.")
        lines += [f'hbuf_tenant_bytes{{tenant="{each}"}} {sizes[each][0]}' for each in shown if each in sizes]
        lines += _header("hbuf_tenant_max_bytes", "gauge", "The tenant's quota.")
        for each in shown:
            if each in sizes and sizes[each][1] is not None:
                lines.append(f'hbuf_tenant_max_bytes{{tenant="{each}"}} {sizes[each][1]}')
        return lines

    def server_lines(self, gauges: Mapping[str, tuple[str, int]], counts: Mapping[str, tuple[str, int]]) -> list[str]:
        """Of the server as a whole: `gauges` and `counts` are names, what they mean, and values."""
        lines: list[str] = []
        for name, (what, value) in gauges.items():
            lines += [*_header(name, "gauge", what), f"{name} {value}"]
        for name, (what, value) in counts.items():
            lines += [*_header(name, "counter", what), f"{name} {value}"]
        without = {status: count for (tenant, status), count in self._statuses.items() if not tenant}
        lines += _header("hbuf_anonymous_requests_total", "counter", "Requests without a valid credential.")
        lines += [f'hbuf_anonymous_requests_total{{status="{each}xx"}} {without[each]}' for each in sorted(without)]
        lines += _header("hbuf_request_seconds", "histogram", "How long requests took, waiting included.")
        for method, histogram in self._seconds.items():
            total = 0
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), histogram.counts, strict=True):
                total += count
                lines.append(f'hbuf_request_seconds_bucket{{method="{method}",le="{bound}"}} {total}')
            lines.append(f'hbuf_request_seconds_sum{{method="{method}"}} {histogram.sum:.6f}')
            lines.append(f'hbuf_request_seconds_count{{method="{method}"}} {total}')
        return lines


_OF_TENANT = (
    ("hbuf_appends_total", "counter", "Requests that appended.", "appends"),
    ("hbuf_appended_messages_total", "counter", "Messages that were stored.", "messages"),
    ("hbuf_duplicate_messages_total", "counter", "Messages that were there already.", "duplicates"),
    ("hbuf_appended_bytes_total", "counter", "Bytes of bodies that were sent.", "bytes"),
    ("hbuf_reads_total", "counter", "Requests that read.", "reads"),
    ("hbuf_read_messages_total", "counter", "Messages that were read.", "read_messages"),
    ("hbuf_read_bytes_total", "counter", "Bytes that were read.", "read_bytes"),
)


def _header(name: str, kind: str, what: str) -> list[str]:
    return [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
