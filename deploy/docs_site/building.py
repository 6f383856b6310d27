"""Builds the site, beside the one that is there until it is whole.

Where nothing that it is made of has changed since, it is left as it is: set-up builds it each time."""

import hashlib
import logging
import os
import shutil
import sys
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort, ConfigurationError
from whitenoise.compress import Compressor

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "docs-site"
STAMP = "made-from.sha256"
SOURCES = (
    *("docs", "examples", "deploy/docs_site", "deploy/env.example", "backend/console/static/console"),
    *("backend/console/glossary.py", "backend/domain", "gpu_runners/cli", "gpu_runners/kolm"),
    *("requirements.lock.txt",),
)


def main() -> int:
    if digest() == (SITE / STAMP).read_text() if (SITE / STAMP).is_file() else False:
        return 0
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        build_site(SITE)
    except (Abort, ConfigurationError) as fault:
        print(f"The documentation could not be built: {fault}", file=sys.stderr)
        return 1
    print(f"The documentation is in {SITE}; open {SITE / 'index.html'}, or /docs/ of the web process.")
    return 0


def build_site(site: Path) -> None:
    """Build into a folder beside `site`, then take its place.

    Raises mkdocs' Abort where a link leads nowhere, or anything else is warned of."""
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    fresh = site.with_name(f"{site.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    config = load_config(str(Path(__file__).parent / "mkdocs.yml"), site_dir=str(fresh))
    build(config)
    compress(fresh)
    (fresh / STAMP).write_text(digest())
    shutil.rmtree(site, ignore_errors=True)
    fresh.rename(site)


def compress(site: Path) -> None:
    """Write a .gz beside each file that becomes smaller by it, for servers that send it as it is."""
    compressor = Compressor(use_brotli=False, quiet=True)
    for file in [path for path in site.rglob("*") if path.is_file() and compressor.should_compress(path.name)]:
        compressor.compress(str(file))


def digest() -> str:
    """A sum of all files that the site is made of, names included."""
    total = hashlib.sha256()
    for file in sorted(path for name in SOURCES for path in _files(ROOT / name)):
        total.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return total.hexdigest()


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file() and one.suffix != ".pyc"]
