"""The values of a question to a judge about the drafts of a whole compile."""

from dataclasses import dataclass
from uuid import UUID

from backend.domain.dialects.dialect import Dialect, Option, ResponseFormat
from backend.domain.drafts.vocabulary import StoredDraft
from backend.domain.spec.defaults import dialect_of
from backend.domain.spec.parsing import Spec
from workers.teachers.judges.batches import NO_DRAFT
from workers.teachers.prompts.candidate_and_label import head, teacher_options
from workers.teachers.prompts.judge import answer_room, numbers_schema
from workers.teachers.protocol import CompletionRequest, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A text that cannot belong where it is planted; `draft_id` where it is a stored draft."""

    text: str
    draft_id: UUID = NO_DRAFT


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSlice:
    """One slice and what is asked about it. `key` is its position in the compile, `lines` those of its prompt that say
    the slice. `negatives` are texts of another label of this compile, near ones first (of a task without labels: far
    drafts, or none); `positives` are candidates that the teacher just wrote for this slice."""

    key: int
    lines: tuple[str, ...]
    drafts: tuple[StoredDraft, ...] = ()
    negatives: tuple[Control, ...] = ()
    positives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeQuestion:
    """The question to a judge. `head` are the lines that say the task, `slices` all slices of the compile, those
    without drafts too, in the same order each time: they open every request. `has_schema`: the teacher's endpoint can
    be held to a JSON schema, or to JSON. The rest are fields of the requests (`judge_question` has them from a
    spec)."""

    head: tuple[str, ...]
    slices: tuple[JudgedSlice, ...]
    seed: int | None = None
    cache_salt: str | None = None
    cache_key: str = ""
    thought_tokens: int = 0
    effort: str = ""
    has_schema: bool = False

    def request(self, messages: tuple[Message, ...], n: int, name: str) -> CompletionRequest:
        """The request whose answer names some of the numbers 1 ... `n`, in an object under `name`."""
        return CompletionRequest(
            messages=messages,
            n=1,
            temperature=0.0,
            max_tokens=answer_room(n),
            seed=self.seed,
            cache_salt=self.cache_salt,
            cache_key=self.cache_key,
            thought_tokens=self.thought_tokens,
            effort=self.effort,
            answer_schema=numbers_schema(name) if self.has_schema else "",
        )


def judge_question(
    spec: Spec, slices: tuple[JudgedSlice, ...], *, seed: int | None, cache_salt: str | None = None
) -> JudgeQuestion:
    """The question to the spec's own teacher. It may think as long as it may about a candidate."""
    options = teacher_options(spec, "draft_judge")
    return JudgeQuestion(
        head=tuple(head(spec)),
        slices=slices,
        seed=seed,
        cache_salt=cache_salt,
        cache_key=options["cache_key"],
        thought_tokens=options["thought_tokens"],
        effort=options["effort"],
        has_schema=holds_to_json(dialect_of(spec.teacher)),
    )


def holds_to_json(dialect: Dialect) -> bool:
    """Tell whether an endpoint's answer can be held to a schema or to JSON. A tool is not asked for: its definition
    alone is longer than most answers here."""
    forms = (ResponseFormat.SCHEMA, ResponseFormat.OBJECT)
    return Option.RESPONSE_FORMAT in dialect.takes and dialect.response_format in forms
