"""Counts that a person looks at before a compile: what the answers are and their shares, what repeats, what contradicts
itself, what leaks into the test set, and what cannot be used, each reason once."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from backend.domain.source_data.examples import SourceExample, SourceExamples, fold_labels, is_json_object
from backend.domain.source_data.records import RowProblem
from backend.domain.source_data.sampling import sample_of
from backend.domain.spec.fields import MAX_LABELS
from backend.domain.spec.gold import HELDOUT, SIDES, LeakageReport, leakage, normalise

SHOWN_EXAMPLES = 3
SHOWN_CONFLICTS = 5
FEW_OF_A_LABEL = 2
FEW_EXAMPLES = 40
# Leaks are looked for in an even sample of so many characters, and so many pairs are compared: a second or two and some
# 200 MB, whatever the file holds.
_LEAK_CHARS, _LEAK_PAIRS = 1_000_000, 300_000
_MOST_LABEL_CHARS = 80


class TaskKind(StrEnum):
    LABEL = "label"
    JSON = "json"
    TEXT = "text"
    INPUTS = "inputs"  # no answers: captures


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCount:
    name: str
    n: int
    share_ppm: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemGroup:
    """All rows with one reason: how many, and the first few."""

    reason: str
    n: int
    examples: tuple[RowProblem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One text with several answers, each with the rows that say so."""

    input: str
    answers: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataProfile:
    """A file's worth for a compile. Counts are of usable rows; `n_duplicates` of rows whose text and answer were
    there before, `n_conflicting` of rows whose text has another answer elsewhere."""

    kind: TaskKind
    n_usable: int
    labels: tuple[LabelCount, ...]
    n_duplicates: int
    n_conflicting: int
    conflicts: tuple[Conflict, ...]
    n_heldout: int
    leaks: LeakageReport | None
    problems: tuple[ProblemGroup, ...]
    median_chars: int
    longest_chars: int
    spellings: Mapping[str, str]
    warnings: tuple[str, ...]

    @property
    def n_unusable(self) -> int:
        return sum(group.n for group in self.problems)


