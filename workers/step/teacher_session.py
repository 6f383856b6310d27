"""The client for a spec's teacher and the price of its model, made from the spec's rows and secrets."""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError

from backend.blobs import get_blob
from backend.compiles.endpoint_lessons import keep_lessons, lessons_of
from backend.compiles.models import TEACHER_KEY, TeacherKey, Upload
from backend.domain.dialects.dialect import Dialect, Lesson, thought_room, with_lessons
from backend.domain.dialects.reward_apis import RewardApi, reward_api
from backend.domain.errors import InvalidSpec, NotFound, OurError, Problem
from backend.domain.ids import Prefix, decode_id
from backend.domain.money.pricing import TeacherPrice
from backend.domain.money.teacher_prices import TeacherPrices
from backend.domain.spec.defaults import dialect_of
from backend.domain.spec.parsing import Spec, judged_by, reward_of, rewarded_by
from backend.domain.spec.parsing import Teacher as TeacherSpec
from backend.tenants.isolation import tenant_scope
from backend.tenants.sealing import unseal
from workers.step.durable import CompileRun
from workers.step.teacher_profile import caps_of, identity_of
from workers.teachers.openai_compatible.batch_endpoint import BatchEndpoint
from workers.teachers.openai_compatible.reward_model import RewardModel
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.protocol import Teacher
from workers.teachers.replay import ReplayTeacher
from workers.teachers.vllm.teacher import VllmTeacher

log = logging.getLogger("kolm.teachers")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherSession:
    """A teacher ready to be asked, with the price of its model."""

    teacher: Teacher
    price: TeacherPrice

    def batches(self, run: CompileRun) -> BatchEndpoint:
        """The batch endpoint of a teacher in batch mode."""
        terms = dialect_of(run.spec.teacher.model_copy(update={"model": self.teacher.identity.model})).batch
        if terms is None or not isinstance(self.teacher, OpenAICompatibleTeacher):
            raise OurError("This teacher has no batch endpoint.", code="internal_error")  # the spec's rules refuse it
        return BatchEndpoint(self.teacher, terms, is_lost=lambda: run.stop.is_lost)

    @property
    def identity(self) -> str:
        """provider/model@revision: the draft cache's key."""
        who = self.teacher.identity
        return f"{who.name}@{who.revision or 'unknown'}"


def learnt_dialect(tenant_id: UUID, teacher: TeacherSpec) -> Dialect:
    """The dialect of a spec's teacher, after what its endpoint has refused or shown before."""
    if not teacher.base_url:
        return dialect_of(teacher)
    with tenant_scope(tenant_id):
        return with_lessons(dialect_of(teacher), lessons_of(tenant_id, teacher.base_url, teacher.model))


def learnt_thoughts(tenant_id: UUID, teacher: TeacherSpec) -> int:
    """Tokens that each answer of a spec's teacher needs for thoughts, by what is learnt of it."""
    return thought_room(learnt_dialect(tenant_id, teacher), teacher.effort, teacher.thought_tokens)


@contextmanager
def teacher_session(run: CompileRun, *, model: str | None = None) -> Iterator[TeacherSession]:
    """The teacher of a compile's spec for the length of a block; `model` as in `open_teacher`."""
    with open_teacher(run.tenant_id, run.spec, run.prices, model=model) as session:
        yield session


@contextmanager
def reward_session(run: CompileRun) -> Iterator[TeacherSession]:
    """The model that gives the rewards of a compile's spec, which has one, for the length of a block."""
    with open_rewarder(run.tenant_id, run.spec, run.prices) as session:
        yield session


@contextmanager
def open_rewarder(tenant_id: UUID, spec: Spec, prices: TeacherPrices) -> Iterator[TeacherSession]:
    """The model that gives a spec's rewards, at its price among `prices`, for the length of a block."""
    asked, price = reward_of(spec), prices.reward
    if asked is None or price is None:
        raise ValueError("the spec names no reward")
    api = None if asked.is_chat else reward_api(asked.api)
    with open_teacher(tenant_id, rewarded_by(spec), TeacherPrices(main=price), api=api) as session:
        yield session


@contextmanager
def judge_session(run: CompileRun) -> Iterator[TeacherSession]:
    """The model that judges drafts in the place of a compile's teacher, which its spec names, for the length of a
    block."""
    with open_judge(run.tenant_id, run.spec, run.prices) as session:
        yield session


@contextmanager
def open_judge(tenant_id: UUID, spec: Spec, prices: TeacherPrices) -> Iterator[TeacherSession]:
    """The spec's own judge of drafts, at its price among `prices`, for the length of a block."""
    if spec.draft_cache.judge is None or prices.judge is None:
        raise ValueError("the spec names no judge of drafts")
    with open_teacher(tenant_id, judged_by(spec), TeacherPrices(main=prices.judge)) as session:
        yield session


