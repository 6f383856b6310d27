"""OpenAI's Files and Batches: a file of requests is uploaded, a job is made of it, asked about, and its files are read.

Each method is one exchange, or a few of which only the last counts. Nothing is retried that could make a second job:
whoever asked for one and heard nothing looks for it by its input file (`find`).
"""

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from backend.domain.dialects.batches import BatchTerms
from backend.outbound import BodyTooLarge, Watch, read_capped
from workers.teachers.openai_compatible.answers import parse_json
from workers.teachers.openai_compatible.logprobs import BadAnswer
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.protocol import TeacherFailed

T = TypeVar("T")

ASK_S = 60.0  # of one exchange; a job that was asked for longer ago than twice this is not on its way any more
FILE_S = 600.0
REPLY_CAP = 2_000_000
LINE_CAP = 4_000_000
PAGE, MAX_PAGES = 100, 20  # of jobs that are looked through for one's own
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
STATUSES = ENDED | {"validating", "in_progress", "finalizing", "cancelling"}
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")  # it becomes part of an address


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """A vendor's job. `reasons` say why one failed as a whole, before anything of it was run."""

    id: str
    status: str
    input_file: str
    output_file: str = ""
    error_file: str = ""
    n_total: int = 0
    n_done: int = 0
    n_failed: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED


class BatchEndpoint:
    """The batch endpoint of a teacher, on its terms. `is_lost` ends every wait."""

    def __init__(self, teacher: OpenAICompatibleTeacher, terms: BatchTerms, *, is_lost: Callable[[], bool]) -> None:
        self.teacher = teacher
        self.terms = terms
        self._is_lost = is_lost

    def upload(self, file: bytes) -> str:
        """The id of an uploaded input file. Doing it twice costs nothing."""
        part = ("batch.jsonl", file, "application/jsonl")
        reply = self._ask("POST", "/files", deadline_s=FILE_S, files={"file": part}, data={"purpose": "batch"})
        return _id_of(reply)

    def create(self, input_file: str, name: str) -> BatchJob:
        """A job made of an uploaded file. A failure may mean that it was made and nobody heard of it."""
        body = {
            "input_file_id": input_file,
            "endpoint": self.terms.url,
            "completion_window": self.terms.window,
            "metadata": {"kolm_batch": name},
        }
        return _job(self._ask("POST", "/batches", json=body))

    def find(self, input_file: str) -> BatchJob | None:
        """The job that was made of this file, if any was."""
        after = ""
        for _ in range(MAX_PAGES):
            query = {"limit": PAGE} | ({"after": after} if after else {})
            reply = self._ask("GET", "/batches", params=query)
            rows = reply.get("data")
            if not isinstance(rows, list):
                raise _unreadable()
            mine = [row for row in rows if isinstance(row, dict) and row.get("input_file_id") == input_file]
            if mine:
                return _job(mine[-1])
            if not rows or not reply.get("has_more"):
                break
            after = _id_of(rows[-1])
        return None

    def get(self, id: str) -> BatchJob:
        return _job(self._ask("GET", f"/batches/{_check_id(id)}"))

    def cancel(self, id: str) -> None:
        """Ask the vendor to stop a job; what it finished by then is billed all the same."""
        self._ask("POST", f"/batches/{_check_id(id)}/cancel")

    def rows(self, file: str, *, cap: int) -> Iterator[bytes]:
        """The lines of an output or error file, which is at most `cap` bytes; a line beyond LINE_CAP is none."""
        with tempfile.TemporaryFile() as kept:

            def read(response: httpx.Response) -> None:
                size = 0
                for chunk in response.iter_raw():
                    size += len(chunk)
                    if size > cap:
                        raise BodyTooLarge(f"a batch's file is longer than {cap} bytes")
                    kept.write(chunk)

            self._exchange("GET", f"/files/{_check_id(file)}/content", read, deadline_s=FILE_S)
            kept.seek(0)
            while row := kept.readline(LINE_CAP):
                is_whole = row.endswith(b"\n") or len(row) < LINE_CAP
                if is_whole and row.strip():
                    yield row
                while not is_whole and not row.endswith(b"\n"):
                    row = kept.readline(LINE_CAP)
                    if not row:
                        return

    def _ask(self, method: str, path: str, *, deadline_s: float = ASK_S, **content: Any) -> dict[str, Any]:
        raw = self._exchange(
            method, path, lambda response: read_capped(response, cap=REPLY_CAP), deadline_s=deadline_s, **content
        )
        try:
            return parse_json(raw)
        except BadAnswer:
            raise _unreadable() from None

    def _exchange(
        self, method: str, path: str, read: Callable[[httpx.Response], T], *, deadline_s: float, **content: Any
    ) -> T:
        watch = Watch(deadline_at=time.monotonic() + deadline_s, cancelled=self._is_lost)
        return self.teacher.exchange(method, path, read, watch=watch, **content)


def _job(value: dict[str, Any]) -> BatchJob:
    counts = value.get("request_counts")
    counts = counts if isinstance(counts, dict) else {}
    status = value.get("status")
    return BatchJob(
        id=_id_of(value),
        status=status if isinstance(status, str) and status in STATUSES else "in_progress",
        input_file=_maybe_id(value.get("input_file_id")),
        output_file=_maybe_id(value.get("output_file_id")),
        error_file=_maybe_id(value.get("error_file_id")),
        n_total=_count(counts.get("total")),
        n_done=_count(counts.get("completed")),
        n_failed=_count(counts.get("failed")),
        reasons=tuple(_reasons(value.get("errors"))),
    )


def _reasons(errors: object) -> Iterator[str]:
    rows = errors.get("data") if isinstance(errors, dict) else None
    for row in rows[:100] if isinstance(rows, list) else ():
        reason = row.get("code") if isinstance(row, dict) else None
        if isinstance(reason, str):
            yield reason[:64]


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return max(0, min(value, 10**9))


def _id_of(value: object) -> str:
    return _check_id(value.get("id") if isinstance(value, dict) else None)


def _maybe_id(value: object) -> str:
    return value if isinstance(value, str) and _ID.fullmatch(value) else ""


def _check_id(id: object) -> str:
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise _unreadable()
    return id


def _unreadable() -> TeacherFailed:
    return TeacherFailed(
        "The teacher's batch endpoint failed: its reply is not what the protocol promises.", code="teacher_protocol"
    )
