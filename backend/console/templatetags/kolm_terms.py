"""The terms of the glossary in the console's pages."""

from django import template
from django.utils.html import format_html

from backend.console.glossary import terms

register = template.Library()


@register.simple_tag(takes_context=True)
def term(context: template.Context, name: str, words: str = "") -> str:
    """A term that shows its definition to the pointer and to the keyboard, and leads to the glossary.

    Once a page: further uses of a term are the bare words. `{% term "slice" "slices" %}` writes another form of it."""
    entry = terms().get(name)
    request = context.get("request")
    shown = request.__dict__.setdefault("terms_shown", set()) if request is not None else set()
    if entry is None or name in shown:
        return words or name
    shown.add(name)
    return format_html(
        '<a class="term" href="/docs/glossary#{}" aria-description="{}">{}</a>',
        entry.anchor,
        entry.sentence,
        words or name,
    )
