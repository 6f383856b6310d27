"""The lease API as a runner sees it: one place that knows its paths and statuses.

LeaseLost    410, or 404 for the job itself: it is somebody else's now, or nobody's; drop it
StoreFull    507: an Unreachable whose cause is known
TooLarge     413: a Refused that a smaller blob would not have met
Unreachable, Refused: `gpu_runners.http`
"""

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import httpx

from backend.domain.jobs.base_checks import RunnerReport
from backend.domain.jobs.blob_transfers import PART_BYTES, Upload
from backend.domain.jobs.runner_jobs import Claim, HeartbeatAnswer, Progress
from backend.domain.serving.wire import FeedbackBatch
from gpu_runners.errors import JobFailed
from gpu_runners.http import Refused, Unreachable

_PIECE_BYTES = 1 << 20
_UPLOAD_S = 120.0  # of silence, until a request of an upload is given up: its last one hashes the whole at the far side


class LeaseLost(Exception):
    pass


class StoreFull(Unreachable):
    pass


class TooLarge(Refused):
    pass


class RunnerClient:
    """Claims with the runner's token; `job()` opens the endpoints of one claimed job with that job's own token."""

    def __init__(self, *, api_url: str, token: str, name: str) -> None:
        self._http = httpx.Client(base_url=api_url, timeout=httpx.Timeout(10.0))
        self._token, self._name = token, name

    def claim(self, kinds: Sequence[str], *, wait_s: float, about: RunnerReport | None = None) -> Claim | None:
        """A job, or None when there was none for `wait_s` seconds; `about` is what the runner says of itself. Raises
        Unreachable, Refused."""
        body: dict[str, Any] = {"runner": self._name, "kinds": list(kinds), "wait_s": wait_s}
        if about is not None:
            body["report"] = about.to_json()
        timeout = httpx.Timeout(10.0, read=wait_s + 10.0)
        response = _send(self._http, "POST", "/internal/runner/claim", token=self._token, json=body, timeout=timeout)
        if response.status_code == 204:
            return None
        _check(response)
        try:
            return Claim.from_json(response.json())
        except (ValueError, TypeError) as error:
            raise Refused(
                f"The claim's answer is not one this runner understands ({error}); run the same version on both sides."
            ) from error

    def job(self, claim: Claim) -> "JobClient":
        return JobClient(http=self._http, claim=claim)

    def pack_feedback(self, batch: FeedbackBatch) -> None:
        """Raises Unreachable, Refused."""
        json = batch.to_json()
        path = "/internal/runner/pack-feedback"
        _check(_send(self._http, "POST", path, token=self._token, json=json, timeout=httpx.Timeout(10.0)))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class JobClient:
    def __init__(self, *, http: httpx.Client, claim: Claim) -> None:
        self._http, self._token, self._path = http, claim.token, f"/internal/runner/jobs/{claim.job_id}"

    def heartbeat(self, progress: Progress, *, timeout_s: float) -> HeartbeatAnswer:
        answer = self._call("POST", "/heartbeat", json=progress.to_json(), timeout=timeout_s).json()
        return HeartbeatAnswer(
            cancel=bool(answer["cancel"]),
            lease_s=float(answer["lease_s"]),
            preempt=bool(answer.get("preempt", False)),  # a web process of the release before does not say
        )

    def report_success(self, result: dict[str, Any]) -> None:
        self._call("POST", "/report", json={"ok": True, "result": result})

    def report_failure(self, failure: JobFailed) -> None:
        body = {"ok": False, "code": failure.code, "message": failure.message, "retryable": failure.retryable}
        self._call("POST", "/report", json=body)

    def get_blob(self, sha256: str) -> bytes:
        """Raises JobFailed(blob_mismatch) where the bytes are not the ones named."""
        response = self._send("GET", f"/blobs/{sha256}", timeout=60.0)
        _refuse_blob(response, sha256)
        if hashlib.sha256(response.content).hexdigest() != sha256:
            raise _mismatch(sha256)
        return response.content

    def save_blob(self, sha256: str, path: Path, *, meanwhile: Callable[[], None]) -> None:
        """Write an input to `path` as it comes, with a call of `meanwhile` after each part. Raises what `get_blob`
        raises."""
        digest = hashlib.sha256()
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            with self._http.stream("GET", f"{self._path}/blobs/{sha256}", headers=headers, timeout=60.0) as response:
                if response.status_code != 200:
                    response.read()
                    _refuse_blob(response, sha256)
                with path.open("wb") as file:
                    for part in response.iter_bytes(_PIECE_BYTES):
                        digest.update(part)
                        file.write(part)
                        meanwhile()
        except httpx.HTTPError as error:
            raise Unreachable(f"{self._http.base_url} broke off ({type(error).__name__}: {error})") from error
        if digest.hexdigest() != sha256:
            raise _mismatch(sha256)

    def put_file(self, path: Path, *, is_wanted: Callable[[], bool] = lambda: True) -> str:
        """Store a file's bytes; returns their sha256. One of more than a part goes up in parts, beginning where an
        earlier call broke off, and stops between two when it is not wanted any more. Raises Unreachable, StoreFull,
        TooLarge, Refused, LeaseLost."""
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            upload = Upload(owner="", sha256=sha256, n_bytes=path.stat().st_size)
            if upload.n_bytes <= PART_BYTES:
                file.seek(0)
                self._call("PUT", f"/blobs/{sha256}", content=file.read(), timeout=60.0)
            else:
                self._put_parts(file, upload, is_wanted)
        return sha256

    def _put_parts(self, file: BinaryIO, upload: Upload, is_wanted: Callable[[], bool]) -> None:
        where = f"/uploads/{upload.sha256}/{upload.n_bytes}"
        state = self._call("GET", where, timeout=_UPLOAD_S).json()
        if state["is_stored"]:
            return
        for number in range(int(state["n_kept"]), upload.n_parts):
            if not is_wanted():
                raise Unreachable("the upload was given up")
            at, n_bytes = number * PART_BYTES, upload.part_bytes(number)
            digest = hashlib.sha256()
            for piece in _pieces(file, at, n_bytes):
                digest.update(piece)
            encoded = base64.b64encode(digest.digest()).decode()
            headers = {"Content-Digest": f"sha-256=:{encoded}:", "Content-Length": str(n_bytes)}
            # as pieces: a request that holds its body lives until the garbage collector comes by
            content = _pieces(file, at, n_bytes)
            self._call("PUT", f"{where}/parts/{number}", content=content, headers=headers, timeout=_UPLOAD_S)
        self._call("POST", where, timeout=_UPLOAD_S)

    def _call(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        response = self._send(method, path, **kwargs)
        if response.status_code == 404:
            raise LeaseLost(f"{method} {path} answered 404")
        return _check(response)

    def _send(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        response = _send(self._http, method, self._path + path, token=self._token, **kwargs)
        if response.status_code == 410:
            raise LeaseLost(f"{method} {path} answered 410")
        return response


def _pieces(file: BinaryIO, at: int, n_bytes: int) -> Iterator[bytes]:
    file.seek(at)
    while n_bytes > 0 and (piece := file.read(min(n_bytes, _PIECE_BYTES))):
        n_bytes -= len(piece)
        yield piece


def _refuse_blob(response: httpx.Response, sha256: str) -> None:
    if response.status_code == 410:
        raise LeaseLost("GET of a blob answered 410")
    if response.status_code == 404:
        raise JobFailed(f"The job's input {sha256[:12]}… is not in the blob store.", code="blob_not_found")
    _check(response)


def _mismatch(sha256: str) -> JobFailed:
    return JobFailed(f"The blob store gave other bytes for {sha256[:12]}….", code="blob_mismatch", retryable=True)


def _send(
    http: httpx.Client, method: str, path: str, *, token: str, headers: Mapping[str, str] | None = None, **kwargs: Any
) -> httpx.Response:
    try:
        return http.request(method, path, headers={"Authorization": f"Bearer {token}", **(headers or {})}, **kwargs)
    except httpx.HTTPError as error:
        raise Unreachable(f"{http.base_url} does not answer ({type(error).__name__}: {error})") from error


def _check(response: httpx.Response) -> httpx.Response:
    status = response.status_code
    if status == 507:
        raise StoreFull(f"{response.request.url.path} answered {status}: the blob store is full")
    if status == 413:
        raise TooLarge(f"{response.request.url.path} answered {status}: {response.text[:300]}")
    if status >= 500 or status in (409, 422, 429):
        raise Unreachable(f"{response.request.url.path} answered {status}")
    if status >= 300:
        raise Refused(f"{response.request.url.path} answered {status}: {response.text[:300]}")
    return response
