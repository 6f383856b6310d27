"""A single sign-on provider on loopback: OpenID Connect's authorization code flow, as much of it as a client can get
wrong.

It refuses what the standards say it must: a code used twice or by another client (RFC 6749, 4.1.2), a verifier that
does not fit its challenge (RFC 7636, 4.6), a redirect address that was not registered. There is no page to log in at:
whoever comes is `person`.
"""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit


@dataclass
class Idp:
    """`person` is what `userinfo` tells of whoever logs in."""

    client_id: str
    secret: str
    redirect_uris: set[str]
    person: dict[str, Any]
    url: str = ""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)

    def configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}/jwks",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def authorize(self, query: dict[str, str]) -> str | None:
        """Where the browser goes next; None for a request that is refused."""
        if query.get("client_id") != self.client_id or query.get("redirect_uri") not in self.redirect_uris:
            return self._refuse("an unknown client or redirect address")
        if query.get("code_challenge_method") != "S256" or not query.get("code_challenge"):
            return self._refuse("no code challenge")
        if "openid" not in query.get("scope", "").split():
            return self._refuse("not an OpenID request")
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query.get('state', '')})}"

    def exchange(self, form: dict[str, str]) -> dict[str, Any] | None:
        """An access token for a code; None for one that is refused."""
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or form.get("grant_type") != "authorization_code":
            return self._refuse("no such code")
        if form.get("client_id") != self.client_id or form.get("client_secret") != self.secret:
            return self._refuse("not this client")
        if form.get("redirect_uri") != asked["redirect_uri"]:
            return self._refuse("another redirect address")
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return self._refuse("the verifier does not fit")
        token = secrets.token_urlsafe(16)
        self.tokens.add(token)
        return {"access_token": token, "token_type": "Bearer", "expires_in": 300}

    def _refuse(self, why: str) -> None:
        self.refused.append(why)


class _Handler(BaseHTTPRequestHandler):
    idp: Idp

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/.well-known/openid-configuration":
            self._json(200, self.idp.configuration())
        elif url.path == "/authorize":
            onward = self.idp.authorize(_flat(url.query))
            self._json(400, {"error": "invalid_request"}) if onward is None else self._redirect(onward)
        elif url.path == "/userinfo":
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            is_known = token in self.idp.tokens
            self._json(200, self.idp.person) if is_known else self._json(401, {"error": "invalid_token"})
        else:
            self._json(404, {"error": "not_found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        answer = self.idp.exchange(_flat(body)) if self.path == "/token" else None
        self._json(400, {"error": "invalid_grant"}) if answer is None else self._json(200, answer)

    def _json(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _redirect(self, url: str) -> None:
        self.send_response(302)
        self.send_header("Location", url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def _flat(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}


@contextmanager
def serving(idp: Idp) -> Iterator[Idp]:
    handler = type("Handler", (_Handler,), {"idp": idp})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    idp.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield idp
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
