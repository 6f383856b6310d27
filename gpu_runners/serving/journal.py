"""A journal of what each request used, written down before the client sees it, so that a server that is killed bills
what it served.

One file of lines, appended with one `write` each: what the kernel has taken survives the process (`kill -9`), not the
machine. A line that a death cut short is left out. Before each delta goes out, its request's counts so far are noted;
so the journal knows of every token that a client received (5 us a delta).

    o <number> <part> <grant> <adapter's sha256>                      a request began
    n <number> <5 counts>                                             its counts so far
    e <number> <5 counts> <reason> <first token us> <total us>        it ended
    a <number>                                                        the backend has booked it
    p <hash of a grant> <next part> <Unix time>                       parts of a grant that are spoken for

A request that was running when the process died is booked as `failed`, with what was noted last. When the file is
`max_bytes` long it is written anew with what is still open; where that does not help, or the disk is full, `is_full`
says that no new work may begin.
"""

import errno
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.domain.serving.wire import UsageRow
from gpu_runners.models.protocol import Counts

log = logging.getLogger("kolm.server")
FAILED = "failed"
_FILE, _NEXT = "usage.journal", "usage.journal.next"


class JournalBusy(Exception):
    """Another process writes this journal."""


class CannotJournal(Exception):
    """The disk does not take another line: nothing may be served that cannot be billed."""


@dataclass(slots=True)
class _Entry:
    number: int
    part: int
    grant: str
    model: str
    counts: tuple[int, ...] = (0, 0, 0, 0, 0)
    reason: str | None = None
    first_token_us: int = 0
    total_us: int = 0

    def row(self) -> UsageRow:
        prompt, cached, completion, drafted, accepted = self.counts
        return UsageRow(
            grant=self.grant,
            part=self.part,
            model=self.model,
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion,
            drafted_tokens=drafted,
            accepted_tokens=accepted,
            finish_reason=self.reason or FAILED,
            first_token_us=self.first_token_us,
            total_us=self.total_us,
        )

    def lines(self) -> Iterator[bytes]:
        yield f"o {self.number} {self.part} {self.grant} {self.model}\n".encode()
        if self.reason is None:
            yield b"n %d %d %d %d %d %d\n" % (self.number, *self.counts)
        else:
            yield _end_line(self)


@dataclass(slots=True)
class _State:
    """The state after the lines so far. `parts` are the next part and the age limit by the grant's hash."""

    entries: dict[int, _Entry] = field(default_factory=dict)
    parts: dict[str, tuple[int, int]] = field(default_factory=dict)
    next_number: int = 1

    def read(self, line: bytes) -> None:
        kind, *words = line.decode("ascii").split(" ")
        if kind == "p":
            self.parts[words[0]] = (int(words[1]), int(words[2]))
            return
        number = int(words[0])
        self.next_number = max(self.next_number, number + 1)
        if kind == "o":
            self.entries[number] = _Entry(number=number, part=int(words[1]), grant=words[2], model=words[3])
        elif kind == "a":
            self.entries.pop(number, None)
        elif kind in "ne" and (entry := self.entries.get(number)) is not None:
            entry.counts = tuple(int(word) for word in words[1:6])
            if kind == "e":
                entry.reason, entry.first_token_us, entry.total_us = words[6], int(words[7]), int(words[8])