@contextmanager
def open_teacher(
    tenant_id: UUID,
    spec: Spec,
    prices: TeacherPrices,
    *,
    model: str | None = None,
    api: RewardApi | None = None,
) -> Iterator[TeacherSession]:
    """The spec's teacher for the length of a block, at the prices that its compile keeps; `model` asks another model of
    the same provider (the spec's fallback), `api` one that gives rewards. What its endpoint refuses in the block is
    kept for the next one."""
    wanted = spec.teacher if model is None else spec.teacher.model_copy(update={"model": model})
    with tenant_scope(tenant_id):
        api_key = _api_key(tenant_id, spec)
        recording = _recording(tenant_id, spec)
        lessons = lessons_of(tenant_id, wanted.base_url, wanted.model) if wanted.base_url else ()
    teacher = make_teacher(
        wanted,
        api_key=api_key,
        recording=recording,
        allowed_private_origins=frozenset(settings.KOLM_ALLOW_PRIVATE_TEACHERS),
        grammar_url=settings.KOLM_GRAMMAR_URL,
        lessons=lessons,
        api=api,
    )
    try:
        yield TeacherSession(teacher=teacher, price=prices.of(wanted.model))
    finally:
        teacher.close()
        _keep(tenant_id, wanted, teacher, lessons)


def _keep(tenant_id: UUID, spec: TeacherSpec, teacher: Teacher, known: tuple[Lesson, ...]) -> None:
    """Store what was learnt since. A database that is away costs a few refusals, which nobody bills, the next time."""
    if spec.base_url is None or not isinstance(teacher, OpenAICompatibleTeacher) or teacher.lessons == known:
        return
    try:
        with tenant_scope(tenant_id):
            keep_lessons(tenant_id, spec.base_url, spec.model, teacher.lessons)
    except DatabaseError as error:
        log.warning("what a teacher's endpoint refused could not be stored: %s", type(error).__name__)


def make_teacher(
    spec: TeacherSpec,
    *,
    api_key: str | None,
    recording: bytes | None,
    allowed_private_origins: frozenset[str],
    grammar_url: str,
    lessons: tuple[Lesson, ...] = (),
    api: RewardApi | None = None,
) -> Teacher:
    """Make a client for the teacher that a spec names, of an unsealed key and a fetched recording. `grammar_url` is the
    deployment's own grammar server up to /v1; only the `grammar` provider may reach it when it is not among
    `allowed_private_origins`. Raises InvalidSpec where the spec lacks what its provider needs."""
    if spec.provider == "replay":
        if recording is None:
            raise _lacks("recording", "Replay needs the id of an uploaded recording.")
        return ReplayTeacher(recording, model=spec.model)
    if spec.provider == "grammar":
        return OpenAICompatibleTeacher(
            identity=identity_of(spec),
            base_url=grammar_url,
            api_key=None,
            caps=caps_of(spec),
            dialect=dialect_of(spec),
            concurrency=spec.concurrency,
            allowed_origins=frozenset({grammar_url}),
        )
    if spec.base_url is None:
        raise _lacks("base_url", "An openai_compatible teacher needs a base_url, up to /v1.")
    kind: Any = VllmTeacher if spec.engine == "vllm" else OpenAICompatibleTeacher
    if api is not None:
        kind = partial(RewardModel, api=api)
    made: Teacher = kind(
        identity=identity_of(spec),
        base_url=spec.base_url,
        api_key=api_key,
        caps=caps_of(spec),
        dialect=dialect_of(spec),
        lessons=lessons,
        effort=spec.effort,
        thought_tokens=spec.thought_tokens,
        concurrency=spec.concurrency,
        allowed_origins=allowed_private_origins,
    )
    return made


def seed_of(run: CompileRun, *parts: object) -> int:
    """A 31-bit seed that depends on the spec's seed and the place in the pipeline, never on the compile: the same spec
    asks the same questions."""
    text = "/".join(str(part) for part in (run.spec.sampling.seed, run.spec.name, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def _api_key(tenant_id: UUID, spec: Spec) -> str | None:
    if spec.teacher.api_key is None:
        return None
    row = TeacherKey.objects.filter(tenant_id=tenant_id, id=decode_id(Prefix.TEACHER_KEY, spec.teacher.api_key)).first()
    if row is None:
        raise NotFound(
            f"There is no teacher key {spec.teacher.api_key}; it was deleted. Store the key again and start "
            "a new compile with the new id.",
            code="unknown_teacher_key",
        )
    return unseal(tenant_id, bytes(row.sealed), purpose=TEACHER_KEY).decode()


def _recording(tenant_id: UUID, spec: Spec) -> bytes | None:
    if spec.teacher.recording is None:
        return None
    row = Upload.objects.filter(tenant_id=tenant_id, id=decode_id(Prefix.UPLOAD, spec.teacher.recording)).first()
    if row is None:
        raise NotFound(
            f"There is no upload {spec.teacher.recording}; upload it again and start a new compile with the new id.",
            code="unknown_upload",
        )
    return get_blob(tenant_id, row.sha256)


def _lacks(field: str, message: str) -> InvalidSpec:
    problem = Problem(pointer=f"/teacher/{field}", message=message, code="missing")
    return InvalidSpec(message, problems=(problem,))
