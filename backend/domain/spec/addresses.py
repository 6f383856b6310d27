"""The addresses that a spec may name, judged by their text alone."""

from urllib.parse import urlsplit

URL_PROBLEM = (
    "must be an http(s) address with a host and without user, password, query or fragment: https://llm.example.com/v1"
)


def is_web_address(url: str) -> bool:
    """Say whether this is an http(s) address of a host, with nothing but a path after it."""
    if any(char.isspace() or not char.isprintable() or char == "\\" for char in url):
        return False
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = parts.username is None and parts.password is None and not parts.query and not parts.fragment
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port_is_fine and plain
