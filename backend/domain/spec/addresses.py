"""The addresses that a spec may name, judged by their text alone: what is wrong with one, and what to write instead."""

from urllib.parse import urlsplit

URL_PROBLEM = (
    "must be an http(s) address with a host and without user, password, query or fragment: https://llm.example.com/v1"
)
# what clients of a vendor add by themselves, as kolm does; the longest that fits goes first
_ADDED = ("/chat/completions", "/completions", "/responses", "/embeddings", "/v1/chat", "/v1/messages", "/v1/models")


def address_problem(url: str, *, is_chat: bool = True) -> str | None:
    """Say what is wrong with an address, and what to write; None for an http(s) address of a host with nothing but a
    path after it. Of a chat's address, that path is what stands before /chat/completions. Nothing of it is repeated: a
    key may be in it.

    >>> address_problem("https://llm.example.com/v1/chat/completions/")
    'ends in /chat/completions; kolm adds the path itself: write what stands before, as in https://llm.example.com/v1'
    """
    if any(char.isspace() or not char.isprintable() or char in "\\\"'`<>" for char in url):
        return f"holds a space, a line break, a quotation mark or a sign that cannot be seen; {URL_PROBLEM}"
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        return URL_PROBLEM
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine:
        host = url.partition("/")[0]
        is_bare = "://" not in url and ("." in host or "localhost" in host)
        return f"begins without https://; {URL_PROBLEM}" if is_bare else URL_PROBLEM
    if parts.username is not None or parts.password is not None:
        return f"holds a user or a password: store the key with POST /v1/teacher_keys; {URL_PROBLEM}"
    if parts.query or parts.fragment:
        return f"goes on with ? or #: leave that out, and store a key with POST /v1/teacher_keys; {URL_PROBLEM}"
    added = next((ending for ending in _ADDED if url.rstrip("/").lower().endswith(ending)), None)
    if added is None or not is_chat:
        return None
    what = added.removeprefix("/v1")
    return f"ends in {what}; kolm adds the path itself: write what stands before, as in https://llm.example.com/v1"
