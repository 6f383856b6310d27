"""The vendors that a newcomer chooses a teacher from: an address, what their keys begin with, and the models whose
price is known. The suggested model is the cheap one of its vendor's newest models; no vendor was measured for it."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from backend.domain.money.vendor_prices import PriceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherVendor:
    """`key_starts` are what its API keys begin with, where they all begin alike."""

    provider: str
    name: str
    base_url: str
    suggested: str
    keys_at: str
    key_starts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedModel:
    """US dollars a million tokens."""

    model: str
    input_usd: Decimal
    output_usd: Decimal
    is_suggested: bool


VENDORS = (
    TeacherVendor(
        provider="openai",
        name="OpenAI",
        base_url="https://api.openai.com/v1",
        suggested="gpt-5-mini",
        keys_at="platform.openai.com/api-keys",
        key_starts=("sk-proj-", "sk-svcacct-", "sk-admin-"),
    ),
    TeacherVendor(
        provider="anthropic",
        name="Anthropic",
        base_url="https://api.anthropic.com/v1",
        suggested="claude-haiku-5-5",
        keys_at="console.anthropic.com/settings/keys",
        key_starts=("sk-ant-",),
    ),
    TeacherVendor(
        provider="google",
        name="Google Gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        suggested="gemini-3.5-flash-lite",
        keys_at="aistudio.google.com/apikey",
        key_starts=("AIza",),
    ),
    TeacherVendor(
        provider="mistral",
        name="Mistral",
        base_url="https://api.mistral.ai/v1",
        suggested="mistral-small-2603",
        keys_at="console.mistral.ai/api-keys",
    ),
    TeacherVendor(
        provider="groq",
        name="Groq",
        base_url="https://api.groq.com/openai/v1",
        suggested="openai/gpt-oss-120b",
        keys_at="console.groq.com/keys",
        key_starts=("gsk_",),
    ),
    TeacherVendor(
        provider="deepseek",
        name="DeepSeek",
        base_url="https://api.deepseek.com/v1",
        suggested="deepseek-v4-flash",
        keys_at="platform.deepseek.com/api_keys",
    ),
    TeacherVendor(
        provider="together",
        name="Together",
        base_url="https://api.together.xyz/v1",
        suggested="openai/gpt-oss-120b",
        keys_at="api.together.ai/settings/api-keys",
    ),
    TeacherVendor(
        provider="fireworks",
        name="Fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        suggested="accounts/fireworks/models/gpt-oss-20b",
        keys_at="app.fireworks.ai/settings/users/api-keys",
        key_starts=("fw_",),
    ),
    TeacherVendor(
        provider="xai",
        name="xAI",
        base_url="https://api.x.ai/v1",
        suggested="grok-4.3",
        keys_at="console.x.ai",
        key_starts=("xai-",),
    ),
    TeacherVendor(
        provider="cerebras",
        name="Cerebras",
        base_url="https://api.cerebras.ai/v1",
        suggested="gpt-oss-120b",
        keys_at="cloud.cerebras.ai",
        key_starts=("csk-",),
    ),
)
_OF = {vendor.provider: vendor for vendor in VENDORS}


def find_vendor(provider: str) -> TeacherVendor | None:
    return _OF.get(provider)


def models_of(vendor: TeacherVendor, rows: Iterable[PriceRow]) -> list[PricedModel]:
    """The vendor's models with a price, the suggested one first, then the cheapest; dated snapshots of a model that is
    there itself are left out."""
    own = {row.model: row for row in rows if row.provider == vendor.provider}
    plain = [row for row in own.values() if not any(row.model.startswith(f"{name}-20") for name in own)]
    models = [
        PricedModel(
            model=row.model,
            input_usd=row.input_usd_per_mtok,
            output_usd=row.output_usd_per_mtok,
            is_suggested=row.model == vendor.suggested,
        )
        for row in plain
    ]
    return sorted(models, key=lambda each: (not each.is_suggested, each.output_usd, each.model))


def vendor_of_key(key: str) -> TeacherVendor | None:
    """The vendor whose keys begin as this one does.

    >>> vendor_of_key("sk-ant-api03-abc").name
    'Anthropic'
    """
    return next((vendor for vendor in VENDORS if key.strip().startswith(vendor.key_starts or ("\0",))), None)


def wrong_vendor(key: str, vendor: TeacherVendor) -> str | None:
    """Say that a key is another vendor's, where its beginning shows it; nothing of the key is repeated."""
    owner = vendor_of_key(key)
    if owner is None or owner.provider == vendor.provider:
        return None
    choice = f"Choose {owner.name}, or paste a key of {vendor.name}."
    return f"This looks like a key of {owner.name}, and {vendor.name} is chosen. {choice}"
