"""What is asked of the daemon itself: is it alive, is it ready, what does it offer, what has it counted."""

from __future__ import annotations

from aiohttp import web

from hbuf.daemon import answers, asking, page
from hbuf.daemon.call import Call
from hbuf.daemon.metrics import CONTENT_TYPE
from hbuf.daemon.routes.buffers import listings
from hbuf.errors import NotReady

_PAGE_FORMS = ("text/html", "text/plain")


async def alive(call: Call) -> web.StreamResponse:
    return answers.answer(b"ok\n", answers.TEXT)


async def ready(call: Call) -> web.StreamResponse:
    if not call.serving.ready() or call.serving.stopping.asked:
        raise NotReady("the server is starting or ending")
    return answers.answer(b"ready\n", answers.TEXT)


async def openapi(call: Call) -> web.StreamResponse:
    return answers.answer(call.serving.openapi, answers.JSON)


async def metrics(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    serving, buffers = call.serving, call.serving.buffers
    everywhere = call.caller.everywhere
    tenants = await buffers.run_reading(buffers.tenants) if everywhere else [call.tenant]
    sizes = {
        tenant: (await buffers.quotas.bytes_of(tenant), serving.config.quota_of(tenant).max_bytes) for tenant in tenants
    }
    lines = serving.metrics.tenants_lines(sizes, sizes)
    if everywhere:
        counts = buffers.counts
        lines += serving.metrics.server_lines(
            {
                "hbuf_open_buffers": ("Buffers that are open for writing.", buffers.open_count),
                "hbuf_waiting_readers": ("Readers that wait for messages.", buffers.waking.count),
                "hbuf_event_streams": ("Event streams that are open.", serving.event_streams),
                "hbuf_queue_bytes": ("Bytes that wait to be written.", buffers.queue.bytes),
                "hbuf_queue_requests": ("Requests that wait to be written.", buffers.queue.requests),
            },
            {
                "hbuf_commits_total": ("Groups of requests that shared one write and one sync.", counts["groups"]),
                "hbuf_committed_requests_total": ("Requests in these groups.", counts["requests"]),
                "hbuf_committed_messages_total": ("Messages in these groups.", counts["messages"]),
                "hbuf_committed_bytes_total": ("Bytes of bodies in these groups.", counts["bytes"]),
            },
        )
    return answers.answer("\n".join([*lines, ""]).encode(), CONTENT_TYPE)


async def status_page(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    found = await listings(call)
    if asking.accepted(call.request, _PAGE_FORMS) == "text/plain" or _is_plain_client(call):
        return answers.answer(page.as_text(call.tenant, found), answers.TEXT)
    return answers.answer(
        page.as_html(call.tenant, call.caller.name, found), "text/html; charset=utf-8", page.HTML_HEADERS
    )


def _is_plain_client(call: Call) -> bool:
    """curl and the like take anything, and show it as it is."""
    return "text/html" not in call.request.headers.get("accept", "")
