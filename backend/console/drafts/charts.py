"""The charts of the draft cache's page: which numbers, in which words."""

from collections.abc import Sequence

from django.utils.safestring import SafeString

from backend.console.charts import columns, intervals
from backend.console.drafts.figures import SavedDay
from backend.console.templatetags.kolm import count, pct, usd, usd_short
from backend.drafts.shapes import Rate


def savings_chart(days: Sequence[SavedDay]) -> SafeString:
    """Draw what the cache avoided, parted into what verifying it cost and what remained. A day that lost money has no
    remainder."""
    rows = [(f"{row.day:%m-%d}", [max(0, row.net), row.costs]) for row in days]
    net = sum(row.net for row in days)
    desc = f"{usd(net)} net of {usd(sum(row.avoided for row in days))} avoided"
    return columns(rows, ["Net saving", "Verification and audits"], title="Savings by day", desc=desc, write=usd_short)


def acceptance_chart(bands: Sequence[tuple[float, Rate]]) -> SafeString | None:
    """Bands of cosine distance, each with its exact interval; None where no verifier was asked."""
    rows = [
        (
            f"from {distance:.2f}, {count(rate.k)} of {count(rate.n)}",
            (rate.low_ppm or 0) / 1e6,
            rate.rate_ppm / 1e6,
            (rate.high_ppm or 0) / 1e6,
        )
        for distance, rate in bands
        if rate.rate_ppm is not None
    ]
    return intervals(rows, title="Acceptance by distance", write=pct) if rows else None
