"""Long answers from plain iterators. Under ASGI Django gathers a plain iterator into a list before the first byte goes
out; here it is drawn piece by piece, each in a thread and with a connection for that moment alone."""

from collections.abc import AsyncIterator, Iterator
from itertools import islice

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

from backend.rest.async_queries import query

LINES_A_PIECE = 500


def streamed_file(
    request: HttpRequest, chunks: Iterator[bytes], *, content_type: str, filename: str, a_piece: int = LINES_A_PIECE
) -> StreamingHttpResponse:
    """A download of `chunks`, of which each draw opens its own transaction where it needs one. Its `close` is called at
    the end of the response, also when nobody read it."""
    content = _in_pieces(chunks, a_piece) if isinstance(request, ASGIRequest) else chunks
    response = StreamingHttpResponse(content, content_type=content_type)
    if content is not chunks and hasattr(chunks, "close"):
        response._resource_closers.append(chunks.close)  # as Django does for what it streams itself
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    response["Cache-Control"] = "no-store"
    return response


async def _in_pieces(chunks: Iterator[bytes], a_piece: int) -> AsyncIterator[bytes]:
    take = query(lambda: b"".join(islice(chunks, a_piece)))
    while piece := await take():
        yield piece
