"""OpenAI's Files and Batches on loopback, as strict as the documentation says: beside the chat completions of a vendor
of `strict_vendors`, by which each line of a batch is judged. A test says what becomes of a job (`finish`), and where
the connection breaks."""

import contextlib
import email.parser
import email.policy
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.workers.teachers.strict_vendors import Endpoint, Script, Vendor

KEY = "sk-batch"
Reply = tuple[int, Any]


@dataclass(slots=True)
class Job:
    id: str
    input_file: str
    metadata: Mapping[str, str]
    status: str = "validating"
    output: list[Any] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)
    failed_with: str = ""
    n_looks: int = 0


@dataclass(slots=True)
class BatchVendor:
    """`finish` is asked for each line of a job once it runs: None answers it, anything else is the line that comes back
    instead, or "" for none at all. `n_logprobs` is how many tokens a long answer has whose log-probs are
    asked for. `ends_as` is how jobs end, after `looks` looks. `breaks` names exchanges ("POST
    /batches") whose next answer is lost after they were carried out."""

    chat: Endpoint
    key: str = KEY
    looks: int = 1
    ends_as: str = "completed"
    fails_with: str = ""
    most_lines: int = 50_000
    finish: Callable[[int, Mapping[str, Any]], Any] = lambda nth, line: None
    files: dict[str, bytes] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    refuses: dict[str, Reply] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    n_live: int = 0
    base_url: str = ""
    n_logprobs: int = 0

    def handle(self, method: str, path: str, query: Mapping[str, list[str]], headers: Any, body: bytes) -> Reply:
        self.seen.append(f"{method} {path}")
        if headers.get("authorization") != f"Bearer {self.key}":
            # https://platform.openai.com/docs/guides/error-codes
            return _error(401, "Incorrect API key provided.", "invalid_api_key")
        for begin, reply in self.refuses.items():
            if f"{method} {path}".startswith(begin):
                return reply
        match method, path.strip("/").split("/"):
            case "POST", ["chat", "completions"]:
                self.n_live += 1
                return self.chat.answer(json.loads(body))
            case "POST", ["files"]:
                return self._upload(headers, body)
            case "GET", ["files", id, "content"] if id in self.files:
                return 200, self.files[id]
            case "POST", ["batches"]:
                return self._create(json.loads(body))
            case "GET", ["batches"]:
                return self._list(query)
            case "GET", ["batches", id] if job := self._job(id):
                return 200, self._look(job)
            case "POST", ["batches", id, "cancel"] if job := self._job(id):
                return self._cancel(job)
        return _error(404, f"Invalid URL ({method} /v1{path})")

    def _upload(self, headers: Any, body: bytes) -> Reply:
        head = f"content-type: {headers['content-type']}\r\n\r\n".encode()
        parts = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
        fields = {part.get_param("name", header="content-disposition"): part for part in parts.iter_parts()}
        if fields["purpose"].get_content().strip() != "batch":
            return _error(400, "'purpose' is a required property")
        id = f"file-{len(self.files)}"
        self.files[id] = fields["file"].get_payload(decode=True)
        return 200, {"id": id, "object": "file", "purpose": "batch", "bytes": len(self.files[id])}

    def _create(self, body: dict[str, Any]) -> Reply:
        # https://platform.openai.com/docs/api-reference/batch/create
        if body["completion_window"] != "24h" or body["endpoint"] != "/v1/chat/completions":
            return _error(400, "Currently only `24h` is supported.")
        metadata = body.get("metadata", {})
        assert len(metadata) <= 16
        assert all(len(key) <= 64 and len(value) <= 512 for key, value in metadata.items())
        job = Job(f"batch_{len(self.jobs)}", body["input_file_id"], metadata)
        job.failed_with = self.fails_with or self._fault(self.files[job.input_file])
        self.jobs.append(job)
        return 200, self._shown(job)

    def _fault(self, data: bytes) -> str:
        """Validation is done after the job was made, and fails the job: its codes are those of
        https://github.com/stdapi-ai/stdapi.ai/issues/240, and of https://github.com/openai/openai-python/issues/2084."""
        lines = [json.loads(row) for row in data.splitlines()]
        if not lines:
            return "empty_file"
        if len({line["custom_id"] for line in lines}) < len(lines):
            return "duplicate_custom_id"
        if any(set(line) != {"custom_id", "method", "url", "body"} or len(line["custom_id"]) > 64 for line in lines):
            return "invalid_json_line"
        if any(line["url"] != "/v1/chat/completions" or line["method"] != "POST" for line in lines):
            return "url_mismatch"
        if len({line["body"]["model"] for line in lines}) > 1:
            return "model_mismatch"
        return "token_limit_exceeded" if len(lines) > self.most_lines else ""

    def _list(self, query: Mapping[str, list[str]]) -> Reply:
        limit, after = int(query.get("limit", ["20"])[0]), query.get("after", [""])[0]
        rows = list(reversed(self.jobs))
        start = next((i + 1 for i, job in enumerate(rows) if job.id == after), 0)
        page = rows[start : start + limit]
        more = start + limit < len(rows)
        return 200, {"object": "list", "data": [self._shown(job) for job in page], "has_more": more}

    def _job(self, id: str) -> Job | None:
        return next((job for job in self.jobs if job.id == id), None)

    def _look(self, job: Job) -> dict[str, Any]:
        if job.status in ("validating", "in_progress"):
            job.n_looks += 1
            job.status = "in_progress"
            if job.failed_with:
                job.status = "failed"
            elif job.n_looks > self.looks:
                self.run(job, self.ends_as)
        elif job.status == "cancelling":
            self.run(job, "cancelled")
        return self._shown(job)

    def run(self, job: Job, ends_as: str) -> None:
        """Answer the lines of a job, those of an expired or cancelled one as far as `finish` lets."""
        for nth, row in enumerate(self.files[job.input_file].splitlines()):
            line = json.loads(row)
            instead = self.finish(nth, line)
            if instead is None:
                status, body = self.chat.answer(line["body"])
                if line["body"].get("logprobs") and line["body"].get("max_completion_tokens", 0) >= self.n_logprobs > 0:
                    _show_logprobs(body, self.n_logprobs)
                response = {"status_code": status, "request_id": f"req_{nth}", "body": body}
                done = {"id": f"batch_req_{nth}", "custom_id": line["custom_id"], "response": response, "error": None}
                (job.output if status == 200 else job.errors).append(done)
            elif isinstance(instead, list):
                job.output.extend(instead)
            elif instead:
                job.errors.append(instead)
        job.status = ends_as

    def _cancel(self, job: Job) -> Reply:
        if job.status not in ("validating", "in_progress"):
            return _error(409, "Cannot cancel a batch that is not in progress.")
        job.status = "cancelling"
        return 200, self._shown(job)

    def _shown(self, job: Job) -> dict[str, Any]:
        n = len(self.files[job.input_file].splitlines())
        has_ended = job.status in ("completed", "expired", "cancelled")
        ids = {}
        for name, rows in (("output", job.output), ("error", job.errors)):
            if has_ended and rows:
                ids[name] = f"{job.id}-{name}"
                texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
                self.files[ids[name]] = ("\n".join(texts) + "\n").encode()
        errors = [{"code": job.failed_with, "message": "no", "param": None, "line": None}]
        return {
            "id": job.id,
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "input_file_id": job.input_file,
            "status": job.status,
            "output_file_id": ids.get("output"),
            "error_file_id": ids.get("error"),
            "errors": {"object": "list", "data": errors} if job.status == "failed" else None,
            "request_counts": {"total": n, "completed": len(job.output), "failed": len(job.errors)},
            "metadata": job.metadata,
        }


