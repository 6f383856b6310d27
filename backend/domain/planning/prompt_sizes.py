"""The size of a compile's prompts, before any is written: the texts that a spec puts into them, laid out as
`workers.teachers.prompts` lays them out, and the fixed words around them. A test holds the two together.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from backend.domain.answers.json_schemas import normal_schema
from backend.domain.planning.token_counts import BYTES_PER_TOKEN, Counting, count_tokens
from backend.domain.spec.check_words import rule_lines
from backend.domain.spec.defaults import effective_slices, label_names
from backend.domain.spec.inputs import SliceSpec
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput, LabelOutput, TextOutput

CHAT_TOKENS = 8  # of two messages' frames
MAX_EXEMPLAR_CHARS = 1000
_BAR = "~~~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The size of what a kind of prompt always says: its system message and its last line."""

    words: int
    bytes: int


CANDIDATE = Fixed(words=52 + 17, bytes=303 + 97)
INPUT = Fixed(words=57 + 17, bytes=324 + 97)  # a candidate of a task without labels
LABEL = Fixed(words=43 + 5, bytes=253 + 28)
ANSWER = Fixed(words=47 + 5, bytes=263 + 27)
ENGLISH_BYTES_PER_TOKEN = 4.5  # of these sentences, by a model's tokenizer


def counting_of(spec: Spec) -> Counting:
    """The way in which the spec's teacher counts its tokens."""
    kinds = {"grammar": Counting.WORDS, "replay": Counting.BYTES}
    return kinds.get(spec.teacher.provider, Counting.MODEL)


def candidate_tokens(spec: Spec, part: SliceSpec, by: Counting) -> int:
    """Tokens of the question for candidates of a slice."""
    lines = [*_head(spec), f"Slice: {_one_line(part.name)}", f"Hint: {_one_line(part.hint)}"]
    lines += [f"Label: {_one_line(part.label)}"] if part.label is not None else []
    if part.exemplars:
        shown = [line for text in part.exemplars for line in (_BAR, text[:MAX_EXEMPLAR_CHARS], _BAR)]
        lines += ["Examples of the tone, not to be copied:", *shown]
    return _tokens(CANDIDATE if isinstance(spec.output, LabelOutput) else INPUT, lines, by)


def mean_candidate_tokens(spec: Spec, by: Counting) -> int:
    """The same of all slices on the mean, by their shares: so are their calls."""
    parts = effective_slices(spec)
    total = sum(part.share for part in parts)
    return round(sum(part.share * candidate_tokens(spec, part, by) for part in parts) / total)


def most_candidate_tokens(spec: Spec) -> int:
    """The longest question with its frames, in tokens of four bytes."""
    return CHAT_TOKENS + max(candidate_tokens(spec, part, Counting.BYTES) for part in effective_slices(spec))


def answer_prompt_tokens(spec: Spec, by: Counting, *, input_tokens: int) -> int:
    """Tokens of the question for a label or an answer, with an input of so many tokens. A tool comes on top."""
    lines = [*_head(spec), *_definitions(spec), "Message:", _BAR, _BAR]
    return _tokens(LABEL if isinstance(spec.output, LabelOutput) else ANSWER, lines, by) + input_tokens


def most_answer_tokens(spec: Spec, *, input_tokens: int) -> int:
    """The same with its frames, in tokens of four bytes."""
    return CHAT_TOKENS + answer_prompt_tokens(spec, Counting.BYTES, input_tokens=input_tokens)


def _tokens(fixed: Fixed, lines: Sequence[str], by: Counting) -> int:
    text = "\n".join(lines)
    if by is Counting.WORDS:  # a line's end is within a word
        return CHAT_TOKENS + fixed.words + round(count_tokens(text, by)) - 1
    if by is Counting.BYTES:
        return -(-fixed.bytes // BYTES_PER_TOKEN) + round(count_tokens(text, by))  # without frames
    return CHAT_TOKENS + round(fixed.bytes / ENGLISH_BYTES_PER_TOKEN + count_tokens(text, by))


def _head(spec: Spec) -> list[str]:
    task = f"Task: {_one_line(spec.task)}"
    match spec.output:
        case LabelOutput():
            return [task, "Labels: " + " | ".join(map(_one_line, label_names(spec)))]
        case JsonOutput() | TextOutput():
            return [task, f"Answer: {spec.output.type}"]


def _definitions(spec: Spec) -> list[str]:
    """The lines that say what the labels mean, or what an answer looks like."""
    if isinstance(spec.output, JsonOutput):
        schema = normal_schema(spec.output.answer_schema)
        shown = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        return [f"Schema: {shown}", *rule_lines(spec.output.checks)]
    if isinstance(spec.output, TextOutput):
        return [f"Longest answer: {spec.output.max_chars} characters", *rule_lines(spec.output.checks)]
    lines = []
    for label in spec.output.labels:
        hints = [part.hint for part in spec.slices if part.label == label.name and part.hint]
        meaning = "; ".join(text.rstrip(". ") for text in (label.description, *hints) if text)
        lines += [f"- {_one_line(label.name)}: {_one_line(meaning)}"] if meaning else []
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())
