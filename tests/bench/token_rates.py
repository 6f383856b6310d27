"""`python -m tests.bench.token_rates [DATA]`: letters a token, by script: what `planning.token_counts` counts with.

The texts are BANKING77 for English and else Django's own translations (installed with it), the tokenizers Gemma's (for
models, `make base-gemma`) and MiniLM's (for encoders). A letter is a code point that is no space, digit or ASCII
punctuation; those count as letters of the Latin script, which is what English has them with.
"""

import argparse
import gettext
from collections.abc import Callable, Sequence
from pathlib import Path

import django
from tokenizers import Tokenizer

from backend.domain.planning.token_counts import Script, script_of
from gpu_runners.models.bases import MINILM, open_base
from tests.bench.banking77_data import data_folder, read_banking77
from tests.bench.counting_server import TOKENIZER

LOCALES = {
    Script.LATIN: ("de", "fr", "es", "pl", "vi"),
    Script.CYRILLIC: ("ru", "uk", "bg"),
    Script.GREEK: ("el",),
    Script.ARABIC: ("ar", "fa"),
    Script.HEBREW: ("he",),
    Script.INDIC: ("hi", "ta", "bn"),
    Script.THAI: ("th",),
    Script.HANGUL: ("ko",),
    Script.KANA: ("ja",),
    Script.HAN: ("zh_Hans", "zh_Hant"),
}


def texts_of(locale: str) -> list[str]:
    """The messages of Django in a language, without those of one word and those with placeholders."""
    path = Path(django.__file__).parent / "conf" / "locale" / locale / "LC_MESSAGES" / "django.mo"
    with path.open("rb") as file:
        messages = gettext.GNUTranslations(file)._catalog.values()  # type: ignore[attr-defined]
    return [text for text in messages if len(text) > 12 and "%" not in text and "{" not in text]


def rates(texts: Sequence[str], count: Callable[[str], int]) -> tuple[float, float]:
    """Letters of all scripts a token, and bytes a token."""
    n = sum(map(count, texts))
    return sum(sum(not c.isspace() for c in text) for text in texts) / n, sum(len(text.encode()) for text in texts) / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    model = Tokenizer.from_file(str(TOKENIZER))
    encoder = Tokenizer.from_file(str(open_base(MINILM).folder / "tokenizer.json"))
    encoder.no_truncation()
    encoder.no_padding()
    english = [question.text for question in read_banking77(parser.parse_args().data).test]
    print(
        "| script | texts of | share of the script | letters a token, Gemma | MiniLM | bytes a token, Gemma | MiniLM |"
    )
    print("|---|---|---|---|---|---|---|")
    for script, locale, texts in [(Script.LATIN, "en", english)] + [
        (script, locale, texts_of(locale)) for script, locales in LOCALES.items() for locale in locales
    ]:
        letters = [c for text in texts for c in text if not c.isspace()]
        own = sum(script_of(c) is script for c in letters) / len(letters)
        counts = [
            rates(texts, lambda text, by=by: len(by.encode(text, add_special_tokens=False).ids))  # type: ignore[misc]
            for by in (model, encoder)
        ]
        cells = [f"{counts[i][k]:.2f}" for k in (0, 1) for i in (0, 1)]
        print(f"| {script} | {locale} | {own:.0%} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
