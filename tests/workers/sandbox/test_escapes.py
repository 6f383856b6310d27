"""What a hostile check tries, and that the world outside saw nothing of it. Each attempt reaches for the real thing
(the module `os` by way of another's globals, libc by way of ctypes): no test passes because a name was hidden."""

import os
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.domain.spec.outputs import PythonCheck
from workers.sandbox import CheckFault, Limits, SandboxUnavailable, protections, run_checks

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="the sandbox refuses elsewhere"
)
LIMITS = Limits(row_s=1.0, batch_s=20.0)
# what an attempt has at hand: the real modules, and libc
REACH = """
from enum import sys
os, ctypes, builtins = (sys.modules[name] for name in ("os", "ctypes", "builtins"))
libc = ctypes.CDLL(None, use_errno=True)
"""
FORBIDDEN = "it asked the system for what a check may not have (files, network, processes) and was stopped"


def tried(body: str, *, text: str = "", limits: Limits = LIMITS) -> object:
    """The verdict on a check of this body, with the body's own return value where it got that far."""
    lines = "\n    ".join(body.strip().split("\n"))
    check = PythonCheck(kind="python", source=f"{REACH}\ndef check(input, output):\n    {lines}\n    return True")
    return run_checks([check], [(text, "")], limits=limits)[0][0]


def test_the_attempts_have_what_they_need():
    assert tried("assert os.getcwd and libc.getpid and builtins.open") is True


def test_the_modules_are_reached_by_a_walk_over_the_objects_and_refused_all_the_same():
    walk = """
def check(input, output):
    for kind in ().__class__.__base__.__subclasses__():
        names = getattr(kind.__init__, "__globals__", {})
        if "posix" in str(names.get("__loader__", "")) or "environ" in names:
            names["mkdir"](input)
            return True
    return False
"""
    assert run_checks([PythonCheck(kind="python", source=walk)], [("/tmp/x", "")], limits=LIMITS) == [
        [CheckFault(sentence=FORBIDDEN)]
    ]


def test_every_protection_that_this_kernel_has_is_named():
    held = protections()
    assert {"seccomp", "no_new_privs", "no_capabilities"} <= set(held)
    if os.geteuid() == 0:
        assert "nobody" in held


@pytest.mark.parametrize(
    "body",
    [
        "builtins.open(input, 'w').write('was here')",
        "os.close(os.open(input, os.O_CREAT | os.O_WRONLY))",
        "os.mkdir(input)",
        "os.symlink('/etc', input)",
        "os.system('touch ' + input)",
        "libc.creat(input.encode(), 0o644)",
        "libc.syscall(85, input.encode(), 0o644)",
        "libc.openat(-100, input.encode(), 0o101, 0o644)",
    ],
)
def test_nothing_is_written_to_the_file_system(body, tmp_path: Path):
    goal = tmp_path / "made"
    verdict = tried(body, text=str(goal))
    assert not os.path.lexists(goal)
    assert verdict == CheckFault(sentence=FORBIDDEN)


@pytest.mark.parametrize(
    "body",
    [
        "return builtins.open('/etc/passwd').read(1) != ''",
        "return len(os.listdir('/')) > 0",
        "return os.stat('/etc/hostname').st_size > 0",
        "return builtins.open('/proc/self/environ', 'rb').read(1) != b''",
        "return builtins.open('/proc/1/status').read(1) != ''",
        "return os.read(0, 1) == b''",
        "return bool(set(os.environ) - {'TZ', 'LC_CTYPE'})",  # what the interpreter and the child set
        "return any('SECRET' in name for name in os.environ)",
        "ctypes.c_char_p.in_dll(libc, 'environ'); libc.getenv.restype = ctypes.c_char_p; "
        "return libc.getenv(b'KOLM_TEST_SECRET') is not None",
    ],
)
def test_nothing_of_this_machine_can_be_read(body, monkeypatch):
    monkeypatch.setenv("KOLM_TEST_SECRET", "do not tell")
    assert tried(body) is not True


