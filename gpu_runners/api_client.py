"""The public REST API as the `kolm` command uses it: JSON, problem+json made into sentences, and a compile's event
stream that survives lost connections."""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import httpx

from gpu_runners.client import backoff_s

TERMINAL = frozenset({"succeeded", "gate_failed", "failed", "canceled", "expired"})
_POLL_S = 2.0
_GIVE_UP_S = 300.0  # without one answer from the API


class ApiError(Exception):
    """`str()` is ready to be shown: what happened, where in the document, and what to do."""

    def __init__(self, message: str, *, status: int = 0, code: str = "", retryable: bool = False) -> None:
        super().__init__(message)
        self.status, self.code, self.retryable = status, code, retryable


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    type: str
    seq: int
    data: dict[str, Any]


class Api:
    def __init__(self, *, url: str, key: str | None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=httpx.Timeout(30.0))

    def get(self, path: str) -> Any:
        return _checked(self._send("GET", path)).json()

    def delete(self, path: str) -> Any:
        return _checked(self._send("DELETE", path)).json()

    def post(self, path: str, body: Any, *, idempotency_key: str, attempts: int = 4) -> Any:
        """Safe to repeat, and repeated: a second arrival of the same key is answered with the first one's result."""
        for attempt in range(attempts):
            try:
                return _checked(
                    self._send("POST", path, json=body, headers={"Idempotency-Key": idempotency_key})
                ).json()
            except ApiError as error:
                if not error.retryable or attempt == attempts - 1:
                    raise
                time.sleep(backoff_s(attempt + 1, rng=random.Random()))
        raise AssertionError("unreachable")

    def download(self, path: str) -> bytes:
        return _checked(self._send("GET", path)).content

    def events(self, compile_id: str) -> Iterator[Event]:
        """Every event once and in order, until the compile has ended. A broken stream is taken up where it broke; where
        a proxy lets no stream through, the list is polled. Raises ApiError after five minutes without an answer."""
        path, after, failures, heard_at = f"/v1/compiles/{compile_id}/events", 0, 0, time.monotonic()
        while True:
            try:
                for event in self._stream(path, after) if failures < 3 else self._page(path, after):
                    after, failures, heard_at = event.seq, 0, time.monotonic()
                    yield event
                    if event.type.removeprefix("compile.") in TERMINAL:
                        return
                if self.get(f"/v1/compiles/{compile_id}")["status"] in TERMINAL:
                    yield from (event for event in self._page(path, after))
                    return
                heard_at = time.monotonic()
            except ApiError as error:
                if not error.retryable or time.monotonic() - heard_at > _GIVE_UP_S:
                    raise
                failures += 1
            time.sleep(_POLL_S if failures >= 3 else backoff_s(failures, rng=random.Random(), cap_s=_POLL_S))

    def _stream(self, path: str, after: int) -> Iterator[Event]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        try:
            with self._http.stream("GET", path, headers=headers, timeout=httpx.Timeout(10.0, read=45.0)) as response:
                if response.status_code != 200:
                    response.read()
                _checked(response)
                if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
                    raise ApiError("The API does not stream events.", retryable=True)
                yield from parse_sse(response.iter_lines())
        except httpx.HTTPError as error:
            raise _unreachable(self._http, error) from error

    def _page(self, path: str, after: int) -> Iterator[Event]:
        while True:
            page = self.get(f"{path}?after={after}")
            for row in page["data"]:
                after = row["seq"]
                yield Event(type=row["type"], seq=after, data=row["data"])
            if not page["has_more"]:
                return

    def _send(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **kwargs)
        except httpx.HTTPError as error:
            raise _unreachable(self._http, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()


def parse_sse(lines: Iterator[str]) -> Iterator[Event]:
    """The events of a `text/event-stream` whose data is `{"type", "seq", "data"}`; comments, `retry` and data of other
    shapes are passed over."""
    data: list[str] = []
    for line in lines:
        field, _, value = line.partition(":")
        if line == "" and data:
            row = json.loads("\n".join(data))
            data = []
            if isinstance(row, dict) and {"type", "seq", "data"} <= set(row):
                yield Event(type=row["type"], seq=row["seq"], data=row["data"])
        elif field == "data":
            data.append(value.removeprefix(" "))


def _checked(response: httpx.Response) -> httpx.Response:
    if response.status_code < 400:
        return response
    problem: dict[str, Any] = {}
    try:
        found = response.json()
        problem = found if isinstance(found, dict) else {}
    except ValueError:
        pass
    status = response.status_code
    lines = [str(problem.get("detail") or f"{response.request.url} answered {status}.")]
    for fault in problem.get("errors") or []:
        lines.append(f"  {fault.get('pointer') or '/'}: {fault.get('detail') or fault.get('message')}")
    if status == 401:
        lines.append("Set KOLM_API_KEY or --key to an API key of this deployment.")
    if problem.get("request_id"):
        lines.append(f"(request {problem['request_id']})")
    retryable = bool(problem.get("retryable", status in (429, 502, 503, 504)))
    raise ApiError("\n".join(lines), status=status, code=str(problem.get("code", "")), retryable=retryable)


def _unreachable(http: httpx.Client, error: Exception) -> ApiError:
    why = str(error) or type(error).__name__
    return ApiError(
        f"{http.base_url} does not answer ({why}). Is kolm up, and --api or KOLM_API_URL right?", retryable=True
    )
