"""A list of the API, fetched page after page as it is walked; a notebook shows its begin without walking it."""

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from .notebook_html import SHOWN_ROWS, rows_html
from .rows import Row

R = TypeVar("R", bound=Row)


class Pages(Iterator[R]):
    """An iterator over rows, which are asked for as they are needed."""

    def __init__(self, rows: Iterator[R]) -> None:
        self._rows = rows
        self._ahead: deque[R] = deque()

    def __next__(self) -> R:
        return self._ahead.popleft() if self._ahead else next(self._rows)

    def _repr_html_(self) -> str:
        """The rows that come next, as a table; they are kept, and still come."""
        while len(self._ahead) <= SHOWN_ROWS and (row := next(self._rows, None)) is not None:
            self._ahead.append(row)
        return rows_html(list(self._ahead))
