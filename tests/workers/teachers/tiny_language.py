"""A teacher whose every answer can be listed, behind HTTP and the production client: two slices that say similar things
with other weights, and one that is far from both."""

import contextlib
import dataclasses
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence

from backend.domain.drafts.vocabulary import StoredDraft
from backend.domain.money.pricing import TeacherPrice, price_book, teacher_price
from tests.backend.domain.drafts.draft_worlds import RULES, Path, answers, grammar_world
from workers.teachers.grammar.files import build_grammar
from workers.teachers.grammar.model import MODEL, GrammarModel
from workers.teachers.grammar.pcfg import END
from workers.teachers.grammar.server import serving
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.prompts.candidate_and_label import CANDIDATE_ASK
from workers.teachers.protocol import CompletionRequest, Message, Teacher, TeacherCaps, TeacherIdentity
from workers.teachers.verifiers.protocol import SamplingPolicy, VerificationContext

CAPS = TeacherCaps(logprobs=True, prompt_logprobs=True, processed_scores=True, prefix=True, max_top_logprobs=1024)
SOURCES = {name: uuid.UUID(int=n) for n, name in enumerate(("old", "new", "far", "flat"), start=1)}


def small_model(revision: str = "small") -> GrammarModel:
    slices = {name: {"start": "{" + name + "}", "label": "x"} for name in SOURCES}
    return GrammarModel(build_grammar(RULES, slices, revision=revision))


@contextlib.contextmanager
def small_teacher(caps: TeacherCaps = CAPS) -> Iterator[OpenAICompatibleTeacher]:
    with serving(small_model()) as server:
        teacher = OpenAICompatibleTeacher(
            identity=TeacherIdentity(provider="grammar", model=MODEL),
            base_url=server.url,
            api_key=None,
            caps=caps,
            allowed_origins=frozenset({server.url}),
        )
        try:
            yield teacher
        finally:
            teacher.close()


def asks(slice_name: str) -> tuple[Message, ...]:
    lines = ["Task: route", "Labels: x", f"Slice: {slice_name}", "Hint: it", "Label: x", CANDIDATE_ASK]
    return (Message(role="user", content="\n".join(lines)),)


def policy(temperature: float = 1.0, top_k: int | None = None) -> SamplingPolicy:
    return SamplingPolicy(temperature=temperature, top_k=top_k)


def asked(slice_name: str, how: SamplingPolicy, *, max_tokens: int = 64) -> VerificationContext:
    request = CompletionRequest(
        messages=asks(slice_name),
        max_tokens=max_tokens,
        temperature=how.temperature,
        top_k=how.top_k,
        logprobs=True,
    )
    return VerificationContext(
        request=request, policy=how, old_messages={source: asks(name) for name, source in SOURCES.items()}
    )


def drafts_of(teacher: Teacher, slice_name: str, how: SamplingPolicy, n: int, *, seed: int) -> list[StoredDraft]:
    """What the teacher writes for a slice, as the cache keeps it."""
    request = dataclasses.replace(asked(slice_name, how).request, n=min(n, 1000), seed=seed)
    found: list[StoredDraft] = []
    for at in range(0, n, 1000):
        answer = teacher.complete(dataclasses.replace(request, seed=seed + at), deadline_s=30)
        found += [
            StoredDraft(
                draft_id=uuid.UUID(int=10**6 + at + i),
                source_id=SOURCES[slice_name],
                text=choice.text,
                n_tokens=choice.n_tokens,
                distance=0.2,
                tokens=choice.tokens,
                token_logprobs=choice.token_logprobs,
            )
            for i, choice in enumerate(answer.choices)
        ]
    return found[:n]


def language(slice_name: str, how: SamplingPolicy) -> dict[str, float]:
    """{text: probability} of everything the teacher can answer."""
    world = grammar_world(slice_name, temperature=how.temperature, top_k=how.top_k)
    return {text_of(path): p for path, p in answers(world).items()}


def text_of(path: Path) -> str:
    return "".join(token for token in path if token != END)


def small_price() -> TeacherPrice:
    return teacher_price(price_book(), MODEL, None)


def counted(texts: Sequence[str]) -> Mapping[Path, int]:
    found: dict[Path, int] = {}
    for text in texts:
        found[(text,)] = found.get((text,), 0) + 1
    return found


def expected(told: Mapping[str, float]) -> dict[Path, float]:
    return {(text,): p for text, p in told.items()}


def seeded(seed: int = 7) -> random.Random:
    return random.Random(seed)
