"""The types that the parts of a spec are made of: the strict base model, texts, names, amounts."""

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

MAX_TEXT_CHARS = 4000  # one input, exemplar or capture
MAX_LABELS = 256
MAX_SLICES = 256
MAX_INLINE = 10_000


def _decimal(value: object) -> object:
    # through repr: 0.1 as the customer wrote it, not 0.1000000000000000055
    return Decimal(repr(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


Money = Annotated[
    Decimal, BeforeValidator(_decimal, json_schema_input_type=float), PlainSerializer(float, return_type=float)
]
PRICE_BOUNDS: dict[str, Any] = {
    "minimum": 0,
    "maximum": 10_000,
}  # pydantic leaves the bounds of a Decimal out of the schema
BUDGET_BOUNDS: dict[str, Any] = {"exclusiveMinimum": 0, "maximum": 100_000, "default": 5.0}
Slug = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$")]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS, pattern=r"\S")]
UPLOAD_NAME = r"^[^/\\\x00-\x1f\x7f]{1,100}$"  # an id, or the name of the newest upload that has it
UploadId = Annotated[str, Field(pattern=UPLOAD_NAME)]
TeacherKeyId = Annotated[str, Field(pattern=r"^tk_[0-9a-hjkmnp-tv-z]{26}$")]


class Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
