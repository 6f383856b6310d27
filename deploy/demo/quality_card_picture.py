"""The picture of an artifact's quality card, as the README shows it: `python -m deploy.demo.quality_card_picture FILE
[--out docs/quality-card.svg]`. The figures are the file's own (`card.json`); nothing is drawn that it does not have."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.console.charts.cards import ROW, card_picture
from backend.domain.artifact.kolm_verify import read_kolm
from backend.domain.evaluation import card_words

WIDTH, MARGIN, HEAD, LINE = 760, 20, 34, 18
OUT = Path("docs/quality-card.svg")
# the console's colours, light and dark
STYLE = """
svg { font: 12px system-ui, "Segoe UI", Roboto, sans-serif; }
text { fill: #55585f; } .name, .value, .title { fill: #17191d; } .title { font-weight: 600; font-size: 14px; }
.value { font-family: ui-monospace, Menlo, "DejaVu Sans Mono", monospace; } .paper { fill: #ffffff; }
.track { fill: #dfe1e6; } .s1 { fill: #2245c2; } .s5 { fill: #7a7d84; } .whisker { stroke: #17191d; stroke-width: 1.2; }
@media (prefers-color-scheme: dark) {
  text { fill: #a6abb5; } .name, .value, .title { fill: #eceef2; } .paper { fill: #14161a; }
  .track { fill: #33373f; } .s1 { fill: #a3b6ff; } .s5 { fill: #8b9098; } .whisker { stroke: #eceef2; }
}
"""


def picture(card: Mapping[str, Any], *, name: str) -> str:
    """The card as one SVG file that needs nothing else."""
    inner = str(card_picture(card, title=f"Quality card of {name}"))
    n_rows, y = len(card["rows"]), HEAD + len(card["rows"]) * ROW
    lines = [f"The compile cost {card_words.price_words(card['compile_microusd'])} and has paid for itself"]
    lines += [f"  {card_words.break_even_words(one)}" for one in card["break_even"]]
    lines.append(card_words.basis_words(card))
    written = "".join(
        f'<text x="{MARGIN}" y="{y + MARGIN + i * LINE}">{line}</text>' for i, line in enumerate(lines)
    ).replace("'", "&#39;")
    height = y + MARGIN + len(lines) * LINE
    placed = inner.replace("<svg ", f'<svg x="{MARGIN}" y="{HEAD}" ', 1)
    placed = placed.replace('width="100%"', f'width="{WIDTH - 2 * MARGIN}"', 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
        f'<style>{STYLE}</style><rect class="paper" width="{WIDTH}" height="{height}"/>'
        f'<text class="title" x="{MARGIN}" y="22">{name}: {n_rows} ways to answer, on held-out gold</text>'
        f"{placed}{written}</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path, metavar="FILE", help="a .kolm")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    kolm = read_kolm(options.artifact.read_bytes())
    if "card.json" not in kolm.members:
        parser.error(f"{options.artifact} has no quality card: it is of a release before there was one.")
    options.out.write_text(picture(json.loads(kolm.members["card.json"]), name=kolm.manifest["name"]))
    print(options.out)


if __name__ == "__main__":
    main()
