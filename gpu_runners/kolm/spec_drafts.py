"""`kolm.spec_from(data)`: a spec to begin from, with the rows that it is about and what they are worth."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .documents import Unreadable

if TYPE_CHECKING:
    from backend.domain.source_data.source import Source

SHOWN_LABELS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecDraft:
    """`text` is the spec as YAML with comments, `spec` the same as plain objects, `rows` what `file` holds. Give it to
    `client.compiles.create`, or `save` it, change it and compile the file."""

    text: str
    spec: dict[str, Any]
    rows: Sequence[dict[str, str]]
    file: str
    part: str
    source: "Source"

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the spec, and its rows beside it under the name that it has for them. Raises Unreadable."""
        place = Path(path)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows)
        try:
            (place.parent / self.file).write_text(lines, encoding="utf-8")
            place.write_text(self.text, encoding="utf-8")
        except OSError as error:
            raise Unreadable(f"{place} cannot be written: {error.strerror or error}.") from None
        return place

    def _repr_html_(self) -> str:
        from backend.domain.number_words import percent

        profile = self.source.profile
        labels = "".join(
            f"<tr><td>{escape(label.name)}</td><td style='text-align:right'>{label.n:,}</td>"
            f"<td style='text-align:right'>{percent(label.share_ppm)}</td></tr>"
            for label in profile.labels[:SHOWN_LABELS]
        )
        warnings = "".join(f"<li>{escape(warning)}</li>" for warning in profile.warnings)
        return (
            f"<p>{profile.n_usable:,} usable rows, {profile.n_unusable:,} left out, {profile.n_duplicates:,} duplicates"
            f"</p><ul>{warnings}</ul><table>{labels}</table><pre>{escape(self.text)}</pre>"
        )


def spec_from(
    data: Any,
    *,
    task: str | None = None,
    name: str | None = None,
    input: str | Sequence[str] | None = None,
    output: str | None = None,
    group: str | None = None,
    split: str | None = None,
    kind: str | None = None,
    teacher: Mapping[str, Any] | None = None,
    budget_usd: float | Decimal = 5,
    descriptions: Mapping[str, str] | None = None,
) -> SpecDraft:
    """A draft of a spec for a DataFrame, a list of dicts, or a file (CSV, TSV, JSON lines of any shape, JSON, Parquet,
    Arrow, chats, exports of Langfuse and LangSmith, the folder of a Hugging Face data set).

    Columns that are not named are chosen by their names and content; `kind` (label, json, text) overrules what the
    answers look like. The teacher is the built-in demonstration where none is given. Nothing is sent anywhere. Raises
    Unreadable, InvalidRequest, TypeError."""
    from backend.domain.source_data.spec_draft import DEMO_TEACHER, DraftOptions, draft_spec, guess_task, slug_of

    from .source_files import look
    from .spec_files import rows_of

    source = look(data, input=input, output=output, group=group, split=split, kind=kind)
    slug = name or (slug_of(Path(data).name) if isinstance(data, str | PathLike) else "my-task")
    part = "captures" if source.profile.kind == "inputs" else "examples"
    file = f"{slug}.{part}.jsonl"
    options = DraftOptions(
        name=slug,
        task=task or guess_task(source),
        teacher=DEMO_TEACHER if teacher is None else teacher,
        budget_usd=Decimal(str(budget_usd)),
        file=file,
        descriptions=descriptions or {},
    )
    text = draft_spec(source, options)
    return SpecDraft(text=text, spec=_plain(text), rows=rows_of(source, part), file=file, part=part, source=source)


def _plain(text: str) -> dict[str, Any]:
    import yaml

    document: dict[str, Any] = yaml.safe_load(text)
    return document
