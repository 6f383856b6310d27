"""A short spec for looked-at data, as YAML with comments: what `kolm init`, the guided compile and
`kolm.spec_from` begin from. The defaults that it does not name are the service's own."""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from backend.domain.number_words import percent
from backend.domain.source_data.json_schema import infer_schema
from backend.domain.source_data.profile import DataProfile, LabelCount, TaskKind
from backend.domain.source_data.source import Source
from backend.domain.spec.fields import MAX_LABELS

DEMO_TEACHER: Mapping[str, Any] = {"provider": "grammar", "model": "kolm-grammar-1"}
ENOUGH_FOR_A_THIRD = 400  # rows; with fewer, half are held out, or the gate's interval is too wide to pass
WIDTH = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOptions:
    """`upload` is an upload's id; where it is empty, `file` names the file that the command uploads, `columns` what is
    what in it."""

    name: str
    task: str
    teacher: Mapping[str, Any]
    budget_usd: Decimal = Decimal(5)
    upload: str = ""
    file: str = ""
    columns: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)


def draft_spec(source: Source, options: DraftOptions) -> str:
    """The spec's text. Raises nothing: whether it is a valid spec is asked where specs are checked."""
    profile = source.profile
    lines = [
        f"# {_file_line(source, options)}",
        f"name: {options.name}",
        f"task: {_quote(options.task)}",
        "",
        *_output(source, options),
        "",
        *_examples(profile, options),
        "",
        *_teacher(options.teacher),
        "",
        "budget:",
        f"  usd: {options.budget_usd.normalize():f}  # a hard stop: nothing is spent beyond it",
    ]
    return "\n".join(lines) + "\n"


def slug_of(text: str) -> str:
    """A name for a task from a file's name or a sentence.

    >>> slug_of("Tickets (März 2026).csv")
    'tickets-marz-2026'
    """
    stem = re.sub(r"\.[A-Za-z0-9]{1,8}$", "", text)
    plain = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:64].strip("-") or "my-task"


def guess_task(source: Source) -> str:
    """A sentence to begin from; whoever knows the task writes a better one."""
    if source.task_hint:
        return source.task_hint
    what = _with_article(" and ".join(_PLAIN_NAMES.get(name, name) for name in source.mapping.inputs[:2]))
    output = source.mapping.output or "output"
    match source.profile.kind:
        case TaskKind.LABEL:
            names = [label.name for label in source.profile.labels]
            some = ", ".join(names[:6]) + (" and so on" if len(names) > 6 else "")
            return f"Decide the {'label' if output == 'output' else output} of {what}: {some}."
        case TaskKind.JSON:
            return f"Extract the {'fields' if output == 'output' else output} from {what}."
        case _:
            return f"Write the {'answer' if output == 'output' else output} to {what}."


_PLAIN_NAMES = {"input": "text"}  # a stored upload's column says nothing of the task


def _with_article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"


def _file_line(source: Source, options: DraftOptions) -> str:
    kind, n = source.profile.kind, source.profile.n_usable
    what = "inputs without answers" if kind is TaskKind.INPUTS else "examples"
    return _comment(
        f"{n:,} {what} from {options.file or 'your data'}. The defaults of all that is left out are the service's."
    )


def _output(source: Source, options: DraftOptions) -> list[str]:
    if source.profile.kind is TaskKind.JSON:
        schema = infer_schema([row.output or "" for row in source.rows])
        return ["output:", "  type: json", "  schema:  # from the answers: read it once", *_yaml(schema, "    ")]
    if source.profile.kind is TaskKind.LABEL:
        return _labels(source.profile.labels, options.descriptions)
    return ["output:", "  type: text"]


def _labels(labels: Sequence[LabelCount], descriptions: Mapping[str, str]) -> list[str]:
    lines = ["output:", "  type: label"]
    lines.append("  labels:  # say what each means: a description helps the teacher more than any other line here")
    for label in labels[:MAX_LABELS]:
        share = f"{label.n:,} rows, {percent(label.share_ppm)}"
        lines.append(f"    - name: {_quote(label.name)}  # {share}")
        described = descriptions.get(label.name, "")
        if described:
            lines.append(f"      description: {_quote(described)}")
        else:
            lines.append(f"      # {_comment('such as: ' + label.example)}")
    if len(labels) > MAX_LABELS:
        lines.append(f"    # {len(labels) - MAX_LABELS:,} rarer labels are left out: a spec has at most {MAX_LABELS}")
    return lines


def _examples(profile: DataProfile, options: DraftOptions) -> list[str]:
    place = f"upload: {options.upload}" if options.upload else f"file: {_quote(options.file)}"
    if options.columns and not options.upload:
        place += f"\n  columns: {_json_of(options.columns)}"
    if profile.kind is TaskKind.INPUTS:
        return [
            "captures:  # real inputs without answers; the teacher labels those that teach most",
            f"  {place}",
            "examples:",
            "  inline: []  # add answers that you know, 40 or more: they decide whether the model is published",
        ]
    if profile.n_heldout:
        return [f"examples:  # {profile.n_heldout:,} rows are your test set; no trainer sees them", f"  {place}"]
    share = "0.5" if profile.n_usable < ENOUGH_FOR_A_THIRD else "0.3"
    return ["examples:", f"  {place}", f"  holdout: {share}  # the share that only measures, and never trains"]


def _teacher(teacher: Mapping[str, Any]) -> list[str]:
    if dict(teacher) == dict(DEMO_TEACHER):
        note = "# the built-in demonstration: it knows kolm's examples, not your task"
        return ["teacher:  " + note, *_yaml(teacher, "  ")]
    lines = ["teacher:", *_yaml(teacher, "  ")]
    if "api_key" not in teacher:
        lines.append("  # api_key: tk_...  # the id of your key: `kolm teacher-keys add NAME` stores it and prints one")
    return lines


def _yaml(value: Mapping[str, Any], indent: str) -> list[str]:
    """Nested objects as blocks while they are short lines, everything else as JSON, which YAML is a superset of."""
    lines = []
    for key, inner in value.items():
        flat = json.dumps(inner, ensure_ascii=False)
        if isinstance(inner, Mapping) and inner and len(indent) + len(key) + len(flat) > WIDTH:
            lines += [f"{indent}{_key(key)}:", *_yaml(inner, indent + "  ")]
        else:
            text = _quote(inner) if isinstance(inner, str) else flat
            lines.append(f"{indent}{_key(key)}: {text}")
    return lines


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in _WORDS else _json_of(name)


_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})  # YAML 1.1 reads them as values
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")


def _quote(text: str) -> str:
    """A YAML scalar that is this text under every reader: plain where that is safe, else JSON's quotes."""
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS and len(text) <= WIDTH
    return text if is_plain else _json_of(text)


def _json_of(value: Any) -> str:
    """A value on one line of YAML, which takes JSON but for these line breaks and marks as they are."""
    return re.sub(r"[\u0085\u2028\u2029\ufeff]", _escape, json.dumps(value, ensure_ascii=False))


def _escape(mark: re.Match[str]) -> str:
    return f"\\u{ord(mark[0]):04x}"


def _comment(text: str) -> str:
    """One line of text as a comment: nothing that ends a line, bounded."""
    plain = "".join(char if unicodedata.category(char)[0] not in "CZ" else " " for char in text)
    return " ".join(plain.split())[:WIDTH]
