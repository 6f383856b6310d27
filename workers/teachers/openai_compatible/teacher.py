"""The production teacher: any endpoint that speaks OpenAI's chat completions (vendors, vLLM, llama.cpp, our own
grammar server).

One call is one POST with `n` choices, inside one deadline that covers waiting for a slot, every attempt and the
pauses between them. A request that the endpoint refuses for one of its options is made again without it, or with what
the refusal asks for, and the next ones are made so from the start (`refusals`). One exchange is made, and its failure
read, by `attempts`; what comes back is judged by `answers`; what may be called at all by `backend.outbound`. The API
key lives in one attribute and goes into one header: no message, repr or exception carries it, nor any word of the
server's answer.
"""

import contextlib
import functools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from backend.domain.dialects.faults import TeacherFault
from backend.domain.dialects.table import UNKNOWN
from backend.outbound import (
    OutboundCanceled,
    OutboundTimeout,
    Resolver,
    Watch,
    open_client,
    system_resolver,
    watching,
)
from workers.teachers.openai_compatible import answers, refusals, retry
from workers.teachers.openai_compatible.attempts import (
    AttemptFailed,
    Reply,
    most_usage,
    parse_answer,
    read_reply,
    send,
)
from workers.teachers.openai_compatible.bodies import chat_body, echo_body, score_prompt
from workers.teachers.openai_compatible.slots import Slots
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

T = TypeVar("T")

MakeBody = Callable[[Dialect], Mapping[str, Any]]

MAX_LESSONS_A_CALL = 24  # more than a request has options and a token limit can be halved
MOST_REFUSED = 20  # texts in a row that a filter may refuse; more are a vendor that answers nothing any more
FEW_SPACES = 8  # what is left around an answer that was thought away
BODY_CAP = 2_000_000
BODY_CAP_PER_CHOICE = 64_000
# the last try of a call whose answers were withheld as no JSON
_FREE_FORM = Lesson(option=Option.RESPONSE_FORMAT, scope=ONE_REQUEST)


class OpenAICompatibleTeacher:
    """Thread-safe; `concurrency` calls are in flight at most, fewer after a 429 (`slots`). `rng` only spreads retries,
    it never touches an answer."""

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
        self._taken: frozenset[Option] = frozenset()  # options of requests that were answered
        self._n_refused = 0  # texts in a row, by a filter
        self._effort = effort
        self._thought_tokens = thought_tokens
        self._base_url = base_url.rstrip("/")
        self._api_key = api_key
        self._slots = Slots(concurrency)
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

    def dialect_for(self, request: CompletionRequest, known: Sequence[Lesson]) -> Dialect:
        """The dialect after those of the known lessons that hold for a request."""
        schema = schema_digest(json.loads(request.answer_schema)) if request.answer_schema else ""
        is_greedy = request.temperature == 0
        fitting = (lesson for lesson in known if lesson.holds_for(schema, is_greedy=is_greedy))
        return with_lessons(self._dialect, fitting)

    @property
    def thought_tokens(self) -> int:
        return thought_room(self.dialect, self._effort, self._thought_tokens)

    def body_of(self, request: CompletionRequest, known: Sequence[Lesson]) -> Mapping[str, Any]:
        """The body that `complete` would send first if these lessons were all that it knew."""
        return self._chat_body(request)(self.dialect_for(request, known))

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
        refusal that teaches something is followed by the next attempt at once, and counts as none; one that names no
        option is asked for again first. What was learnt is kept once an attempt without it was answered."""
        started = time.monotonic()
        wasted: Usage | None = None
        last = AttemptFailed("teacher_timeout", "no slot was free to call it")
        n_attempts = n_lasting = 0  # failures that were billed, or that the next attempt would not mend
        learnt: list[Lesson] = []
        asked_again: list[Mapping[str, Any]] = []
        try:
            while n_attempts - len(learnt) - len(asked_again) < retry.MAX_ATTEMPTS:
                n_attempts += 1
                known = (*self._lessons, *learnt)  # what the body is made by: other calls learn meanwhile
                dialect = self.dialect_for(request, known)
                body = make_body(dialect)
                try:
                    with self._slot(watch):
                        with watching(watch):
                            reply = self._post(path, body, request)
                        value = parse_answer(parse, reply, request, has_key=self._api_key is not None)
                except AttemptFailed as failed:
                    lesson = None
                    if failed.refusal is not None and len(learnt) < MAX_LESSONS_A_CALL:
                        lesson = refusals.lesson_of(*failed.refusal, body, dialect, known)
                    if lesson is not None and lesson.is_guess and body not in asked_again:
                        if not asked_again:
                            _sleep(retry.delay_s(0, None, self._rng), watch)
                        asked_again.append(body)
                        continue
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
                    self.learn(self._confirm(learnt, refusals.options_in(body, dialect)))
                    ms = round((time.monotonic() - started) * 1000)
                    return _Answered(value, reply.request_id, ms, n_attempts, wasted or Usage())
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

    def _confirm(self, learnt: Sequence[Lesson], taken: frozenset[Option]) -> list[Lesson]:
        """The lessons of a call that was answered with the options `taken`. Of guesses only the last one is shown by
        that, and not where a request with its option was answered before: then the endpoint refuses now and then."""
        with self._learning:
            before = self._taken
            self._taken |= taken
        confirmed = [lesson for lesson in learnt if not lesson.is_guess]
        last = learnt[-1] if learnt else None
        return [*confirmed, last] if last is not None and last.is_guess and last.option not in before else confirmed

    def learn(self, learnt: Sequence[Lesson]) -> None:
        """Add what a call learnt of more than its own request; another call may have learnt the same meanwhile."""
        with self._learning:
            known = (*self._lessons, *(lesson for lesson in learnt if lesson.scope != ONE_REQUEST))
            self._lessons = tuple(dict.fromkeys(known))

    @contextlib.contextmanager
    def _slot(self, watch: Watch) -> Iterator[None]:
        while (ticket := self._slots.acquire(timeout=watch.slice_s())) is None:
            pass
        try:
            yield
            self._slots.note_answer()
        except AttemptFailed as failed:
            if failed.code == "teacher_rate_limited":
                self._slots.slow_down(ticket)
            raise
        finally:
            self._slots.release()

    def _post(self, path: str, body: Mapping[str, Any], request: CompletionRequest) -> Reply:
        """One attempt; raises AttemptFailed, TeacherCanceled. From the first byte sent on, a failure may have been
        billed."""
        cap = BODY_CAP + BODY_CAP_PER_CHOICE * request.n
        read = functools.partial(read_reply, cap=cap)
        return self._send("POST", path, read, most=most_usage(request), json=body)

    def exchange(
        self, method: str, path: str, read: Callable[[httpx.Response], T], *, watch: Watch, **content: Any
    ) -> T:
        """Return what `read` makes of the answer to a request that generates nothing, such as one about a batch. Raises
        TeacherFailed after the first failure, without usage; TeacherCanceled."""
        try:
            with watching(watch):
                return self._send(method, path, read, most=None, **content)
        except AttemptFailed as failed:
            raise TeacherFailed(
                f"The teacher {self._identity.model} failed at {path.split('/')[1]}: {failed.message}.",
                code=failed.code,
                n_attempts=1,
            ) from None

    def _send(
        self, method: str, path: str, read: Callable[[httpx.Response], T], *, most: Usage | None, **content: Any
    ) -> T:
        url = self._base_url + path
        return send(self._client, method, url, read, api_key=self._api_key, most=most, **content)


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
