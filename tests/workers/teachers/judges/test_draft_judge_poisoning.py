"""Drafts that talk to the judge. Simulated judges give in to them with a stated probability; the controls keep what
that lets through near the judge's own errors, and audits end an attack that gets past the controls."""

import random
from dataclasses import dataclass

import pytest

from backend.domain.drafts.judge_controls import Audits, ControlCounts, audits_of, bad_rate, controls_of
from backend.domain.drafts.vocabulary import VerdictKind, Verification
from tests.workers.teachers.judges.simulated_judges import NoisyJudge, asked_about, drafts_of, hold
from workers.teachers.judges.draft_judge import JudgeVerifier

N_BATCHES = 4000
PER_BATCH = 8


@dataclass
class Seen:
    n_poisons: int = 0
    n_poisons_accepted: int = 0
    n_accepted: int = 0
    n_bad_accepted: int = 0
    n_asked_again: int = 0

    def count(self, text: str) -> None:
        self.n_accepted += 1
        self.n_bad_accepted += not text.startswith("good")
        self.n_poisons_accepted += text.startswith("poison")

    @property
    def bad_share(self) -> float:
        return self.n_bad_accepted / self.n_accepted


def batches(seed: int) -> list[list[str]]:
    """Six in ten drafts are good; one batch in twenty holds a poison."""
    rng = random.Random(seed)
    made = []
    for b in range(N_BATCHES):
        texts = [f"{'good' if rng.random() < 0.6 else 'bad'} {b} {i}" for i in range(PER_BATCH)]
        if rng.random() < 0.05:
            texts[rng.randrange(PER_BATCH)] = f"poison {b}"
        made.append(texts)
    return made


def with_controls(all_texts: list[list[str]], judge: NoisyJudge) -> Seen:
    seen, rng, verifier, asked = Seen(), random.Random(2), JudgeVerifier(), asked_about()
    for texts in all_texts:
        found, rounds = hold(verifier.verify(asked, drafts_of(texts), rng), judge)
        seen.n_poisons += any(text.startswith("poison") for text in texts)
        seen.n_asked_again += len(rounds) > 1
        for text, verdict in zip(texts, found.verdicts, strict=True):
            if verdict.is_accepted:
                seen.count(text)
    return seen


def without_controls(all_texts: list[list[str]], judge: NoisyJudge) -> Seen:
    """What the same judge would have let in, asked once about the drafts alone."""
    seen = Seen()
    for texts in all_texts:
        for text, is_accepted in judge.verdicts({text: text for text in texts}).items():
            if is_accepted:
                seen.count(text)
    return seen


@pytest.mark.parametrize(("flip", "most_accepted"), [(1.0, 0), (0.5, 10)])
def test_one_negative_control_cuts_poisoned_acceptances_to_the_judges_own_errors(
    flip: float, most_accepted: int
) -> None:
    texts = batches(1)
    open_ = without_controls(texts, NoisyJudge(random.Random(3), flip=flip))
    guarded = with_controls(texts, NoisyJudge(random.Random(3), flip=flip))
    assert guarded.n_poisons > 170
    assert open_.n_poisons_accepted > 0.9 * flip * guarded.n_poisons
    assert guarded.n_poisons_accepted <= most_accepted
    assert open_.bad_share > 0.035
    assert guarded.bad_share < 0.025  # of a judge without poison: 2.0 % at these rates
    assert guarded.n_asked_again < 0.1 * N_BATCHES


def stream(
    n_slices: int, *, poisons: dict[int, int], flip: float, is_targeted: bool
) -> list[tuple[list[str], Verification, Verification]]:
    """Slices one after another; each has randomness of its own, so that two streams differ only where their drafts
    do. `poisons` has how many of a slice's twelve drafts are poisoned."""
    verifier = JudgeVerifier()
    asked = asked_about(fresh=("fresh one", "fresh two"))
    out = []
    for i in range(n_slices):
        rng = random.Random(f"slice {i}")
        judge = NoisyJudge(random.Random(f"judge {i}"), flip=flip, is_targeted=is_targeted)
        texts = [f"{'good' if rng.random() < 0.8 else 'bad'} {i} {j}" for j in range(12)]
        texts[: poisons.get(i, 0)] = [f"poison {i} {j}" for j in range(poisons.get(i, 0))]
        found, _ = hold(verifier.verify(asked, drafts_of(texts), rng), judge)
        accepted = drafts_of([verdict.text for verdict in found.verdicts if verdict.is_accepted])
        audited, _ = hold(verifier.audit(asked, accepted, rng), judge)
        out.append((texts, found, audited))
    return out


def test_one_bad_batch_says_nothing_that_later_slices_learn_from() -> None:
    clean = stream(60, poisons={}, flip=1.0, is_targeted=False)
    struck = stream(60, poisons={20: 12}, flip=1.0, is_targeted=False)
    assert {verdict.kind for verdict in struck[20][1].verdicts} == {VerdictKind.VOID}
    assert not any(verdict.is_accepted for verdict in struck[20][1].verdicts)
    assert [found for i, found in enumerate(clean) if i != 20] == [found for i, found in enumerate(struck) if i != 20]


def first_suspended(slices: list[tuple[list[str], Verification, Verification]], bound: float = 0.02) -> int | None:
    """The slice after which the audited share of bad drafts is above the bound beyond doubt, looked at after each."""
    controls, audits = ControlCounts(), Audits()
    for i, (_, found, audited) in enumerate(slices):
        controls += controls_of(found.controls) + controls_of(audited.controls)
        audits += audits_of(audited.verdicts)
        if audited.verdicts and bad_rate(audits, controls).is_above(bound):
            return i
    return None


def test_an_attack_that_spares_the_control_is_ended_by_audits() -> None:
    """A poison that speaks for itself alone passes the negative control; every second time the judge gives in. Where
    two drafts in three are such, audits suspend the family. (One to which the judge always gives in is never found: the
    same judge is asked.)"""
    attacked = stream(300, poisons=dict.fromkeys(range(300), 8), flip=0.5, is_targeted=True)
    ended = first_suspended(attacked)
    assert ended is not None
    assert ended < 300


def test_an_honest_stream_is_not_suspended_for_one_bad_batch() -> None:
    for poisons in ({}, {10: 12}):
        honest = stream(120, poisons=poisons, flip=1.0, is_targeted=True)
        assert first_suspended(honest) is None
