"""The hooks of mkdocs, which loads this file by its path: generated pages, links that leave docs/, pictures that follow
the theme, anchors of glossary terms, and the console's own colours."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from backend.console.glossary import add_anchors
from deploy.docs_site.links import relink
from deploy.docs_site.reference.client import client_page
from deploy.docs_site.reference.commands import commands_page
from deploy.docs_site.reference.http_api import api_pages
from deploy.docs_site.reference.spec_page import spec_page

ROOT = Path(__file__).resolve().parents[2]
CONSOLE = ROOT / "backend" / "console" / "static" / "console"
COPIED = ("examples", "deploy/env.example")  # what pages link to outside docs/, and the site has too
UNSEARCHED = (
    "decisions/",
    "lines.md",
    "structure.md",
)  # for contributors: nobody who searches the product's pages looks for them
_TOKENS = re.compile(r":root \{.*?\n\}", re.DOTALL)
_PICTURE = re.compile(r'<p><img alt="([^"]*)" src="(?:[^"]*/)?pictures/([\w-]+\.svg)"\s*/?></p>')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.extra["generated"] = generated = {
        "reference/cli.md": commands_page(),
        "reference/python.md": client_page(),
        "reference/spec.md": spec_page(),
        **{f"reference/api/{name}.md": text for name, text in api_pages(ROOT / "docs" / "openapi.json").items()},
    }
    pages = sorted(
        [str(path.relative_to(config.docs_dir)) for path in Path(config.docs_dir).rglob("*.md")] + [*generated]
    )
    config.nav = _expand(config.nav, pages)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, text in config.extra["generated"].items():
        files.append(File.generated(config, name, content=text))
    for path in _files_to_copy():
        name = str(path.relative_to(ROOT))
        files.append(File.generated(config, name, abs_src_path=str(path)))
    tokens = _TOKENS.search((CONSOLE / "console.css").read_text(encoding="utf-8"))
    assert tokens is not None, "console.css begins with its tokens"
    files.append(File.generated(config, "assets/tokens.css", content=tokens[0] + _THEMES))
    for name in ("theme.js", "mark.svg"):
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(CONSOLE / name)))
    return files


_THEMES = '\n:root[data-theme="light"] { color-scheme: light; }\n:root[data-theme="dark"] { color-scheme: dark; }\n'


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    copied = {f"../{path.relative_to(ROOT)}": str(path.relative_to(ROOT)) for path in _files_to_copy()}
    if page.file.src_uri.startswith(UNSEARCHED):
        page.meta["search"] = {"exclude": True}
    if page.file.src_uri == "glossary.md":
        markdown = add_anchors(markdown)
    return relink(markdown, page.file.src_uri, lambda path: copied.get(path))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put pictures into the page, where the page's colours reach them."""
    return _PICTURE.sub(lambda match: _figure(Path(config.docs_dir) / "pictures" / match[2], match[1]), html)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the search index as a script as well, which a page that was opened from a disk can load; leave out what no
    page loads: other languages, source maps, a page for servers that know no better."""
    site = Path(config.site_dir)
    unused = [*site.rglob("*.map"), site / "404.html", *site.glob("sitemap.xml*")]
    for file in unused:
        file.unlink()
    shutil.rmtree(site / "assets" / "javascripts" / "lunr")
    folder = Path(config.site_dir) / "search"
    index = json.loads((folder / "search_index.json").read_text(encoding="utf-8"))
    (folder / "search_index.js").write_text(f"var __index = {json.dumps(index)};\n", encoding="utf-8")


def _files_to_copy() -> list[Path]:
    files = [path for name in COPIED for path in [ROOT / name, *(ROOT / name).rglob("*")]]
    return [path for path in files if path.is_file()]


def _expand(nav: Any, pages: list[str]) -> Any:
    """The navigation with a folder's pages in the place of `folder/*`."""
    if isinstance(nav, str) and nav.endswith("/*"):
        return [page for page in pages if page.startswith(nav[:-1])]
    if isinstance(nav, list):
        return [_expand(item, pages) for item in nav]
    return {name: _expand(item, pages) for name, item in nav.items()} if isinstance(nav, dict) else nav


def _figure(file: Path, words: str) -> str:
    """An SVG in the page: its own style, which serves readers of the bare file, is left out; docs.css has the same."""
    svg = re.sub(r"<style>.*?</style>|<\?xml.*?\?>|<!--.*?-->", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1)
    return f'<figure class="picture">{svg.strip()}</figure>'
