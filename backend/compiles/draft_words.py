"""The saving in words: the same sentence and the same rounding on every page, in the API and in a terminal."""

from backend.compiles.draft_savings import DraftSavings
from backend.domain.drafts.vocabulary import Repeatability
from backend.domain.number_words import duration, interval, percent, usd


def summary(savings: DraftSavings) -> str:
    """Say what was saved, in one sentence.

    >>> from backend.compiles.draft_savings import Part
    >>> from backend.domain.drafts.vocabulary import Saving
    >>> summary(DraftSavings(slices=Part(saving=Saving(avoided=900, verification=200), paid_microusd=1100)))
    'Net saving $0.0007, 35.0 % of what synthesis would have cost'
    """
    net, share = usd(savings.net_microusd), per_cent(savings.net_share_ppm)
    if not share:
        return f"Net saving {net}"
    if not savings.includes_labels:
        return f"Net saving {net}, {share} of what synthesis would have cost"
    parts = [
        f"{name} {usd(part.saving.net)} ({per_cent(part.net_share_ppm)} of {step})"
        for name, part, step in (("slices", savings.slices, "synthesis"), ("labels", savings.labels, "labelling"))
        if part.net_share_ppm is not None
    ]
    return f"Net saving {net}, {share} of what synthesis and labelling would have cost: {', '.join(parts)}"


def per_cent(share_ppm: int | None) -> str:
    return "" if share_ppm is None else percent(share_ppm)


def teacher_time(saved_ms: int | None) -> str:
    """Write the seconds; "" where none were measured."""
    return "" if saved_ms is None else duration(saved_ms / 1000)


def acceptance_words(savings: DraftSavings) -> str:
    """Say how many drafts the teacher accepted of those that it was asked about, and how many others there were."""
    share = savings.acceptance
    words = "none was asked about"
    if share.rate_ppm is not None and share.low_ppm is not None and share.high_ppm is not None:
        words = f"{share.k:,} of {share.n:,}, {percent(share.rate_ppm)} {interval(share.low_ppm, share.high_ppm)}"
    repeated = f"; {savings.n_repeated:,} more answer the very same prompt and were not asked about"
    return words + (repeated if savings.n_repeated else "")


def engine_words(savings: DraftSavings) -> str:
    """Say what an engine made of the drafts that it was proposed while it wrote; "" where none told.

    >>> from backend.domain.drafts.vocabulary import EngineTokens
    >>> engine_words(DraftSavings(engine=EngineTokens(written=6400, proposed=8969, kept=3661)))
    '3,661 of 6,400 tokens came from drafts: 2.34 tokens a pass of the engine (of 8,969 proposed tokens it kept 40.8 %)'
    """
    engine = savings.engine
    if engine.per_pass is None or not engine.proposed:
        return ""
    return (
        f"{engine.kept:,} of {engine.written:,} tokens came from drafts: {engine.per_pass:.2f} tokens a pass of the "
        f"engine (of {engine.proposed:,} proposed tokens it kept {percent(engine.kept * 1_000_000 // engine.proposed)})"
    )


def repeatability_words(measured: Repeatability) -> str:
    """Say how far an exact certificate is exact, in total variation; "" where nothing was scored twice.

    >>> repeatability_words(Repeatability(n_tokens=812, tv_sum=0.25984))
    'Exact up to the engine’s own repeatability: two runs of a score differ by 0.00032 a token (812 tokens)'
    """
    if measured.per_token is None:
        return ""
    return (
        "Exact up to the engine’s own repeatability: two runs of a score differ by "
        f"{measured.per_token:.2g} a token ({measured.n_tokens:,} tokens)"
    )


def is_built_in(teacher: str) -> bool:
    """Say whether a scope's teacher is the built-in grammar, whose judge is exact."""
    return teacher.startswith("grammar/")
