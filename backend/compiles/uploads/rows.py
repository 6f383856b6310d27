"""Uploads: JSONL in, validated row by row before anything is stored, kept as a blob."""

import hashlib
import json
import re
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from typing import Any
from uuid import UUID

from backend.blobs import get_jsonl, put_jsonl
from backend.compiles.models import Upload
from backend.compiles.uploads.deletion import take_turn
from backend.domain.answers.json_values import MAX_CHARS
from backend.domain.errors import InvalidInput, InvalidSpec, NotFound, Problem
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.labeling.label_scores import read_scores
from backend.domain.spec.fields import UPLOAD_NAME
from backend.domain.spec.gold import SIDES
from backend.domain.spec.parsing import MAX_TEXT_CHARS

MAX_BYTES = 5_000_000
MAX_ROWS = 50_000
MAX_GROUP = 200
MAX_PROBLEMS = 20
SHOWN_KEYS, SHOWN_KEY_CHARS = 5, 40  # of a row without the key that it needs
_NO_OBJECT = "not a JSON object"


class UploadPurpose(StrEnum):
    CAPTURES = "captures"
    EXAMPLES = "examples"
    RECORDING = "recording"


# the places of a spec that name an upload
_PLACES = (
    ("examples", "upload", UploadPurpose.EXAMPLES),
    ("captures", "upload", UploadPurpose.CAPTURES),
    ("teacher", "recording", UploadPurpose.RECORDING),
)
_ROW_FORM = {
    UploadPurpose.CAPTURES: '{"input": "..."}',
    UploadPurpose.EXAMPLES: '{"input": "...", "output": "..."}',
    UploadPurpose.RECORDING: '{"item": "...", "completions": [{"text": "..."}]}',
}


def store_upload(
    tenant_id: UUID, purpose: UploadPurpose, data: bytes, *, sha256: str | None = None, name: str = ""
) -> Upload:
    """Validate and keep one upload. `sha256` (of the bytes sent), when given, must match: a truncated upload is refused
    whole. The newest upload of a `name` is the one that a spec means by it."""
    name = check_name(name)
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"An upload holds at most {MAX_BYTES} bytes; send fewer rows.", code="upload_too_large")
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise InvalidInput(
            "The bytes that arrived do not have the sha256 you sent: the upload was cut or altered. Send it again.",
            code="upload_truncated",
        )
    rows = _rows(data, purpose)
    take_turn(tenant_id)
    digest = put_jsonl(tenant_id, rows)
    return Upload.objects.create(
        tenant_id=tenant_id, purpose=purpose, name=name, sha256=digest, size_bytes=len(data), n_rows=len(rows)
    )


def check_name(name: str) -> str:
    """A name as specs may write it, or "". Raises InvalidInput."""
    name = " ".join(name.split())
    if not name:
        return ""
    if not re.match(UPLOAD_NAME, name) or name.startswith(f"{Prefix.UPLOAD}_"):
        message = "An upload's name has 1 to 100 printable characters, no slash, and does not begin with upl_."
        problem = Problem(pointer="/name", message=message, code="bad_format")
        raise InvalidInput(message, code="invalid_input", problems=(problem,))
    return name


def with_upload_ids(tenant_id: UUID, document: object) -> object:
    """A spec's document in which uploads that it names have their ids, the newest of each name: what a compile keeps
    does not change when another file of that name comes. What is none of the tenant's names stays, and is refused
    where specs are checked."""
    if not isinstance(document, dict):
        return document
    resolved = dict(document)
    for part, key, purpose in _PLACES:
        inner = document.get(part)
        name = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(name, str) and not name.startswith(f"{Prefix.UPLOAD}_"):
            rows = Upload.objects.of_tenant(tenant_id).filter(purpose=purpose, name=" ".join(name.split()))
            row = rows.exclude(name="").order_by("-created_at").first()
            if row is None:
                message = f"there is no upload of {purpose} with this name; `kolm upload` and POST /v1/uploads give one"
                raise _wrong_upload(f"/{part}/{key}", "unknown_upload", message)
            resolved[part] = {**inner, key: encode_id(Prefix.UPLOAD, row.id)}
    return resolved


def load_upload(tenant_id: UUID, public_id: str, purpose: UploadPurpose, *, pointer: str) -> list[dict[str, Any]]:
    """The rows of the upload that a spec names at `pointer`. Raises InvalidSpec."""
    return get_jsonl(tenant_id, find_upload(tenant_id, public_id, purpose, pointer=pointer).sha256)


def find_upload(tenant_id: UUID, public_id: str, purpose: UploadPurpose, *, pointer: str) -> Upload:
    """The upload that a spec names at `pointer`. Raises InvalidSpec where the tenant has none, or one of another
    purpose."""
    upload = None
    with suppress(NotFound):  # a name, or no id at all
        upload = Upload.objects.filter(tenant_id=tenant_id, id=decode_id(Prefix.UPLOAD, public_id)).first()
    if upload is None:
        message = f"there is no upload {public_id}; send one with POST /v1/uploads?purpose={purpose}"
        raise _wrong_upload(pointer, "unknown_upload", message)
    if upload.purpose != purpose:
        message = f"{public_id} was uploaded as {upload.purpose} and this place needs {purpose}; upload it as that"
        raise _wrong_upload(pointer, "wrong_purpose", message)
    return upload


def _wrong_upload(pointer: str, code: str, message: str) -> InvalidSpec:
    problem = Problem(pointer=pointer, message=message, code=code)
    return InvalidSpec(f"The spec is not valid: {pointer}: {message}", problems=(problem,))


