"""What was booked of what a tenant's artifacts answered, and what must hold of it whoever died meanwhile."""

from collections import Counter

from backend.domain.serving.deployments import CACHED_SKU, COMPLETION_SKU, PROMPT_SKU
from tests.acceptance.deployment import Customer, Deployment, Row

SKUS = (PROMPT_SKU, CACHED_SKU, COMPLETION_SKU)


def served_facts(deployment: Deployment, customer: Customer) -> list[Row]:
    query = "SELECT * FROM usage_usagefact WHERE tenant_id = %s AND sku LIKE 'serving.%%' ORDER BY occurred_at"
    return deployment.rows(query, customer.tenant_id)


def tokens_of(facts: list[Row]) -> Counter[str]:
    """Quantities by SKU."""
    told: Counter[str] = Counter()
    for fact in facts:
        told[fact["sku"]] += fact["quantity"]
    return told


def n_answers(facts: list[Row]) -> int:
    """How many answers were booked: every one has a fact of its completion."""
    heads = [fact["source_key"].rpartition(":")[0] for fact in facts if fact["sku"] == COMPLETION_SKU]
    assert len(heads) == len(set(heads))
    assert {fact["source_key"].rpartition(":")[0] for fact in facts} == set(heads)
    return len(heads)


def promised(deployment: Deployment, customer: Customer) -> int:
    """Micro-USD that are kept for answers whose end nobody has told."""
    query = "SELECT coalesce(sum(promised_microusd), 0) AS n FROM usage_allowance WHERE tenant_id = %s AND is_open"
    return int(deployment.rows(query, customer.tenant_id)[0]["n"])


def ledger_is_whole(deployment: Deployment) -> bool:
    """`manage.py ledger_check` finds nothing."""
    check = deployment.python("manage.py", "ledger_check")
    return check.wait(timeout=60) == 0