def profile_of(
    examples: SourceExamples, *, problems: Iterable[RowProblem] = (), kind: TaskKind | None = None
) -> tuple[DataProfile, tuple[SourceExample, ...]]:
    """The profile, and the rows that an upload would hold (labels spelled alike are one). `problems` are those of
    reading the file; `kind` overrules what the answers look like."""
    kind = kind or kind_of(examples.rows)
    rows, spellings = fold_labels(examples.rows) if kind is TaskKind.LABEL else (examples.rows, {})
    lengths = sorted(len(row.input) for row in rows)
    conflicts, n_conflicting = _conflicts(rows)
    labels = _labels(rows) if kind is TaskKind.LABEL else ()
    held = [row for row in rows if row.split is not None and SIDES.get(row.split) == HELDOUT]
    leaks = _leaks(rows, held) if held else None
    seen = {(normalise(row.input), row.output) for row in rows}
    profile = DataProfile(
        kind=kind,
        n_usable=len(rows),
        labels=labels,
        n_duplicates=len(rows) - len(seen),
        n_conflicting=n_conflicting,
        conflicts=conflicts,
        n_heldout=len(held),
        leaks=leaks,
        problems=group_problems((*problems, *examples.problems)),
        median_chars=lengths[len(lengths) // 2] if lengths else 0,
        longest_chars=lengths[-1] if lengths else 0,
        spellings=spellings,
        warnings=tuple(_warnings(kind, labels, rows, n_conflicting, leaks)),
    )
    return profile, rows


def kind_of(rows: Sequence[SourceExample]) -> TaskKind:
    """Tell JSON objects, few short values that repeat and texts apart."""
    outputs = [row.output for row in rows if row.output]
    if not outputs:
        return TaskKind.INPUTS
    if sum(map(is_json_object, outputs)) > len(outputs) * 0.9:
        return TaskKind.JSON
    names = {" ".join(output.split()).casefold() for output in outputs}
    is_short = all(len(output) <= _MOST_LABEL_CHARS and "\n" not in output for output in outputs)
    return TaskKind.LABEL if is_short and len(names) <= max(2, len(outputs) * 0.5) else TaskKind.TEXT


def group_problems(problems: Iterable[RowProblem]) -> tuple[ProblemGroup, ...]:
    """One entry a reason, the most frequent first. Reasons that differ in a quoted word alone are one."""
    grouped: defaultdict[str, list[RowProblem]] = defaultdict(list)
    for problem in problems:
        grouped[re.sub(r"“[^”]*”", "“…”", problem.reason)].append(problem)
    groups = (
        ProblemGroup(reason=reason, n=len(rows), examples=tuple(rows[:SHOWN_EXAMPLES]))
        for reason, rows in grouped.items()
    )
    return tuple(sorted(groups, key=lambda group: (-group.n, group.reason)))


def _labels(rows: Sequence[SourceExample]) -> tuple[LabelCount, ...]:
    counts = Counter(row.output or "" for row in rows)
    first = {row.output: row.input for row in reversed(rows)}
    return tuple(
        LabelCount(name=name, n=n, share_ppm=round(n * 1_000_000 / len(rows)), example=first[name][:160])
        for name, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def _conflicts(rows: Sequence[SourceExample]) -> tuple[tuple[Conflict, ...], int]:
    answers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    texts: dict[str, str] = {}
    for row in rows:
        if row.output is not None:
            key = normalise(row.input)
            answers[key][row.output] += 1
            texts.setdefault(key, row.input)
    several = {key: counts for key, counts in answers.items() if len(counts) > 1}
    first = [
        Conflict(input=texts[key][:160], answers=tuple(counts.most_common(4)))
        for key, counts in list(several.items())[:SHOWN_CONFLICTS]
    ]
    return tuple(first), sum(counts.total() for counts in several.values())


def _leaks(rows: Sequence[SourceExample], held: Sequence[SourceExample]) -> LeakageReport:
    numbers = {row.number for row in held}
    n_chars = sum(len(row.input) for row in rows)
    most = len(rows) if n_chars <= _LEAK_CHARS else len(rows) * _LEAK_CHARS // n_chars
    looked_at = sample_of(rows, max(1, most))
    train = [row.input for row in looked_at if row.number not in numbers]
    return leakage(train, [row.input for row in looked_at if row.number in numbers], most_pairs=_LEAK_PAIRS)


def unfit_labels(profile: DataProfile) -> str:
    """The reason why no compile can begin with these labels, and what its sender may do; "" where one can begin."""
    labels = profile.labels
    if profile.kind is TaskKind.LABEL and len(labels) == 1:
        return (
            f"Every answer is “{labels[0].name[:40]}”, so there is nothing to decide. Add rows with other answers to"
            " the file, or choose another column as the answer, and add it again."
        )
    if len(labels) <= MAX_LABELS:
        return ""
    rare = labels[MAX_LABELS - 1 :]
    n_rows = sum(label.n for label in rare)
    return (
        f"This data has {len(labels):,} labels, and a compile has at most {MAX_LABELS}. Group the rare ones in the"
        f" file: the {len(rare):,} rarest, such as “{rare[0].name[:40]}”, are {n_rows:,} of {profile.n_usable:,} rows"
        " together and may be called “other”, or be left out. If the answers are no labels, choose another column as"
        " the answer. Then add the file again."
    )


def _warnings(
    kind: TaskKind,
    labels: Sequence[LabelCount],
    rows: Sequence[SourceExample],
    n_conflicting: int,
    leaks: LeakageReport | None,
) -> Iterable[str]:
    if kind is TaskKind.INPUTS:
        yield "there is no column of answers: these are captures, and a compile needs examples with answers too"
    elif len(rows) < FEW_EXAMPLES:
        yield f"{len(rows)} usable examples are few: with fewer than {FEW_EXAMPLES} no gate can be measured"
    if len(labels) > MAX_LABELS:
        yield f"{len(labels):,} different labels: a spec has at most {MAX_LABELS}; merge the rare ones"
    if kind is TaskKind.LABEL and len(labels) == 1:
        yield f"every answer is “{labels[0].name[:40]}”: there is nothing to learn"
    rare = [label.name for label in labels if label.n < FEW_OF_A_LABEL]
    if rare:
        some = ", ".join(f"“{name[:40]}”" for name in rare[:3])
        yield f"{len(rare):,} label(s) have a single example and cannot be both trained and measured: {some}"
    if labels and all(label.name.lstrip("-").isdigit() for label in labels):
        yield "the labels are numbers: describe each in the spec, or the teacher cannot know what it means"
    if n_conflicting:
        yield f"{n_conflicting:,} rows have a text with another answer elsewhere: no model gets all of them right"
    if leaks is not None and leaks.n_heldout_touched:
        touched = leaks.n_heldout_touched
        some = "at least " if leaks.is_partial or leaks.n_train + leaks.n_heldout < len(rows) else ""
        yield f"{some}{touched:,} rows of the test part are, nearly, in the training part too: those train no model"
