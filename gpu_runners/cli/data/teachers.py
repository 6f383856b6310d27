"""The teacher of a drafted spec from what is typed: a vendor with or without a model, the demonstration, an address."""

from collections.abc import Mapping
from typing import Any

from gpu_runners.cli.api.connection import Connect
from gpu_runners.kolm import KolmError


def teacher_of(text: str, model: str | None) -> dict[str, Any]:
    """The teacher of a spec. Raises ValueError."""
    from backend.domain.money.teacher_catalog import VENDORS, find_vendor
    from backend.domain.source_data.spec_draft import DEMO_TEACHER

    if text == "demo":
        return dict(DEMO_TEACHER)
    if text.startswith(("http://", "https://")):
        if model is None:
            raise ValueError("An address needs the model's name there: --teacher-model MODEL.")
        return {"provider": "openai_compatible", "base_url": text, "model": model}
    provider, _, named = text.partition(":")
    vendor = find_vendor(provider.lower())
    if vendor is None:
        names = ", ".join(each.provider for each in VENDORS)
        raise ValueError(f"{provider!r} is no vendor that is known here: {names}, demo, or an address.")
    return {"provider": "openai_compatible", "base_url": vendor.base_url, "model": model or named or vendor.suggested}


def stored_key(connect: Connect, teacher: Mapping[str, Any]) -> str | None:
    """The newest stored key that is called after the vendor; None without a login, or without such a key."""
    from backend.domain.money.teacher_catalog import VENDORS

    vendor = next((each for each in VENDORS if each.base_url == teacher.get("base_url")), None)
    if vendor is None:
        return None
    try:
        with connect() as client:
            keys = client.teacher_keys.list(limit=100)
            return next(
                (key.id for key in keys if vendor.provider in key.name.lower() or vendor.name in key.name), None
            )
    except KolmError:
        return None
