"""The parts of the quality bench that its figures rest on: paired differences, and programs that cannot reach out."""

import ast
import json
import socket
from pathlib import Path

import numpy as np
import pytest

from tests.bench.selection_quality import Run, _fields, differences, read_runs, table
from tests.bench.selection_quality_code import body_of, first_assertion
from tests.bench.selection_quality_sandbox import isolation, run_programs
from tests.bench.selection_quality_texts import variants_of

CHECK = "def check(f):\n    assert f(2) == 4\n    assert f(3) == 9\ncheck(f)"
SHOWN = "def check(f):\n    assert f(2) == 4\ncheck(f)"


def _verdicts(*programs: str) -> list[tuple[bool, bool]]:
    return [(v.visible, v.full) for v in run_programs(programs, visible=SHOWN, full=CHECK, seconds=1)]


def test_a_right_program_passes_and_a_half_right_one_passes_what_is_shown() -> None:
    assert _verdicts("def f(x):\n    return x * x", "def f(x):\n    return x + 2", "def f(x):\n    return 0") == [
        (True, True),
        (True, False),
        (False, False),
    ]


@pytest.mark.parametrize(
    "body",
    [
        "    while True: pass",
        "    import os; os._exit(0)",
        "    raise SystemExit(0)",
        "    return [0] * 10**10 and x * x",
        "    open('/etc/kolm-was-here', 'w'); return x * x",
        "    open('big', 'wb').write(b'0' * 10**8); return x * x",
    ],
    ids=["loops", "leaves", "says it is done", "takes memory", "writes outside", "writes much"],
)
def test_a_program_that_misbehaves_fails_and_the_next_one_is_unharmed(body: str) -> None:
    assert _verdicts(f"def f(x):\n{body}", "def f(x):\n    return x * x") == [(False, False), (True, True)]


def test_a_program_has_no_network() -> None:
    if not isolation():
        pytest.skip("this system gives no network namespace")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reach = f"import socket\ndef f(x):\n    socket.create_connection(('127.0.0.1', {port}), 1)\n    return x * x"
        assert _verdicts(reach) == [(False, False)]
        assert socket.create_connection(("127.0.0.1", port), 1).close() is None  # from here it can be reached


def test_a_completion_ends_where_the_function_does() -> None:
    assert body_of("    a = 1\n\n    return a\n\nprint(1)\n    b") == "    a = 1\n\n    return a"


def test_the_first_assertion_is_kept_with_what_stands_before_it() -> None:
    cut = first_assertion("def check(f):\n    x = 1\n    assert f(x)\n    assert f(2)")
    assert ast.unparse(ast.parse(cut)) == "def check(f):\n    x = 1\n    assert f(x)"


def test_variants_are_the_same_each_time_and_differ_from_each_other() -> None:
    sentence = "How do I activate my new card?"
    first, second = (variants_of(sentence, 10, np.random.default_rng(1)) for _ in range(2))
    assert first == second
    assert first[0] == sentence
    assert len(set(first)) >= 8


def _run(seed: int, method: str, n_right: int) -> Run:
    return Run(
        scenario="main",
        seed=seed,
        method=method,
        student="lr",
        n_picks=1,
        n_wrong=0,
        n_modes=1,
        n_right=n_right,
        n_test=100,
    )


def test_differences_are_paired_by_seed() -> None:
    runs = [_run(0, "all", 50), _run(0, "top_k", 55), _run(1, "all", 80), _run(1, "top_k", 83)]
    assert differences(runs)["main", "top_k"] == pytest.approx([5.0, 3.0])
    assert "| main (65.0) | +4.0±1.0 |" in table(runs)


def test_a_run_that_was_made_again_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    lines = [json.dumps(_fields(run)) for run in (_run(0, "all", 50), _run(0, "all", 60))]
    file.write_text("\n".join(lines) + "\n")
    assert [run.n_right for run in read_runs([file])] == [60]
