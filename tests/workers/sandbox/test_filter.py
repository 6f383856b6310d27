"""The system-call filter, run by an interpreter of classic BPF over every call of both architectures."""

import struct

import pytest

from workers.sandbox.filter import ALLOW, ARCHITECTURES, KILL_PROCESS, seccomp_program

WRITE_FD = 3


def decide(program: bytes, number: int, args: tuple[int, ...] = (), audit: int = 0) -> int:
    """What the kernel would do: seccomp_data is nr, arch, ip, six arguments of 64 bits."""
    data = struct.pack("=IIQ6Q", number, audit, 0, *(*args, *[0] * (6 - len(args))))
    rows = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    while True:
        code, if_true, if_false, k = rows[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, k)
            case 0x15:
                at += if_true if accumulator == k else if_false
            case 0x35:
                at += if_true if accumulator >= k else if_false
            case 0x45:
                at += if_true if accumulator & k else if_false
            case 0x06:
                return k
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.fixture(params=sorted(ARCHITECTURES))
def machine(request):
    return request.param


def judge(machine: str, number: int, *args: int, audit: int | None = None) -> bool:
    program = seccomp_program(machine, write_fd=WRITE_FD)
    assert program is not None
    action = decide(program, number, args, ARCHITECTURES[machine].audit if audit is None else audit)
    assert action in (ALLOW, KILL_PROCESS)
    return action == ALLOW


def test_only_the_calls_of_the_table_pass(machine):
    arch = ARCHITECTURES[machine]
    passed = {number for number in range(1024) if judge(machine, number)}
    assert passed <= {*arch.free, arch.write, arch.mmap, arch.futex, arch.madvise}
    assert set(arch.free) <= passed
    assert arch.write not in passed  # descriptor 0


def test_another_architecture_and_x32_are_killed(machine):
    arch = ARCHITECTURES[machine]
    exit_group = 231 if machine == "x86_64" else 94
    assert judge(machine, exit_group)
    assert not any(judge(machine, n, audit=0x40000003) for n in (1, 4, exit_group))  # i386
    others = [other.audit for name, other in ARCHITECTURES.items() if name != machine]
    assert not any(judge(machine, exit_group, audit=audit) for audit in others)
    if arch.has_x32:
        assert not any(judge(machine, 0x40000000 + n) for n in (*arch.free, arch.write))


@pytest.mark.parametrize("fd", [0, 1, 2, 4, 2**32 + WRITE_FD, 2**64 - 1])
def test_only_one_descriptor_can_be_written_to(machine, fd):
    write = ARCHITECTURES[machine].write
    assert judge(machine, write, WRITE_FD, 0, 10)
    assert not judge(machine, write, fd, 0, 10)


def test_memory_is_anonymous_and_never_executable(machine):
    mmap = ARCHITECTURES[machine].mmap
    private, anonymous = 0x2, 0x20
    assert judge(machine, mmap, 0, 4096, 3, private | anonymous)
    assert not judge(machine, mmap, 0, 4096, 7, private | anonymous)
    assert not judge(machine, mmap, 0, 4096, 4, private | anonymous)
    assert not judge(machine, mmap, 0, 4096, 3, private)


def test_the_rare_kinds_of_futex_and_madvise_are_killed(machine):
    arch = ARCHITECTURES[machine]
    assert judge(machine, arch.futex, 0, 128)
    assert not any(judge(machine, arch.futex, 0, op) for op in (3, 4, 5, 6, 7, 8, 11, 12, 13, 128 + 6))
    assert judge(machine, arch.madvise, 0, 4096, 4)
    assert not any(judge(machine, arch.madvise, 0, 4096, advice) for advice in (9, 14, 100, 101))


def test_a_machine_without_a_table_has_no_filter():
    assert seccomp_program("riscv64", write_fd=WRITE_FD) is None