def test_no_connection_is_made():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        packed = f"b'\\x02\\x00' + ({port}).to_bytes(2, 'big') + bytes([127, 0, 0, 1]) + bytes(8)"
        connect = f"fd = libc.socket(2, 1, 0)\nlibc.connect(fd, {packed}, 16)"
        assert tried(connect) == CheckFault(sentence=FORBIDDEN)
        assert isinstance(tried("sys.modules['socket']"), CheckFault)
        assert isinstance(tried(f"builtins.__import__('_socket').socket().connect(('', {port}))"), CheckFault)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize(
    "body",
    [
        "os.fork()",
        "while True: os.fork()",
        "os.execv('/bin/sh', ['sh', '-c', 'true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "libc.system(b'true')",
        "sys.modules['_thread'].start_new_thread(print, ())",
        "os.kill(os.getppid(), 9)",
        "os.kill(-1, 9)",
        "libc.kill(1, 9)",
        "libc.tgkill(1, 1, 9)",
        "libc.ptrace(16, os.getppid(), 0, 0)",
        "libc.unshare(0x10000000)",
        "libc.prctl(22, 0, 0, 0, 0)",
        "sys.modules['resource'].setrlimit(7, (64, 64))",
        "libc.syscall(425, 8, 0)",  # io_uring_setup
        "libc.syscall(319, b'x', 0)",  # memfd_create
        "libc.syscall(0x40000000 + 1, 3, b'', 0)",  # write by the x32 table
        "os.write(1, b'x')",
        "os.pipe()",
    ],
)
def test_no_process_signal_or_forbidden_call(body):
    assert tried(body) == CheckFault(sentence=FORBIDDEN)
    assert processes_of_the_sandbox() == []


def test_the_parent_is_not_read_by_process_vm_readv():
    body = """
class Part(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("n", ctypes.c_size_t))
held = ctypes.create_string_buffer(8)
here, there = Part(ctypes.addressof(held), 8), Part(int(input), 8)
return libc.process_vm_readv(os.getppid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0) == 8
"""
    assert tried(body, text=str(id(object()))) == CheckFault(sentence=FORBIDDEN)


@pytest.mark.parametrize(
    "body",
    [
        "libc.mmap(0, 4096, 7, 0x22, -1, 0)",  # writable and executable
        "libc.mmap(0, 4096, 5, 0x22, -1, 0)",
        "libc.mmap(0, 4096, 1, 0x2, 3, 0)",  # a file's pages
        "held = ctypes.create_string_buffer(8192)\nlibc.mprotect(ctypes.addressof(held) & ~4095, 4096, 7)",
    ],
)
def test_no_memory_becomes_executable_and_no_file_is_mapped(body):
    assert tried(body) == CheckFault(sentence=FORBIDDEN)


def test_an_inherited_descriptor_is_closed():
    read, write = os.pipe()
    try:
        os.set_inheritable(write, True)
        os.set_blocking(read, False)
        assert isinstance(tried(f"os.write({write}, b'out')" if write != 3 else "os.write(4, b'out')"), CheckFault)
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("while True: pass", "longer than 1 s"),
        ("x = bytearray(1 << 40)", "MemoryError"),
        ("x = []\nwhile True: x.append(bytearray(1 << 20))", "MemoryError"),
        ("x = 'a' * (1 << 33)", "MemoryError"),
        ("def f(n): return f(n + 1)\nf(0)", "RecursionError"),
        ("sys.exit(0)", "SystemExit"),
        ("os._exit(0)", "ended its process"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("ctypes.string_at(0)", "crashed"),
        ("os.write(3, b'x' * 10_000_000)", "no verdict"),
        (
            "import time\nos.write(3, b'\\x00\\x00\\x0f\\x00')\nwhile True:\n    os.write(3, b' ')\n    "
            "t = time.monotonic() + 0.1\n    while time.monotonic() < t: pass",
            "longer than 1 s",
        ),
        ("return 'yes'", "returned str, not True or False"),
        ("return 1", "returned int"),
        ("import subprocess", "may not import 'subprocess'"),
        ("import importlib", "may not import"),
        ("open('x')", "NameError"),
    ],
)
def test_a_fault_is_told_in_a_sentence_and_the_next_row_is_judged(body, said):
    lines = "\n        ".join(body.split("\n"))
    source = f"{REACH}\ndef check(input, output):\n    if input == 'bad':\n        {lines}\n    return output == 'x'"
    check = PythonCheck(kind="python", source=source)
    first, second = run_checks([check], [("bad", "x"), ("good", "x")], limits=LIMITS)
    assert isinstance(first[0], CheckFault)
    assert said in first[0].sentence
    assert len(first[0].sentence) <= 300
    assert second == [True]
    assert processes_of_the_sandbox() == []


