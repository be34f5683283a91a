"""Every request that there is: path, method, what the caller needs, and who answers. Everything else is refused.

`{buffer}`, `{seq}` and `{file}` stand for one part of a path. What begins with /b is there again below
/tenants/{tenant}.
"""

from __future__ import annotations

from hbuf.daemon.call import Method
from hbuf.daemon.routes import appending, buffers, erased, health, markers, message, reading, segments

TENANTS = "/tenants/{tenant}"

TABLE: dict[str, dict[str, Method]] = {
    "/healthz": {"GET": Method("open", health.alive)},
    "/readyz": {"GET": Method("open", health.ready)},
    "/openapi.json": {"GET": Method("open", health.openapi)},
    "/metrics": {"GET": Method("anything", health.metrics)},
    "/": {"GET": Method("anything", health.status_page)},
    "/b": {"GET": Method("list", buffers.list_buffers)},
    "/b/{buffer}": {
        "PUT": Method("operate", buffers.make),
        "POST": Method("append", appending.append),
        "GET": Method("read", reading.read),
        "HEAD": Method("see", reading.head),
    },
    "/b/{buffer}/status": {"GET": Method("see", buffers.show_status)},
    "/b/{buffer}/settings": {
        "GET": Method("see", buffers.show_settings),
        "PATCH": Method("operate", buffers.change),
    },
    "/b/{buffer}/erased": {"GET": Method("erase", erased.show), "POST": Method("erase", erased.erase_many)},
    "/b/{buffer}/head": {"GET": Method("read", buffers.show_head)},
    "/b/{buffer}/segments": {"GET": Method("read", segments.list_files)},
    "/b/{buffer}/segments/{file}": {"GET": Method("read", segments.read_file)},
    "/b/{buffer}/paused": {
        "GET": Method("see", markers.show_paused),
        "PUT": Method("operate", markers.pause_it),
        "DELETE": Method("operate", markers.resume_it),
    },
    "/b/{buffer}/closed": {
        "GET": Method("see", markers.show_closed),
        "PUT": Method("operate", markers.close_it),
        "DELETE": Method("operate", markers.open_it),
    },
    "/b/{buffer}/{seq}": {
        "GET": Method("read", message.read_message),
        "DELETE": Method("erase", message.erase_message),
    },
}
