"""The production teacher: any endpoint that speaks OpenAI's chat completions (vendors, vLLM, llama.cpp, our own
grammar server).

One call is one POST with `n` choices, inside one deadline that covers waiting for a slot, every attempt and the
pauses between them. A request that the endpoint refuses for one of its options is made again without it, or with what
the refusal asks for, and the next ones are made so from the start (`refusals`). What comes back is judged by `answers`;
what may be called at all is judged by `backend.outbound`. The API key lives in one attribute and goes into one header:
no message, repr or exception of this module carries it, nor any word of the server's answer.
"""

import contextlib
import functools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import httpx

from backend.domain.dialects.dialect import (
    ONE_REQUEST,
    Dialect,
    Lesson,
    Option,
    schema_digest,
    thought_room,
    with_lessons,
)
from backend.domain.dialects.faults import FAULT_TEXTS, MAY_PASS, TeacherFault
from backend.domain.dialects.table import UNKNOWN
from backend.outbound import (
    BodyCompressed,
    BodyTooLarge,
    OutboundCanceled,
    OutboundRefused,
    OutboundTimeout,
    Resolver,
    Watch,
    open_client,
    read_capped,
    system_resolver,
    watching,
)
from workers.teachers.openai_compatible import answers, endpoint_faults, refusals, retry
from workers.teachers.openai_compatible.bodies import chat_body, echo_body, score_prompt
from workers.teachers.openai_compatible.logprobs import BadAnswer
from workers.teachers.openai_compatible.statements import REFUSAL_CAP, read_statement
from workers.teachers.protocol import (
    RETRYABLE,
    Completion,
    CompletionRequest,
    ScoreRequest,
    TeacherCanceled,
    TeacherCaps,
    TeacherFailed,
    TeacherIdentity,
    Usage,
)
from workers.teachers.token_estimates import likely_input_tokens

T = TypeVar("T")

MakeBody = Callable[[Dialect], Mapping[str, Any]]

MAX_LESSONS_A_CALL = 16  # more than a request has options
MOST_REFUSED = 20  # texts in a row that a filter may refuse; more are a vendor that answers nothing any more
FEW_SPACES = 8  # what is left around an answer that was thought away
BODY_CAP = 2_000_000
BODY_CAP_PER_CHOICE = 64_000
_TOO_LARGE = "the request is too large for it"
_BROKEN_JSON = "it withholds an answer that is not the JSON it was asked for"
# the last try of a call whose answers were withheld as no JSON
_FREE_FORM = Lesson(option=Option.RESPONSE_FORMAT, scope=ONE_REQUEST)


