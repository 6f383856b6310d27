"""Reading the draft cache."""

from typing import Any
from uuid import UUID

from django.db.models import Count, Max, Sum

from backend.drafts.models import Draft


def stats(tenant_id: UUID) -> list[dict[str, Any]]:
    """Per family, teacher and embedder: how many drafts, their tokens, and what they cost to write."""
    rows = (
        Draft.objects.filter(tenant_id=tenant_id)
        .values("family", "teacher", "embedder")
        .annotate(n=Count("id"), tokens=Sum("n_tokens"), cost=Sum("cost_microusd"), newest=Max("created_at"))
        .order_by("family", "teacher", "embedder")
    )
    return list(rows)
