"""Cost tags in requests."""

from typing import Any

from rest_framework import serializers as s

from backend.domain.cost_tags import MOST_TAGS, check_tags
from backend.domain.errors import InvalidInput


class CostTags(s.DictField):
    """A whole set of tags: it replaces the one before."""

    def __init__(self, **options: Any) -> None:
        help_text = f'Cost tags, such as {{"team": "search"}}: {MOST_TAGS} at most. They replace those of before.'
        super().__init__(child=s.CharField(trim_whitespace=False, allow_blank=True), help_text=help_text, **options)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        tags = super().to_internal_value(data)
        try:
            return check_tags(tags)
        except InvalidInput as wrong:
            raise s.ValidationError(wrong.message, code="bad_tags") from None
