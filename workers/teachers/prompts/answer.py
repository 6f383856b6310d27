"""The prompt that asks a teacher for the answer of a json or text task, and how the answer is read.

What every input of a task shares comes first, so that a vendor's prompt cache serves it; the input follows inside a
fence. The `Task:`, `Answer:` and `Schema:` lines are one line each and are what the grammar teacher reads.
"""

import json
from dataclasses import dataclass, replace

from backend.domain.answers.json_schemas import normal_schema
from backend.domain.answers.json_values import BadAnswer, answer_text, parse_answer, strip_fence
from backend.domain.spec.check_words import rule_lines
from backend.domain.spec.parsing import (
    JsonOutput,
    LabelOutput,
    Spec,
    TextOutput,
)
from workers.teachers.prompts.candidate_and_label import (
    DATA_RULE,
    chat,
    fence,
    label_request,
    one_line,
    teacher_options,
)
from workers.teachers.protocol import CompletionRequest

ANSWER_JSON_ASK = "Answer with the JSON alone."
ANSWER_TEXT_ASK = "Answer with the text alone."

_SYSTEM = (
    "You do one task for one input after another. Answer as the task says and with nothing else: no explanation, no "
    f"preamble, no Markdown. {DATA_RULE}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """`text` is what a student is trained on and compared with; `value` the decoded answer of a json task, the text
    itself of a text task. Neither is checked against the schema yet: that is `answer_checks`."""

    text: str
    value: object


def answer_request(spec: Spec, text: str, *, n: int, temperature: float, seed: int | None) -> CompletionRequest:
    """Ask `n` times for the answer to `text`. The spec's output is json or text."""
    output = answer_output(spec)
    ask = ANSWER_JSON_ASK if isinstance(output, JsonOutput) else ANSWER_TEXT_ASK
    shared = [*answer_head(spec), "Message:"]
    return CompletionRequest(
        messages=chat(_SYSTEM, [*shared, fence(text), ask], n_shared=len("\n".join(shared))),
        n=n,
        temperature=temperature,
        max_tokens=output.max_tokens,
        seed=seed,
        logprobs=True,
        item=text,
        answer_schema=_schema_text(output) if isinstance(output, JsonOutput) else "",
        **teacher_options(spec, "answer"),
    )


def answer_output(spec: Spec) -> JsonOutput | TextOutput:
    if not isinstance(spec.output, JsonOutput | TextOutput):
        raise TypeError("a label task is answered by label_request")
    return spec.output


def answer_head(spec: Spec) -> list[str]:
    """The lines that say what is asked: the same for every input of a task."""
    output = answer_output(spec)
    lines = [f"Task: {one_line(spec.task)}", f"Answer: {output.type}"]
    if isinstance(output, JsonOutput):
        lines.append("Schema: " + _schema_text(output))
    else:
        lines.append(f"Longest answer: {output.max_chars} characters")
    return [*lines, *rule_lines(output.checks)]


def _schema_text(output: JsonOutput) -> str:
    return json.dumps(normal_schema(output.answer_schema), ensure_ascii=False, separators=(",", ":"))


def parse_answer_choice(spec: Spec, choice_text: str) -> ReadAnswer | None:
    """The answer that a choice holds, or None for none. White space at the ends is forgiven, around JSON also one
    Markdown code fence; JSON inside a sentence is no answer."""
    reply = choice_text.strip()
    output = answer_output(spec)
    if isinstance(output, TextOutput):
        return ReadAnswer(text=reply, value=reply) if reply else None
    try:
        value = parse_answer(strip_fence(reply))
    except BadAnswer:
        return None
    return ReadAnswer(text=answer_text(value, output.answer_schema), value=value)


def item_request(
    spec: Spec, text: str, *, n: int, temperature: float, seed: int | None, n_before: int = 0
) -> CompletionRequest:
    """The request that asks a teacher about one input `n` times, after `n_before` answers: for its label, or for its
    answer if the task has no labels."""
    ask = label_request if isinstance(spec.output, LabelOutput) else answer_request
    return replace(ask(spec, text, n=n, temperature=temperature, seed=seed), n_before=n_before)