def _rows(data: bytes, purpose: UploadPurpose) -> list[dict[str, Any]]:
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"The upload is not UTF-8 (byte {error.start}); encode it so and send it again.", code="invalid_utf8"
        ) from None
    lines = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise InvalidInput("The upload has no rows; send one JSON object a line.", code="upload_empty")
    if len(lines) > MAX_ROWS:
        raise InvalidInput(
            f"An upload holds at most {MAX_ROWS} rows and this one has {len(lines)}; send fewer.",
            code="upload_too_large",
        )
    rows, problems = [], []
    for n, line in lines:
        try:
            rows.append(_row(line, purpose))
        except ValueError as error:
            is_table = str(error) == _NO_OBJECT and n == lines[0][0]  # a CSV, mostly
            form = f"; write {_ROW_FORM[purpose]} on each line, or send the file as text/csv, or by `kolm upload`"
            problems.append(Problem(pointer=f"/{n}", message=f"Line {n}: {error}{form if is_table else ''}"))
            if len(problems) == MAX_PROBLEMS:
                break
    if problems:
        raise _unusable(problems, is_cut=problems[-1].pointer == f"/{lines[-1][0]}" and not text.endswith("\n"))
    return rows


def _unusable(problems: list[Problem], *, is_cut: bool) -> InvalidInput:
    """`is_cut`: the last line is among the bad ones and has no line break; alone, it tells of a truncated upload."""
    if is_cut and len(problems) == 1:
        message, code = "The last line of the upload is cut off; send the upload again.", "upload_truncated"
    else:
        some = "At least " if len(problems) == MAX_PROBLEMS else ""
        message = f"{some}{len(problems)} row(s) of the upload are not usable (see `errors`), so nothing was stored."
        code = "invalid_upload"
    return InvalidInput(f"{problems[0].message}. {message}", code=code, problems=tuple(problems))


def _row(line: str, purpose: UploadPurpose) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        raise ValueError(_NO_OBJECT) from None
    except RecursionError:
        raise ValueError("nested too deeply; flatten it") from None
    if not isinstance(row, dict):
        raise ValueError(_NO_OBJECT)
    match purpose:
        case UploadPurpose.CAPTURES:
            return {"input": _text(row, "input")}
        case UploadPurpose.EXAMPLES:
            texts = {"input": _text(row, "input"), "output": _answer(row)}
            return texts | {"group": _group(row.get("group")), "split": _side(row.get("split"))}
        case UploadPurpose.RECORDING:
            completions = row.get("completions")
            if not isinstance(completions, list) or not completions:
                raise ValueError('"completions" must be a list of objects with a "text"')
            return {"item": _text(row, "item"), "completions": [_completion(entry) for entry in completions]}


def _text(row: dict[str, Any], key: str, *, most: int = MAX_TEXT_CHARS) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f'"{key}" must be a text that is not empty{_keys_instead(row, key)}')
    if len(value) > most:
        raise ValueError(f'"{key}" has {len(value)} characters; at most {most}')
    _check_text(value, key)
    return value


def _keys_instead(row: dict[str, Any], key: str) -> str:
    """The keys that a row without `key` has, bounded, and escaped where they cannot be printed."""
    if key in row or not row:
        return ""
    names = (name[:SHOWN_KEY_CHARS] for name in islice(row, SHOWN_KEYS))
    shown = ", ".join(json.dumps(name, ensure_ascii=not name.isprintable()) for name in names)
    return f"; this row has the keys {shown}{' and more' if len(row) > SHOWN_KEYS else ''}"


def _answer(row: dict[str, Any]) -> str:
    """A JSON value is kept as its text, as in a spec's inline examples."""
    value = row.get("output")
    if isinstance(value, dict | list | bool | int | float):
        row = row | {"output": json.dumps(value, ensure_ascii=False, allow_nan=False)}
    return _text(row, "output", most=MAX_CHARS)


def _group(value: Any) -> str | None:
    """Numbers are taken too: ticket ids often are."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int) or not 1 <= len(str(value)) <= MAX_GROUP:
        raise ValueError(f'"group" must be a text or a whole number of 1 to {MAX_GROUP} characters')
    _check_text(str(value), "group")
    return str(value)


def _side(value: Any) -> str | None:
    """A row that names no side has none, or an empty one, as tables do."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or value not in SIDES:
        sides = ", ".join(f'"{name}"' for name in SIDES)
        raise ValueError(f'"split" must be one of {sides}, or left out')
    return SIDES[value]


def _completion(entry: Any) -> dict[str, Any]:
    """An answer of a teacher; `logprob` is natural, of the whole text, `label_logprobs` those of labels."""
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        raise ValueError('"completions" must be a list of objects with a "text"')
    logprob = entry.get("logprob")
    is_number = isinstance(logprob, int | float) and not isinstance(logprob, bool)
    if logprob is not None and not (is_number and -1e9 < logprob <= 0):
        raise ValueError('the "logprob" of a completion is a number of at most 0')
    _check_text(entry["text"], "text")
    completion = {"text": entry["text"], "logprob": logprob}
    scores = read_scores(entry.get("label_logprobs"))
    if scores is None:
        return completion
    for label in scores:
        _check_text(label, "label_logprobs")
    return completion | {"label_logprobs": scores}


def _check_text(value: str, key: str) -> None:
    """Refuse what cannot be stored as UTF-8 in Postgres."""
    if "\x00" in value:
        raise ValueError(f'"{key}" has a NUL character')
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError(f'"{key}" has half of a surrogate pair in it; send it as UTF-8')
