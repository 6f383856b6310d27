"""The system calls that a computing interpreter needs, as a seccomp program (classic BPF, linux/seccomp.h).

Everything else kills the process, and so does a call of another architecture or of x32. What is allowed can compute,
take and give back memory that is never executable, read the clock and random bytes, write to one file descriptor,
and end. It can open, connect, start and signal nothing.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000

_LD_ABS = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JEQ, _JGE, _JSET, _RET = 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARGS = 0, 4, 16  # offsets in struct seccomp_data; each argument has its low word first
_X32_BIT = 0x40000000

_PROT_EXEC, _MAP_ANONYMOUS = 0x4, 0x20
_FUTEX_PLAIN = (0, 1, 9, 10)  # WAIT, WAKE, WAIT_BITSET, WAKE_BITSET: none of the requeue and priority kinds
_FUTEX_FLAGS = 0x80 | 0x100  # PRIVATE, CLOCK_REALTIME
_MADV = (4, 8)  # DONTNEED, FREE: what an allocator says


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """`audit` is AUDIT_ARCH_*; `free` the calls that are allowed with any arguments."""

    audit: int
    free: tuple[int, ...]
    write: int
    mmap: int
    futex: int
    madvise: int
    has_x32: bool = False


# free: brk munmap mremap rt_sigreturn exit exit_group clock_gettime gettimeofday getrandom (and time on x86-64)
ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": Architecture(
        audit=0xC000003E,
        free=(12, 11, 25, 15, 60, 231, 228, 96, 318, 201),
        write=1,
        mmap=9,
        futex=202,
        madvise=28,
        has_x32=True,
    ),
    "aarch64": Architecture(
        audit=0xC00000B7, free=(214, 215, 216, 139, 93, 94, 113, 169, 278), write=64, mmap=222, futex=98, madvise=233
    ),
}


def seccomp_program(machine: str, *, write_fd: int) -> bytes | None:
    """The filter as an array of `struct sock_filter`, or None for a machine without a table here."""
    arch = ARCHITECTURES.get(machine)
    if arch is None:
        return None
    rows = [_load(_ARCH), *_unless_equal(arch.audit, KILL_PROCESS), _load(_NR)]
    if arch.has_x32:
        rows += [(_JGE, 0, 1, _X32_BIT), _return(KILL_PROCESS)]
    for number in arch.free:
        rows += _if_equal(number, [_return(ALLOW)])
    rows += _if_equal(arch.write, _arg_in(0, [write_fd]))
    rows += _if_equal(arch.mmap, _mmap_rule())
    rows += _if_equal(arch.futex, _arg_in(1, [op | flags for op in _FUTEX_PLAIN for flags in _flag_sets()]))
    rows += _if_equal(arch.madvise, _arg_in(2, _MADV))
    rows.append(_return(KILL_PROCESS))
    return b"".join(struct.pack("=HBBI", *row) for row in rows)


Row = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def _flag_sets() -> tuple[int, ...]:
    return (0, 0x80, 0x100, _FUTEX_FLAGS)


def _load(offset: int) -> Row:
    return (_LD_ABS, 0, 0, offset)


def _return(action: int) -> Row:
    return (_RET, 0, 0, action)


def _unless_equal(value: int, action: int) -> list[Row]:
    return [(_JEQ, 1, 0, value), _return(action)]


def _if_equal(value: int, then: Sequence[Row]) -> list[Row]:
    """`then` ends in a return on every path; it is stepped over when the accumulator is another value."""
    return [(_JEQ, 0, len(then), value), *then]


def _arg_in(index: int, values: Sequence[int]) -> list[Row]:
    """Allow when the argument, all 64 bits of it, is one of `values`; kill otherwise."""
    rows = [_load(_ARGS + 8 * index + 4), *_unless_equal(0, KILL_PROCESS), _load(_ARGS + 8 * index)]
    for value in values:
        rows += _if_equal(value, [_return(ALLOW)])
    return [*rows, _return(KILL_PROCESS)]


def _mmap_rule() -> list[Row]:
    """Anonymous memory that cannot be executed; no file can be mapped."""
    return [
        _load(_ARGS + 8 * 2),
        (_JSET, 0, 1, _PROT_EXEC),
        _return(KILL_PROCESS),
        _load(_ARGS + 8 * 3),
        (_JSET, 1, 0, _MAP_ANONYMOUS),
        _return(KILL_PROCESS),
        _return(ALLOW),
    ]
