"""The verifiers of a spec over candidates and answers, with patterns and texts made to stop a worker."""

import time

import numpy as np
import pytest

from backend.domain.spec.parsing import Spec, TextOutput
from tests.backend.domain.patterns.test_matching import AUDITED
from tests.compile_factories import small_spec
from workers.scoring.answer_checks import failed_checks
from workers.scoring.verifier import gate_reasons, rank_scores

POISON = ["ix" * 40 + "!", "a" * 4_000, "ab" * 2_000, "ix" * 50_000, "ab" * 49_999 + "!!", "\ud800" * 1_000]
MOST_CPU_S = 0.1


def spec_of(*verifiers: dict) -> Spec:
    return Spec.model_validate(small_spec(verifiers=list(verifiers)))


@pytest.mark.parametrize("pattern", AUDITED)
def test_a_poisoned_candidate_is_judged_at_once(pattern):
    gate = spec_of({"kind": "regex", "pattern": pattern, "gate": True})
    rank = spec_of({"kind": "regex", "pattern": pattern, "gate": False})
    check = TextOutput.model_validate(
        {"type": "text", "max_chars": 20_000, "checks": [{"kind": "regex", "pattern": pattern}]}
    )
    gate_reasons(gate, "a")  # the pattern is read with the first
    none = np.zeros((0, 2))
    for text in POISON:
        for judge in (
            lambda text=text: gate_reasons(gate, text),
            lambda text=text: rank_scores(rank, [text], none, none),
            lambda text=text: failed_checks(check, [("", text)]),
        ):
            spent = []
            while len(spent) < 3 and (not spent or spent[-1] >= MOST_CPU_S):
                started = time.thread_time()
                judge()
                spent.append(time.thread_time() - started)
            assert min(spent) < MOST_CPU_S


def test_a_pattern_gates_and_ranks_by_what_it_means():
    spec = spec_of({"kind": "regex", "pattern": r"(?i)\brefund(s|ed)?\b", "gate": True})
    assert gate_reasons(spec, "REFUNDED yet?") == ()
    assert gate_reasons(spec, "refundable") == ("regex",)
    rank = spec_of({"kind": "regex", "pattern": "^a"})
    assert rank_scores(rank, ["ab", "ba"], np.zeros((2, 2)), np.zeros((0, 2))) == [1.0, 0.0]
