"""Every page of the console, from the resolver: a page that is added is looked at without anyone saying so."""

from dataclasses import dataclass

from django.urls import URLPattern, get_resolver

from backend.console import urls
from backend.domain.roles import Permission

# of the addresses, those that are not pages to look at: they change something, stream, download, or are parts of pages
NOT_PAGES = frozenset(
    {
        "artifact_download",
        "compile_data_jsonl",
        "compile_drafts",
        "compile_events",
        "compile_part",
        "overview_running",
        "search",
        "settings_export",
        "usage_csv",
    }
)


@dataclass(frozen=True, kw_only=True)
class Address:
    """`route` has `<str:compile>` and its like; `permission` is what the page asks for."""

    name: str
    route: str
    permission: Permission | None
    arguments: tuple[str, ...]


def console_addresses() -> list[Address]:
    """All of them, pages or not."""
    found = []
    for pattern in urls.urlpatterns:
        for inner in getattr(pattern, "url_patterns", []):
            assert isinstance(inner, URLPattern)
            found.append(
                Address(
                    name=str(inner.name),
                    route=f"/app/{inner.pattern}",
                    permission=getattr(inner.callback, "permission", None),
                    arguments=tuple(inner.pattern.converters),
                )
            )
    assert get_resolver()  # the whole table of addresses can be built
    return found
