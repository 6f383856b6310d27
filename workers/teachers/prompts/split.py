"""The question that is asked when a slice holds two groups of texts: what would you call each half?

The answer is read by `backend.domain.selection.slice_split.read_names`. A grammar cannot answer it, nor can a
recording.
"""

from collections.abc import Sequence

from backend.domain.planning.teacher_estimates import NAMING_TOKENS
from backend.domain.selection.slice_split import MAX_PART_CHARS, MAX_PART_HINT_CHARS
from backend.domain.spec.parsing import SliceSpec, Spec
from workers.teachers.prompts.candidate_and_label import DATA_RULE, fence, head, one_line
from workers.teachers.protocol import CompletionRequest, Message

MAX_SHOWN_CHARS = 500  # of each text that stands for its half

_SYSTEM = (
    "You name the parts of a task. Answer with one JSON object and nothing else: no explanation, no code fence. "
    f"{DATA_RULE}"
)
_ASK = (
    "The slice above is to become two. Name what sets each group apart, and write one sentence on what its messages "
    "are about, for an author who will write more of them. Answer with exactly this JSON, the first group first:\n"
    '{"halves": [{"name": "...", "hint": "..."}, {"name": "...", "hint": "..."}]}\n'
    f"A name has at most {MAX_PART_CHARS} characters and no '|'; a hint is one line of at most {MAX_PART_HINT_CHARS}."
)


def split_request(
    spec: Spec, slice_: SliceSpec, *, first: Sequence[str], second: Sequence[str], seed: int
) -> CompletionRequest:
    """Ask for a name and a hint for each of two groups, shown by their most central texts."""
    lines = [*head(spec), f"Slice: {one_line(slice_.name)}", f"Hint: {one_line(slice_.hint)}"]
    for ordinal, texts in (("First", first), ("Second", second)):
        lines.append(f"{ordinal} group of messages:")
        lines.extend(fence(text[:MAX_SHOWN_CHARS]) for text in texts)
    lines.append(_ASK)
    return CompletionRequest(
        messages=(Message(role="system", content=_SYSTEM), Message(role="user", content="\n".join(lines))),
        n=1,
        temperature=0.0,
        max_tokens=NAMING_TOKENS,
        seed=seed,
    )