def _show_logprobs(body: Any, n: int) -> None:
    """Give each choice the rows of `n` tokens, as long as OpenAI's are."""
    row = {"token": " parcel", "logprob": -0.31326168, "bytes": list(b" parcel"), "top_logprobs": []}
    assert 105 <= len(json.dumps(row)) <= 130
    for choice in body["choices"]:
        choice["logprobs"] = {"content": [row] * n, "refusal": None}
    body["usage"]["completion_tokens"] = n * len(body["choices"])


def expired(line: Mapping[str, Any], code: str = "batch_expired") -> dict[str, Any]:
    """The line of a request that was never run, as https://platform.openai.com/docs/guides/batch has it."""
    message = "This request could not be executed before the completion window expired."
    error = {"code": code, "message": message}
    return {"id": "batch_req_x", "custom_id": line["custom_id"], "response": None, "error": error}


def _error(status: int, message: str, code: str | None = None) -> Reply:
    return status, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


@contextlib.contextmanager
def serving_batches(vendor: Vendor, script: Script) -> Iterator[BatchVendor]:
    """A running vendor with its batch endpoint, for the length of the block."""
    batches = BatchVendor(Endpoint(vendor, script))
    guard = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self._answer("POST")

        def do_GET(self) -> None:
            self._answer("GET")

        def _answer(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            address = urlsplit(self.path)
            path = address.path.removeprefix("/v1")
            with guard:
                status, value = batches.handle(method, path, parse_qs(address.query), self.headers, body)
                is_lost = f"{method} {path}" in batches.breaks
                if is_lost:
                    batches.breaks.remove(f"{method} {path}")
            if is_lost:
                self.close_connection = True
                return
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="batch-vendor")
    thread.start()
    batches.base_url = batches.chat.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield batches
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
