"""A file, looked at: the rows that would be uploaded under a mapping, with their profile. One function that console,
command and client all call, so that they say the same of the same file."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from backend.domain.source_data.columns import ColumnMapping, check_mapping, infer_mapping
from backend.domain.source_data.conversations import SYSTEM, RecordShape, as_rows, find_shape
from backend.domain.source_data.examples import SourceExample, examples_of
from backend.domain.source_data.profile import DataProfile, TaskKind, profile_of
from backend.domain.source_data.records import Record, Records, RowProblem, UnreadableSource

MOST_TASK_CHARS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`columns` are those that may be mapped, `preview` the first rows as they came. `task_hint` is the system prompt
    that most chats share, or empty; `rows` are what an upload would hold."""

    records: Records
    shape: RecordShape
    columns: tuple[str, ...]
    preview: tuple[Record, ...]
    mapping: ColumnMapping
    profile: DataProfile
    rows: tuple[SourceExample, ...]
    notes: tuple[str, ...]
    task_hint: str = ""


def look_at(
    records: Records, *, mapping: ColumnMapping | None = None, kind: TaskKind | None = None, n_preview: int = 5
) -> Source:
    """Look at a file's records under a mapping, or under the one that its columns suggest. Raises InvalidInput."""
    shape = find_shape(records.records)
    rows, columns, problems = _table(records, shape)
    if not rows and (unread := (*records.problems, *problems)):
        first = unread[0]
        excerpt = f": {first.excerpt[:80]}" if first.excerpt else ""
        raise UnreadableSource(f"No row of the file can be read. Row {first.number} {first.reason}{excerpt}")
    mapping = infer_mapping(columns, rows) if mapping is None else check_mapping(mapping, columns)
    examples = examples_of(rows, mapping, label_names=records.label_names)
    profile, usable = profile_of(examples, problems=(*records.problems, *problems), kind=kind)
    return Source(
        records=records,
        shape=shape,
        columns=columns,
        preview=tuple(rows[:n_preview]),
        mapping=mapping,
        profile=profile,
        rows=usable,
        notes=(*records.notes, *examples.notes, *_sample_note(records)),
        task_hint=_common_system(rows) if shape is not RecordShape.TABLE else "",
    )


def _table(records: Records, shape: RecordShape) -> tuple[Sequence[Record], tuple[str, ...], tuple[RowProblem, ...]]:
    if shape is RecordShape.TABLE:
        return records.records, records.columns, ()
    converted = list(as_rows(records.records, shape))
    rows = [row for row in converted if isinstance(row, Record)]
    names: dict[str, None] = {}
    for row in rows[:200]:
        names.update(dict.fromkeys(row.values))
    return rows, tuple(names) or records.columns, tuple(row for row in converted if isinstance(row, RowProblem))


def _sample_note(records: Records) -> tuple[str, ...]:
    if not records.is_sample:
        return ()
    return (f"a sample of {len(records.records):,} of the file's {records.n_rows:,} rows, drawn evenly over it",)


def _common_system(rows: Sequence[Record]) -> str:
    prompts = Counter(str(row.values.get(SYSTEM) or "").strip() for row in rows)
    text, n = prompts.most_common(1)[0] if prompts else ("", 0)
    return text[:MOST_TASK_CHARS] if n > len(rows) * 0.8 else ""
