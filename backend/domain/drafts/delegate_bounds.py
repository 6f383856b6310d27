"""The bounds within which another model judges drafts in the teacher's place: its controls must not show that it is
none, and what it accepts is audited by the teacher.

A lenient judge accepts the texts of other labels that are planted among the drafts, a blind one refuses what the
teacher just wrote for the slice. Both shares are bounded at all times at once (`confidence_sequences`), so they may be
looked at before every question. Below the least share beyond doubt it is no judge, after whatever number of controls;
after ENOUGH_CONTROLS it must be one beyond doubt.
"""

from backend.domain.confidence_sequences import anytime_high, anytime_low
from backend.domain.drafts.judge_controls import ControlCounts

# A judge that lets one text of another label in five pass lets wrong drafts through that no audit of a tenth of the
# slices finds for hundreds of slices; one that refuses every other good draft pays for two verdicts a draft.
LEAST_SPECIFICITY = 0.8
LEAST_SENSITIVITY = 0.5
# Of 4,000 simulated judges looked at after each of 400 controls, 0.4 % of those of specificity .97 are refused, 8 % at
# .95, 77 % at .9, all at .85 (with 60 in place of 100: 12, 42, 93 %). One that accepts everything is below .8 beyond
# doubt after three controls, one that accepts half of them after 18 (median).
ENOUGH_CONTROLS = 100
ALPHA = 0.05 / 2  # specificity and sensitivity share the error
# Accepted drafts that the teacher is asked about again, one in every slice, before the spec's share is enough: of 30
# audits of a judge of which a fifth is bad, four to eight say so.
FIRST_AUDITS = 30


def why_no_judge(controls: ControlCounts) -> str:
    """The reason why a model with these controls judges no drafts, in a sentence; "" where it may."""
    n, refused = controls.n_negative, controls.n_negative - controls.n_negative_accepted
    if _is_below(refused, n, LEAST_SPECIFICITY):
        return f"it refused {refused} of {n} planted texts of other slices, and at least 80 % are asked for"
    n, accepted = controls.n_positive, controls.n_positive_accepted
    if _is_below(accepted, n, LEAST_SENSITIVITY):
        return f"it accepted {accepted} of {n} texts that the teacher just wrote, and at least 50 % are asked for"
    return ""


def audit_share(n_audited: int, share: float) -> float:
    """The share of the slices with drafts by another model's word that are audited.

    >>> audit_share(29, 0.1), audit_share(30, 0.1)
    (1.0, 0.1)
    """
    return 1.0 if n_audited < FIRST_AUDITS else share


def _is_below(k: int, n: int, least: float) -> bool:
    return anytime_high(k, n, ALPHA) < least or (n >= ENOUGH_CONTROLS and anytime_low(k, n, ALPHA) < least)
