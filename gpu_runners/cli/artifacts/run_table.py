"""`kolm run FILE --in rows.csv`: a table answered row by row, in batches, however long it is."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from backend.domain.artifact.kolm_verify import Kolm
from backend.domain.errors import OurError
from gpu_runners.cli.artifacts.answering import Answer, answering
from gpu_runners.cli.artifacts.loading import Refused
from gpu_runners.cli.artifacts.table_files import distinct, open_table, row_writer
from gpu_runners.cli.exit_codes import OK, USAGE
from gpu_runners.cli.terminal import fail
from gpu_runners.terminal_text import raw

BATCH = 256  # rows that are answered at a time
LINE_EVERY_S = 5.0


@dataclass(slots=True, kw_only=True)
class Progress:
    """Rows so far, on standard error: one line that is written over on a terminal, a line every five seconds elsewhere,
    and a last one with the pace."""

    n: int = 0
    n_blank: int = 0
    faults: list[str] = field(default_factory=list)
    began_at: float = field(default_factory=time.monotonic)
    shown_at: float = field(default_factory=time.monotonic)

    def add(self, n: int) -> None:
        self.n += n
        now = time.monotonic()
        if sys.stderr.isatty():
            raw(sys.stderr).write(f"\r{self.n:,} rows ")
            sys.stderr.flush()
        elif now - self.shown_at >= LINE_EVERY_S:
            self.shown_at = now
            print(f"{self.n:,} rows", file=sys.stderr, flush=True)

    def finish(self, out: str | None) -> None:
        elapsed_s = max(time.monotonic() - self.began_at, 1e-6)
        blank = f", {self.n_blank:,} without a text" if self.n_blank else ""
        begin = "\n" if sys.stderr.isatty() and self.n else ""
        words = f"{self.n:,} rows{blank}; {elapsed_s:.1f} s, {self.n / elapsed_s:,.0f} a second"
        print(f"{begin}{out}: {words}" if out else f"{begin}{words}", file=sys.stderr, flush=True)


def run_table(kolm: Kolm, source: str, *, column: str | None, out: str | None) -> int:
    """Answer the rows of a table, and write each with its answer beside it; the exit code. A row that cannot be
    answered stays blank, and is reported. Raises Refused."""
    if out is not None and Path(out).resolve() == Path(source).resolve():
        raise Refused(f"--out {out} is the file that is read; name another.", exit_code=USAGE)
    is_label = kolm.manifest["task_type"] == "label"
    more = ("answer", "confidence", "unsure") if is_label else ("answer", "confidence")
    with open_table(source) as table:
        place = table.column(column)
        names = [*table.names, *(distinct(name, table.names) for name in more)] if table.names else []
        progress, answer = Progress(), answering(kolm)
        with row_writer(out, table, names) as write:
            for rows in iter(lambda: list(islice(table.rows, BATCH)), []):
                answers = _answers(answer, [_text(row, place) for row in rows], progress)
                for row, one in zip(rows, answers, strict=True):
                    write(_join(row, one, more))
                progress.add(len(rows))
    progress.finish(out)
    if not progress.faults:
        return OK
    return fail(f"{len(progress.faults):,} rows have no answer; the first because: {progress.faults[0]}")


def _text(row: Any, place: Any) -> str:
    text = row.get(place, "") if isinstance(row, dict) else row[place]
    if not isinstance(text, str):
        raise Refused(f"a row has no text {place!r}: {str(row)[:80]}; name it with --column.", exit_code=USAGE)
    return text


def _answers(
    answer: Callable[[Sequence[str]], list[Answer]], texts: Sequence[str], progress: Progress
) -> list[Answer | None]:
    """An answer a text; None for one that is blank, which no model was trained on, and for one that is refused."""
    asked = [text for text in texts if text.strip()]
    progress.n_blank += len(texts) - len(asked)
    try:
        rest: Iterator[Answer | None] = iter(answer(asked))
    except OurError:  # one text of them is longer than the base's context
        rest = iter([_answer_alone(answer, text, progress) for text in asked])
    return [next(rest) if text.strip() else None for text in texts]


def _answer_alone(answer: Callable[[Sequence[str]], list[Answer]], text: str, progress: Progress) -> Answer | None:
    try:
        return answer([text])[0]
    except OurError as error:
        progress.faults.append(error.message)
        return None


def _join(row: Any, answer: Answer | None, more: Sequence[str]) -> Any:
    values: dict[str, Any] = dict.fromkeys(more)
    if answer is not None:
        values["answer"] = answer.get("label", answer.get("output"))
        values["confidence"] = answer.get("confidence")
        if "unsure" in more:
            values["unsure"] = bool(answer.get("is_unsure"))
    if isinstance(row, dict):
        return row | {distinct(name, row): value for name, value in values.items()}
    return [*row, *(_cell(value) for value in values.values())]


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else value