class Journal:
    """Used from one event loop. Raises JournalBusy where another process has `folder`."""

    def __init__(self, folder: Path, *, max_bytes: int = 64 << 20) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise JournalBusy(f"Another server keeps its journal in {folder}; give each its own folder.") from error
        self._state, self._fd, self._size = _State(), -1, 0
        self.is_full, self.n_refused = False, 0
        self._now, self._try_at = 0.0, 0.0
        self._replay()

    @property
    def n_unbooked(self) -> int:
        """Requests that ended and are not booked yet."""
        return sum(entry.reason is not None for entry in self._state.entries.values())

    @property
    def n_open(self) -> int:
        return len(self._state.entries) - self.n_unbooked

    @property
    def n_bytes(self) -> int:
        return self._size

    def begin(self, grant: str, *, model: str, expires_at: int) -> int:
        """The number of a new request under `grant`. Raises CannotJournal."""
        if self.is_full and not self._try_again():
            raise CannotJournal(f"{self._folder} does not take another line")
        key = hashlib.sha256(grant.encode()).hexdigest()[:32]
        part, _ = self._state.parts.get(key, (0, 0))
        number = self._state.next_number
        entry = _Entry(number=number, part=part, grant=grant, model=model)
        part_line = f"p {key} {part + 1} {expires_at}\n".encode()
        self._write(part_line + next(entry.lines()))
        self._state.entries[number], self._state.next_number = entry, number + 1
        self._state.parts[key] = (part + 1, expires_at)
        return number

    def note(self, number: int, counts: Counts) -> None:
        """Note what request `number` used so far. Raises CannotJournal."""
        entry = self._state.entries[number]
        entry.counts = _five(counts)
        self._write(b"n %d %d %d %d %d %d\n" % (number, *entry.counts))

    def end(self, number: int, *, reason: str, first_token_us: int, total_us: int) -> None:
        """`reason` as in UsageRow. Where the disk is full the end is kept in memory alone: after a death the request
        then counts as failed, with the same tokens."""
        entry = self._state.entries[number]
        entry.reason, entry.first_token_us, entry.total_us = reason, first_token_us, total_us
        try:
            self._write(_end_line(entry))
        except CannotJournal:
            log.error("the usage journal is full: no new work until it is not")

    def next_unbooked(self, most: int) -> list[tuple[int, UsageRow]]:
        ended = (entry for entry in self._state.entries.values() if entry.reason is not None)
        return [(entry.number, entry.row()) for entry, _ in zip(ended, range(most), strict=False)]

    def drop_booked(self, numbers: Sequence[int], *, now: float) -> None:
        """The backend has these. Grants older than `now` are forgotten when the file is next written anew."""
        for number in numbers:
            del self._state.entries[number]
        self._now, self._try_at = now, 0.0
        try:
            self._write(b"".join(b"a %d\n" % number for number in numbers))
        except CannotJournal:
            self._shrink()  # what was not noted is told once more after a death, and booked once all the same

    def set_aside(self, number: int) -> None:
        """The backend will never take this row: it is kept beside the journal for people, and no longer sent."""
        row = self._state.entries.pop(number).row()
        self.n_refused += 1
        log.error("the backend refuses the usage row %s", row.key)
        with (self._folder / "refused.jsonl").open("a") as file:
            file.write(f"{row.to_json()}\n")
        self._write(b"a %d\n" % number)

    def sync(self) -> None:
        """Write to the disk itself: for the moments that can wait for it."""
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            os.close(self._lock)
            self._fd = -1

    def _replay(self) -> None:
        path = self._folder / _FILE
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        for line in lines:
            try:
                self._state.read(line)
            except (ValueError, IndexError):
                log.error("a line of the usage journal is damaged and left out")
        for entry in self._state.entries.values():
            entry.reason = entry.reason or FAILED
        self._rewrite()

    def _try_again(self) -> bool:
        """Once a second at most: it writes all that is open."""
        if time.monotonic() < self._try_at:
            return False
        self._try_at = time.monotonic() + 1.0
        return self._shrink()

    def _write(self, data: bytes) -> None:
        if self._size + len(data) > self._max_bytes and not self._shrink(len(data)):
            self.is_full = True
            raise CannotJournal(f"{self._folder} holds {self._max_bytes} bytes")
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            self.is_full = True
            raise CannotJournal(str(error)) from error
        self._size += written
        if written < len(data):
            self.is_full = True
            os.write(self._fd, b"\n")
            raise CannotJournal("the disk took half a line")

    def _shrink(self, more: int = 0) -> bool:
        """Write the file anew; say whether there is room again."""
        try:
            self._rewrite()
        except OSError:
            return False
        self.is_full = self._size + more > self._max_bytes // 2
        return not self.is_full

    def _rewrite(self) -> None:
        """Replace the file by what is still needed of it, whole or not at all."""
        path, fresh = self._folder / _FILE, self._folder / _NEXT
        self._state.parts = {key: value for key, value in self._state.parts.items() if value[1] >= self._now}
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = _write_all(fd, self._needs())
            os.fsync(fd)
            os.replace(fresh, path)
        except BaseException:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = fd, size

    def _needs(self) -> Iterator[bytes]:
        for key, (part, expires_at) in self._state.parts.items():
            yield f"p {key} {part} {expires_at}\n".encode()
        for entry in self._state.entries.values():
            yield from entry.lines()


def _write_all(fd: int, lines: Iterable[bytes]) -> int:
    data = b"".join(lines)
    view, size = memoryview(data), len(data)
    while view:
        view = view[os.write(fd, view) :]
    return size


def _end_line(entry: _Entry) -> bytes:
    line = b"e %d %d %d %d %d %d " % (entry.number, *entry.counts)
    return line + f"{entry.reason} {entry.first_token_us} {entry.total_us}\n".encode()


def _five(counts: Counts) -> tuple[int, ...]:
    return (
        counts.prompt_tokens,
        counts.cached_tokens,
        counts.completion_tokens,
        counts.drafted_tokens,
        counts.accepted_tokens,
    )
