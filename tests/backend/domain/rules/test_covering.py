import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.rules.covering import Proposal, cover, lower_bounds

N_TEXTS = 14
PROPOSALS = st.lists(
    st.dictionaries(st.integers(0, N_TEXTS - 1), st.booleans(), min_size=1, max_size=N_TEXTS), max_size=8
)


def bound(right: int, covered: int) -> float:
    return round(float(lower_bounds(np.array([right]), np.array([covered]))[0]), 6)


def cover_by_definition(proposals: list[dict[int, bool]], floor: float) -> list[tuple[int, int, int]]:
    left = set(range(N_TEXTS))
    found = []
    while True:
        counts = [(sum(ok for t, ok in p.items() if t in left), len(left & p.keys())) for p in proposals]
        scores = [bound(right, covered) if right >= 2 else 0.0 for right, covered in counts]
        at = max(range(len(scores)), key=lambda i: (scores[i], -i), default=-1)
        if at < 0 or scores[at] < floor or counts[at][0] < 2:
            return found
        found.append((at, counts[at][1], counts[at][0]))
        left -= proposals[at].keys()


@settings(deadline=None)
@given(PROPOSALS)
def test_the_surest_proposal_is_taken_and_its_texts_leave(made: list[dict[int, bool]]) -> None:
    proposals = [
        Proposal(rows=np.array(sorted(p), np.int64), rights=np.array([p[t] for t in sorted(p)], np.bool_)) for p in made
    ]
    found = cover(proposals, N_TEXTS, max_rules=99, min_right=2, floor=0.2)
    assert [(one.at, one.covered, one.right) for one in found] == cover_by_definition(made, 0.2)


def test_more_right_answers_are_surer() -> None:
    assert bound(3, 3) < bound(10, 10) < bound(100, 100) < 1.0
    assert bound(9, 10) < bound(10, 10)
    assert bound(0, 0) == 0.0


def test_no_more_rules_are_made_than_asked_for() -> None:
    rows = [np.arange(at, at + 5) for at in (0, 5, 10)]
    proposals = [Proposal(rows=row, rights=np.ones(5, np.bool_)) for row in rows]
    assert len(cover(proposals, 15, max_rules=2, min_right=3, floor=0.1)) == 2
