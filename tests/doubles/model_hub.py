"""A model hub on loopback: the three answers that a fetch asks for, with the real one's headers of refusal.

A repository is a folder of bytes by file name at one or several revisions. What the far side may do wrong is set on it:
gated, private, sizes that it announces and does not keep, bodies cut short, a number of answers that fail."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse


@dataclass(slots=True, kw_only=True)
class Repository:
    """`revisions` maps a branch or tag to its files. `announces` replaces sizes in the listing, `cuts` sends so many
    bytes of a file and closes, `fails` answers so many requests with 503."""

    revisions: dict[str, dict[str, bytes]]
    is_gated: bool = False
    is_private: bool = False
    announces: dict[str, int] = field(default_factory=dict)
    cuts: dict[str, int] = field(default_factory=dict)
    fails: int = 0

    def files_at(self, revision: str) -> dict[str, bytes] | None:
        by_commit = {commit_of(files): files for files in self.revisions.values()}
        return self.revisions.get(revision) or by_commit.get(revision)


@dataclass(slots=True)
class ModelHub:
    """`requests` are those that came, as "GET /path"; `tokens` the bearer tokens that were sent."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)

    def add(self, name: str, folder: Path) -> Repository:
        """A repository with the files of a folder at `main`."""
        files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        self.repositories[name] = Repository(revisions={"main": files})
        return self.repositories[name]

    def fetched(self) -> list[str]:
        """The files whose bytes were asked for, in order."""
        return [r.rpartition("/")[2] for r in self.requests if r.startswith("GET ") and "/resolve/" in r]


def commit_of(files: dict[str, bytes]) -> str:
    digest = hashlib.sha1(usedforsecurity=False)
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name])
    return digest.hexdigest()


@contextmanager
def model_hub() -> Iterator[ModelHub]:
    hub = ModelHub()

    class Handler(_Handler):
        far_side = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    far_side: ModelHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlparse(self.path).path)
        self.far_side.requests.append(f"{self.command} {path}")
        if self.headers.get("Authorization"):
            self.far_side.tokens.add(self.headers["Authorization"].removeprefix("Bearer "))
        parts = path.removeprefix("/api/models").strip("/").split("/")
        name, file = "/".join(parts[:2]), "/".join(parts[4:])
        repository = self.far_side.repositories.get(name)
        files = repository.files_at(parts[3] if len(parts) > 3 else "main") if repository else None
        if repository is None:
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif repository.fails > 0:
            repository.fails -= 1
            self._send(503, b"", {})
        elif files is None:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif path.startswith("/api/"):
            self._send(200, json.dumps(_about(name, repository, files)).encode(), {})
        elif repository.is_gated and not self.headers.get("Authorization"):
            self._send(401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."})
        elif file not in files:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            self._send_file(files, file, most=repository.cuts.get(file))

    def _send_file(self, files: dict[str, bytes], name: str, *, most: int | None) -> None:
        begin = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        headers = {"ETag": f'"{hashlib.sha256(files[name]).hexdigest()}"', "X-Repo-Commit": commit_of(files)}
        self._send(206 if begin else 200, files[name][begin:], headers, most=most)

    def _send(self, status: int, body: bytes, headers: dict[str, str], *, most: int | None = None) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:most])
        if most is not None:
            self.close_connection = True


def _about(name: str, repository: Repository, files: dict[str, bytes]) -> dict[str, object]:
    sizes = {file: len(data) for file, data in files.items()} | repository.announces
    return {
        "_id": "0" * 24,
        "id": name,
        "modelId": name,
        "sha": commit_of(files),
        "private": repository.is_private,
        "gated": "auto" if repository.is_gated else False,
        "disabled": False,
        "tags": [],
        "downloads": 0,
        "likes": 0,
        "siblings": [{"rfilename": file, "size": size, "blobId": "0" * 40} for file, size in sizes.items()],
    }