def test_what_a_check_prints_goes_nowhere(capfd):
    assert tried("print('x' * 5_000_000)\nsys.stderr.write('y')\nsys.stdout.flush()") is True
    assert capfd.readouterr() == ("", "")


def test_a_check_that_forges_verdicts_lies_about_its_own_run_alone():
    forging = """
frame = b'[0, true]'
os.write(3, len(frame).to_bytes(4, "big") + frame)
os._exit(0)
"""
    assert tried(forging) is True  # about its own row it may say what it likes
    other = PythonCheck(kind="python", source="def check(input, output):\n    return False")
    assert run_checks([other], [("", "")], limits=LIMITS) == [[False]]


@pytest.mark.parametrize(
    "frame", ["[1, true]", "[0, null]", '["0", true]', "[true, true]", "{}", "[0, true", "[" * 4000]
)
def test_a_frame_out_of_turn_or_malformed_ends_the_run(frame):
    forging = f"frame = {frame!r}.encode()\nos.write(3, len(frame).to_bytes(4, 'big') + frame)"
    assert tried(forging) == CheckFault(sentence="it wrote what is no verdict and was stopped")


def test_a_sentence_cannot_smuggle_control_characters():
    verdict = tried("raise ValueError('a\\x1b[31m\\n\\u202e\\ud800b' + 'c' * 10_000)")
    assert isinstance(verdict, CheckFault)
    assert verdict.sentence.isprintable()
    assert len(verdict.sentence) <= 300
    hostile = "class E(Exception):\n    def __str__(self): raise E()\nraise E()"
    assert tried(hostile) == CheckFault(sentence="it raised an exception that cannot be shown")


def test_a_check_that_is_stopped_again_and_again_is_given_up():
    looping = PythonCheck(kind="python", source="def check(input, output):\n    while True: pass")
    fine = PythonCheck(kind="python", source="def check(input, output):\n    return True")
    found = run_checks([looping, fine], [("", "")] * 50, limits=Limits(row_s=1, batch_s=60, max_stops=2))
    assert all(isinstance(row[0], CheckFault) and row[1] is True for row in found)
    assert "not run again" in found[-1][0].sentence


def test_the_batch_has_an_end():
    slow = PythonCheck(kind="python", source="import time\ndef check(input, output):\n    t = time.monotonic() + 1\n"
                       "    while time.monotonic() < t: pass\n    return True")  # fmt: skip
    found = run_checks([slow], [("", "")] * 40, limits=Limits(row_s=20, batch_s=5))
    assert found[0] == [True]
    assert isinstance(found[-1][0], CheckFault)
    assert "longer than 5 s together" in found[-1][0].sentence


def test_a_killed_worker_leaves_no_process_behind(tmp_path: Path):
    program = (
        "from workers.sandbox import run_checks, Limits\nfrom backend.domain.spec.outputs import PythonCheck\n"
        "c = PythonCheck(kind='python', source='def check(input, output):\\n    while True: pass')\n"
        "run_checks([c], [('', '')], limits=Limits(row_s=60, batch_s=60))"
    )
    worker = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[3])
    try:
        assert eventually(lambda: len(processes_of_the_sandbox(worker.pid)) > 0)
        began = processes_of_the_sandbox(worker.pid)
    finally:
        worker.kill()
        worker.wait()
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in began))


def test_a_platform_without_a_filter_refuses_unless_the_deployment_says_otherwise(monkeypatch, settings):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    check = PythonCheck(kind="python", source="def check(input, output):\n    return True")
    settings.KOLM_ALLOW_WEAK_SANDBOX = False
    with pytest.raises(SandboxUnavailable, match="no system-call filter") as refused:
        run_checks([check], [("", "")], limits=LIMITS)
    assert refused.value.code == "python_checks_unavailable"
    assert run_checks([], [("", "")], limits=LIMITS) == [[]]
    settings.KOLM_ALLOW_WEAK_SANDBOX = True
    assert run_checks([check], [("", "")], limits=LIMITS) == [[True]]
    assert "seccomp" not in protections()


def processes_of_the_sandbox(parent: int | None = None) -> list[int]:
    """Processes of the sandbox that `parent` (this process) started and that are alive, by what /proc says."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if b"sandbox/child.py" in line and int(fields[1]) == (parent or os.getpid()):
            found.append(int(folder.name))
    return found


def eventually(claim, seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if claim():
            return True
        time.sleep(0.05)
    return False
