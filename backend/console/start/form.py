"""The guided form as a spec: what a person answered, and the text that the editor would show for it."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import QueryDict

from backend.domain.errors import InvalidInput
from backend.domain.money.teacher_catalog import VENDORS, PricedModel, TeacherVendor, find_vendor, models_of
from backend.domain.money.vendor_prices import shipped_prices
from backend.domain.source_data.source import Source
from backend.domain.source_data.spec_draft import DEMO_TEACHER, DraftOptions, draft_spec

DEMO, OTHER = "demo", "other"
USUAL_BUDGET = "5"
MOST_DESCRIBED = 40  # labels with a line of their own in the form
MOST_USD = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StartForm:
    """The answers as they were typed, so that they can be shown again."""

    name: str
    task: str
    provider: str
    model: str
    base_url: str
    api_key: str
    price_input: str
    price_output: str
    budget: str
    descriptions: tuple[str, ...]

    @classmethod
    def of(cls, data: QueryDict, *, name: str, task: str, n_labels: int) -> "StartForm":
        """The form that was sent; what it leaves out is `name` and `task` of the data, and the usual."""

        def text(field: str, usual: str = "", most: int = 200) -> str:
            return " ".join(data.get(field, usual).split())[:most]

        return cls(
            name=text("name", name, 64),
            task=data.get("task", task).strip()[:4000],
            provider=text("provider", "openai"),
            model=text("model"),
            base_url=text("base_url", most=2000),
            api_key=text("api_key", most=40),
            price_input=text("price_input", most=20),
            price_output=text("price_output", most=20),
            budget=text("budget", USUAL_BUDGET, 20).removeprefix("$"),
            descriptions=tuple(text(f"about-{n}", most=1000) for n in range(min(n_labels, MOST_DESCRIBED))),
        )

    @property
    def vendor(self) -> TeacherVendor | None:
        return find_vendor(self.provider)

    @property
    def is_demo(self) -> bool:
        return self.provider == DEMO

    @property
    def teacher_url(self) -> str:
        return self.base_url if self.vendor is None else self.vendor.base_url

    @property
    def models(self) -> list[PricedModel]:
        """The vendor's models with their prices; the operator's go before the shipped ones, as for a compile."""
        if self.vendor is None:
            return []
        own = {(row.provider, row.model) for row in settings.KOLM_TEACHER_PRICES.rows}
        shipped = [row for row in shipped_prices().rows if (row.provider, row.model) not in own]
        return models_of(self.vendor, [*settings.KOLM_TEACHER_PRICES.rows, *shipped])

    def spec_text(self, source: Source, upload: str) -> str:
        """The spec. Raises InvalidInput for a number that is none."""
        names = [label.name for label in source.profile.labels]
        described = {name: text for name, text in zip(names, self.descriptions, strict=False) if text}
        options = DraftOptions(
            name=self.name,
            task=self.task,
            teacher=self._teacher(),
            budget_usd=_amount(self.budget, "The budget"),
            upload=upload,
            descriptions=described,
        )
        return draft_spec(source, options)

    def _teacher(self) -> dict[str, Any]:
        if self.is_demo:
            return dict(DEMO_TEACHER)
        vendor = self.vendor
        teacher: dict[str, Any] = {"provider": "openai_compatible", "base_url": self.teacher_url}
        is_known = vendor is None or any(each.model == self.model for each in self.models)
        teacher["model"] = self.model if is_known or vendor is None else vendor.suggested
        if self.api_key:
            teacher["api_key"] = self.api_key
        prices = {"input_usd_per_mtok": self.price_input, "output_usd_per_mtok": self.price_output}
        if any(prices.values()):
            teacher["price"] = {
                name: float(_amount(text or "0", "The price", least=0)) for name, text in prices.items()
            }
        return teacher


def provider_choices() -> list[tuple[str, str]]:
    vendors = [(vendor.provider, vendor.name) for vendor in VENDORS]
    return [
        *vendors,
        (OTHER, "Another OpenAI-compatible address"),
        (DEMO, "Built-in demonstration (knows the examples)"),
    ]


def is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _amount(text: str, what: str, *, least: float = 0.0) -> Decimal:
    try:
        amount = Decimal(text.replace(",", ""))
    except InvalidOperation:
        raise InvalidInput(f"{what} must be an amount in US dollars, such as 5 or 0.50.") from None
    if not amount.is_finite() or not least <= amount <= MOST_USD:
        raise InvalidInput(f"{what} must lie between {least:g} and {MOST_USD:,} US dollars.")
    return amount