class _Attempt(Exception):
    """One attempt failed. `usage` is what it may have cost."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
        refusal: tuple[int, bytes] | None = None,
        fault: TeacherFault | None = None,
        is_broken_json: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.fault = fault
        self.message = message
        self.retry_after_s = retry_after_s
        self.usage = usage
        self.refusal = refusal  # its status and body, where it may be about an option
        self.is_broken_json = is_broken_json

    @property
    def is_lasting(self) -> bool:
        return self.fault is not None and self.fault not in MAY_PASS


class OpenAICompatibleTeacher:
    """Thread-safe; `concurrency` calls are in flight at most. `rng` only spreads retries, it never touches an
    answer."""

    def __init__(
        self,
        *,
        identity: TeacherIdentity,
        base_url: str,
        api_key: str | None,
        caps: TeacherCaps,
        dialect: Dialect = UNKNOWN,
        lessons: Sequence[Lesson] = (),
        effort: str | None = None,
        thought_tokens: int | None = None,
        concurrency: int = 4,
        allowed_origins: frozenset[str] = frozenset(),
        resolver: Resolver = system_resolver,
        rng: random.Random | None = None,
    ) -> None:
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            # h11 would quote the whole value in its error
            raise TeacherFailed(
                "The teacher's API key holds characters that no key has; store it again, bare.",
                code="teacher_rejected",
                fault=TeacherFault.BAD_KEY,
            )
        self._identity = identity
        self._caps = caps
        self._dialect = dialect
        self._lessons = tuple(lessons)
        self._learning = threading.Lock()
        self._n_refused = 0  # texts in a row, by a filter
        self._effort = effort
        self._thought_tokens = thought_tokens
        self._base_url = base_url.rstrip("/")
        self._api_key = api_key
        self._slots = threading.BoundedSemaphore(concurrency)
        self._client = open_client(allowed_origins=allowed_origins, resolver=resolver, max_connections=concurrency)
        self._rng = rng or random.Random()

    def __repr__(self) -> str:
        return f"OpenAICompatibleTeacher({self._identity.provider}, {self._identity.model})"

    @property
    def identity(self) -> TeacherIdentity:
        return self._identity

    @property
    def caps(self) -> TeacherCaps:
        return self._caps

    @property
    def lessons(self) -> tuple[Lesson, ...]:
        """The lessons of this endpoint's refusals, now and before."""
        return self._lessons

    @property
    def dialect(self) -> Dialect:
        """The dialect after all lessons that hold for every request."""
        return with_lessons(self._dialect, (lesson for lesson in self._lessons if lesson.holds_for("")))

    def dialect_for(self, request: CompletionRequest) -> Dialect:
        """The dialect after the lessons that hold for a request."""
        return self._dialect_by(self._lessons, request)

    def _dialect_by(self, known: Sequence[Lesson], request: CompletionRequest) -> Dialect:
        schema = schema_digest(json.loads(request.answer_schema)) if request.answer_schema else ""
        return with_lessons(self._dialect, (lesson for lesson in known if lesson.holds_for(schema)))

    @property
    def thought_tokens(self) -> int:
        return thought_room(self.dialect, self._effort, self._thought_tokens)

    def body_of(self, request: CompletionRequest) -> Mapping[str, Any]:
        """The body that `complete` would send first."""
        return self._chat_body(request)(self.dialect_for(request))

    def close(self) -> None:
        self._client.close()

    def complete(
        self, request: CompletionRequest, *, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Completion:
        if request.prefix and not self._caps.prefix:
            raise TeacherFailed("This teacher does not go on from a begun answer.", code="teacher_rejected")
        watch = Watch(deadline_at=time.monotonic() + deadline_s, cancelled=cancelled)
        parse = functools.partial(answers.read_chat, request=request)
        make_body = self._chat_body(request)
        return self.answer_to(request, lambda: self._call("/chat/completions", make_body, request, watch, parse))

    def answer_to(self, request: CompletionRequest, call: Callable[[], "_Answered[answers.Answer]"]) -> Completion:
        """The completion of a call: what was answered, or nothing where a filter refused the text of the request: that
        is one text of many. Raises TeacherFailed."""
        try:
            got = call()
        except TeacherFailed as failed:
            if failed.fault is not TeacherFault.CONTENT or not self._is_one_text(is_refused=True):
                raise
            return Completion(
                choices=answers.no_answer(request).choices,
                usage=Usage(),
                n_attempts=failed.n_attempts,
                wasted=failed.usage or Usage(),
            )
        self._is_one_text(is_refused=False)
        self.check_thoughts(got.value, request, wasted=got.wasted, n_attempts=got.n_attempts)
        return completion_of(got)

    def _is_one_text(self, *, is_refused: bool) -> bool:
        """Count the refusals of content since the last answer; say whether they may still be about single texts."""
        with self._learning:
            self._n_refused = self._n_refused + 1 if is_refused else 0
            return self._n_refused <= MOST_REFUSED

    def _chat_body(self, request: CompletionRequest) -> MakeBody:
        """The effort is the teacher's, whatever is asked of it: a judge's question that is silent about it would be
        thought about for as long as the vendor likes, in the room of the spec's effort."""
        asked = replace(request, effort=request.effort or self._effort or "")
        return lambda dialect: chat_body(asked, self._identity.model, self._caps, dialect)

    def check_thoughts(
        self, answer: answers.Answer, request: CompletionRequest, *, wasted: Usage | None = None, n_attempts: int = 1
    ) -> None:
        """Raise TeacherFailed when every choice reached its limit without a word: what filled it are thoughts, shown or
        not. That a model thinks is learnt by it: the next call leaves room. `wasted` is what the attempts before this
        answer may have cost. White space that fills the limit is no thought: a schema allows it."""
        if not all(
            choice.finish_reason == "length" and len(choice.text) <= FEW_SPACES and not choice.text.strip()
            for choice in answer.choices
        ):
            return
        self.learn([Lesson(option=Option.THOUGHTS)])
        raise TeacherFailed(
            f"The teacher {self._identity.model} thought until its limit of {request.max_tokens} tokens and "
            f"{request.thought_tokens} for thoughts, and gave no answer; raise teacher.thought_tokens, or lower "
            "teacher.effort.",
            code="teacher_only_thought",
            usage=_sum(wasted, answer.usage),
            n_attempts=n_attempts,
        )

    def score(
        self, request: ScoreRequest, *, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Completion:
        """One prefill through `/v1/completions` with `echo`; nothing is generated."""
        if not self._caps.prompt_logprobs:
            raise TeacherFailed(
                "This teacher does not tell the log-probability of a given text.", code="teacher_rejected"
            )
        body = echo_body(request, self._identity.model, self._caps)  # of our own server, which takes all of it
        watch = Watch(deadline_at=time.monotonic() + deadline_s, cancelled=cancelled)
        parse = functools.partial(answers.read_echo_score, request=request, prompt=score_prompt(request))
        return completion_of(self._call("/completions", lambda _: body, answers.as_completion(request), watch, parse))

    def _call(
        self, path: str, make_body: MakeBody, request: CompletionRequest, watch: Watch, parse: Callable[[bytes], T]
    ) -> "_Answered[T]":
        """Attempts until one is answered and parsed, or the deadline, or a failure that would only repeat itself. A
        refusal that teaches something is followed by the next attempt at once, and counts as none; what was learnt is
        kept once an attempt without it was answered."""
        started = time.monotonic()
        wasted: Usage | None = None
        last = _Attempt("teacher_timeout", "no slot was free to call it")
        n_attempts = n_lasting = 0  # failures that were billed, or that the next attempt would not mend
        learnt: list[Lesson] = []
        try:
            while n_attempts - len(learnt) < retry.MAX_ATTEMPTS:
                n_attempts += 1
                known = (*self._lessons, *learnt)  # what the body is made by: other calls learn meanwhile
                dialect = self._dialect_by(known, request)
                body = make_body(dialect)
                try:
                    with self._slot(watch), watching(watch):
                        request_id, raw = self._post(path, body, request)
                    value = _parse_answer(parse, raw, request, has_key=self._api_key is not None)
                except _Attempt as failed:
                    lesson = None
                    if failed.refusal is not None and len(learnt) < MAX_LESSONS_A_CALL:
                        lesson = refusals.lesson_of(*failed.refusal, body, dialect, known)
                    if lesson is not None:
                        learnt.append(lesson)
                        continue
                    last, wasted = failed, _sum(wasted, failed.usage)
                    n_lasting += failed.usage is not None or failed.is_lasting
                    if failed.is_broken_json and "response_format" in body and n_lasting >= retry.MAX_BILLED_FAILURES:
                        learnt.append(_FREE_FORM)
                        continue
                    pause = retry.delay_s(n_attempts - 1, failed.retry_after_s, self._rng)
                    is_hopeless = failed.code not in RETRYABLE or n_lasting >= retry.MAX_BILLED_FAILURES
                    if is_hopeless or watch.deadline_at - time.monotonic() <= pause:
                        break
                    _sleep(pause, watch)
                else:
                    self.learn(learnt)
                    ms = round((time.monotonic() - started) * 1000)
                    return _Answered(value, request_id, ms, n_attempts, wasted or Usage())
        except OutboundCanceled:
            raise TeacherCanceled(wasted) from None
        except TeacherCanceled as canceled:
            raise TeacherCanceled(_sum(wasted, canceled.usage)) from None
        except OutboundTimeout:
            pass  # while waiting for a slot or a pause: `last` says why
        tried = f" after {n_attempts} attempts" if n_attempts > 1 else ""
        raise TeacherFailed(
            f"The teacher {self._identity.model} failed{tried}: {last.message}.",
            code=last.code,
            usage=wasted,
            n_attempts=n_attempts,
            fault=last.fault,
        )

    def learn(self, learnt: Sequence[Lesson]) -> None:
        """Add what a call learnt of more than its own request; another call may have learnt the same meanwhile."""
        with self._learning:
            known = (*self._lessons, *(lesson for lesson in learnt if lesson.scope != ONE_REQUEST))
            self._lessons = tuple(dict.fromkeys(known))

    @contextlib.contextmanager
    def _slot(self, watch: Watch) -> Iterator[None]:
        while not self._slots.acquire(timeout=watch.slice_s()):
            pass
        try:
            yield
        finally:
            self._slots.release()

    def _post(self, path: str, body: Mapping[str, Any], request: CompletionRequest) -> tuple[str | None, bytes]:
        """One attempt; raises _Attempt, TeacherCanceled. From the first byte sent on, a failure may have been
        billed."""
        cap = BODY_CAP + BODY_CAP_PER_CHOICE * request.n

        def read(response: httpx.Response) -> tuple[str | None, bytes]:
            return response.headers.get("x-request-id"), read_capped(response, cap=cap)

        return self._send("POST", path, read, most=_most(request), json=body)

    def exchange(
        self, method: str, path: str, read: Callable[[httpx.Response], T], *, watch: Watch, **content: Any
    ) -> T:
        """Return what `read` makes of the answer to a request that generates nothing, such as one about a batch. Raises
        TeacherFailed after the first failure, without usage; TeacherCanceled."""
        try:
            with watching(watch):
                return self._send(method, path, read, most=None, **content)
        except _Attempt as failed:
            raise TeacherFailed(
                f"The teacher {self._identity.model} failed at {path.split('/')[1]}: {failed.message}.",
                code=failed.code,
                n_attempts=1,
            ) from None

    def _send(
        self, method: str, path: str, read: Callable[[httpx.Response], T], *, most: Usage | None, **content: Any
    ) -> T:
        headers = {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        try:
            with self._client.stream(method, self._base_url + path, headers=headers, **content) as response:
                _check_status(response, has_key=self._api_key is not None, most=most)
                return read(response)
        except OutboundRefused as refused:
            raise _Attempt("teacher_rejected", refused.message.rstrip("."), fault=TeacherFault.ADDRESS) from None
        except BodyTooLarge as large:
            fault = TeacherFault.COMPRESSED if isinstance(large, BodyCompressed) else None
            raise _Attempt("teacher_too_large", str(large), usage=most, fault=fault) from None
        except OutboundTimeout:
            raise _Attempt("teacher_timeout", "it did not finish its answer in time", usage=most) from None
        except OutboundCanceled:
            raise TeacherCanceled(most) from None
        except httpx.ConnectTimeout:
            raise _Attempt("teacher_timeout", "no connection to it could be made in time") from None
        except httpx.ConnectError as unconnected:
            fault = endpoint_faults.fault_of_connection(unconnected)
            message = "no connection to it could be made" if fault is None else FAULT_TEXTS[fault].finding
            raise _Attempt("teacher_unreachable", message, fault=fault) from None
        except (httpx.RemoteProtocolError, httpx.DecodingError):
            raise _Attempt("teacher_unreachable", "it broke off in the middle of its answer", usage=most) from None
        except httpx.HTTPError as broken:
            message = f"the connection to it broke ({type(broken).__name__})"
            raise _Attempt("teacher_unreachable", message, usage=most) from None


@dataclass(frozen=True, slots=True)
class _Answered(Generic[T]):
    value: T
    request_id: str | None
    latency_ms: int
    n_attempts: int
    wasted: Usage


def completion_of(got: _Answered[answers.Answer]) -> Completion:
    return Completion(
        choices=got.value.choices,
        usage=got.value.usage,
        provider_request_id=got.request_id,
        latency_ms=got.latency_ms,
        n_attempts=got.n_attempts,
        wasted=got.wasted,
        revision=got.value.system_fingerprint,
    )


def _check_status(response: httpx.Response, *, has_key: bool, most: Usage | None) -> None:
    """Raise _Attempt for any status but 200; a refusal is read as far as it tells a fault or may teach something. One
    of an answer, not of the request, may have been billed."""
    status = response.status_code
    if status == 200:
        return
    wait = retry.parse_retry_after(response.headers.get("retry-after"), datetime.now(UTC))
    raw = _read_refusal(response) if status in endpoint_faults.JUDGED | refusals.LEARNT_FROM else b""
    if read_statement(raw).is_broken_json:
        raise _Attempt("teacher_protocol", _BROKEN_JSON, usage=most, is_broken_json=True)
    kind = response.headers.get("content-type", "")
    fault = endpoint_faults.fault_of(status, raw, content_type=kind, has_key=has_key)
    if status == 429 and fault is None:
        raise _Attempt("teacher_rate_limited", "it answers 429, too many requests", retry_after_s=wait)
    refusal = (status, raw) if status in refusals.LEARNT_FROM else None
    if retry.is_retried(status) and status != 429:
        broken = TeacherFault.SERVER_ERROR if status >= 500 else None
        message = f"it answers with status {status}"
        raise _Attempt("teacher_unreachable", message, retry_after_s=wait, refusal=refusal, fault=broken)
    if fault is None:
        raise _Attempt("teacher_rejected", _TOO_LARGE if status == 413 else f"it answers with status {status}")
    raise _Attempt("teacher_rejected", f"{FAULT_TEXTS[fault].finding} ({status})", refusal=refusal, fault=fault)


def _read_refusal(response: httpx.Response) -> bytes:
    try:
        return read_capped(response, cap=REFUSAL_CAP)
    except BodyTooLarge:
        return b""


def _parse_answer(parse: Callable[[bytes], T], raw: bytes, request: CompletionRequest, *, has_key: bool) -> T:
    try:
        return parse(raw)
    except BadAnswer as wrong:
        if not answers.is_no_completion(raw):
            raise _Attempt("teacher_protocol", str(wrong), usage=_most(request)) from None
        raise _no_completion(raw, str(wrong), request, has_key=has_key) from None


def _no_completion(raw: bytes, wrong: str, request: CompletionRequest, *, has_key: bool) -> _Attempt:
    """The failure of a 200 that is something else: a refusal inside it is one, and generated nothing."""
    if read_statement(raw).is_broken_json:
        return _Attempt("teacher_protocol", _BROKEN_JSON, usage=_most(request), is_broken_json=True)
    status = endpoint_faults.status_within(raw)
    if status is None:
        fault = endpoint_faults.fault_of_answer(raw)
        usage = None if fault is TeacherFault.HTML else _most(request)  # no model writes a page of a web server
        return _Attempt("teacher_protocol", wrong, usage=usage, fault=fault)
    refused = endpoint_faults.fault_of(status, raw, has_key=has_key)
    if status == 429 and refused is None:
        return _Attempt("teacher_rate_limited", "it answers 200 with an error 429, too many requests")
    if retry.is_retried(status) and refused is None:
        message = "it answers 200 with an error of its own"
        return _Attempt("teacher_unreachable", message, fault=TeacherFault.SERVER_ERROR)
    fault = refused or TeacherFault.OTHER_REFUSAL
    refusal = (status, raw) if status in refusals.LEARNT_FROM else None
    message = f"{FAULT_TEXTS[fault].finding} (200 with an error)"
    return _Attempt("teacher_rejected", message, refusal=refusal, fault=fault)


def _most(request: CompletionRequest) -> Usage:
    """The most that an attempt may have cost that was sent but not understood: the estimated prompt, and every token
    that it could write."""
    return Usage(input_tokens=likely_input_tokens(request), output_tokens=request.most_output_tokens, estimated=True)


def _sum(a: Usage | None, b: Usage | None) -> Usage | None:
    if a is None or b is None:
        return a or b
    return Usage(
        input_tokens=a.input_tokens + b.input_tokens,
        output_tokens=a.output_tokens + b.output_tokens,
        cached_tokens=a.cached_tokens + b.cached_tokens,
        cache_write_tokens=a.cache_write_tokens + b.cache_write_tokens,
        thought_tokens=a.thought_tokens + b.thought_tokens,
        estimated=a.estimated or b.estimated,
        disputed=a.disputed or b.disputed,
    )


def _sleep(seconds: float, watch: Watch) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, watch.slice_s()))
