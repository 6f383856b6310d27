"""An invoice as PDF: the one file that imports fpdf2. Equal documents give equal bytes: the creation date is the
invoice's.

The core font knows Latin-1. Letters beyond it are written without their marks where that is possible (`ź` as `z`), else
as `?`, and the document says so; with a font of the operator's (`KOLM_INVOICE_FONT`) they stand as they are. Marks
of direction and control characters, with which a name could make a line read otherwise, are never printed.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from backend.billing.invoice_document import InvoiceDocument

if TYPE_CHECKING:
    from fpdf import FPDF

CORE_FONT = "Helvetica"
MISSING_NOTE = (
    "Some letters of this document are not in its font and are shown without their marks or as a question mark. "
    "The names in full stand in the console and in the API."
)
_WIDTH_MM, _AMOUNT_MM = 180, 40
_INK, _GREY = 20, 110


@dataclass(slots=True)
class _Page:
    """A document under way. `code_points` are those of the operator's font, None with the core font."""

    pdf: "FPDF"
    family: str
    code_points: frozenset[int] | None
    is_missing: bool = field(default=False)

    def text(self, text: str) -> str:
        """The text as this font can print it."""
        clean = "".join(char if not unicodedata.category(char).startswith("C") else " " for char in text)
        return "".join(self._char(char) for char in clean)

    def _char(self, char: str) -> str:
        if self._knows(char):
            return char
        self.is_missing = True
        plain = "".join(one for one in unicodedata.normalize("NFKD", char) if not unicodedata.combining(one))
        return plain if plain and all(self._knows(one) for one in plain) else "?"

    def _knows(self, char: str) -> bool:
        return ord(char) < 256 if self.code_points is None else ord(char) in self.code_points

    def font(self, size: float, *, is_bold: bool = False, grey: int = _INK) -> None:
        self.pdf.set_font(self.family, "B" if is_bold and self.code_points is None else "", size)
        self.pdf.set_text_color(grey)

    def row(self, label: str, amount: str, *, is_bold: bool = False) -> None:
        """A line with an amount at its right; a long label wraps, and no page ends inside it."""
        self.font(9.5, is_bold=is_bold)
        height = 5.2
        lines = self.pdf.multi_cell(
            _WIDTH_MM - _AMOUNT_MM, height, self.text(label), dry_run=True, output="LINES", wrapmode="CHAR"
        )
        if self.pdf.will_page_break(height * len(lines)):
            self.pdf.add_page()
        top = self.pdf.get_y()
        self.pdf.multi_cell(
            _WIDTH_MM - _AMOUNT_MM, height, "\n".join(lines), wrapmode="CHAR", new_x="RIGHT", new_y="TOP", align="L"
        )
        self.pdf.cell(_AMOUNT_MM, height, amount, align="R")
        self.pdf.set_xy(self.pdf.l_margin, top + height * len(lines) + 0.8)

    def rule(self) -> None:
        y = self.pdf.get_y() + 0.6
        self.pdf.set_draw_color(200)
        self.pdf.line(self.pdf.l_margin, y, self.pdf.l_margin + _WIDTH_MM, y)
        self.pdf.set_y(y + 1.4)

    def paragraph(self, text: str, *, size: float = 8.5, grey: int = _GREY) -> None:
        self.font(size, grey=grey)
        self.pdf.multi_cell(_WIDTH_MM, 4.4, self.text(text), new_x="LMARGIN", new_y="NEXT", align="L")


def write_pdf(document: InvoiceDocument, *, font: Path | None = None) -> bytes:
    """The document as the bytes of a PDF."""
    page = _open(document, font)
    _head(page, document)
    _lines(page, document)
    _groups(page, document)
    if document.note:
        page.pdf.ln(4)
        page.paragraph(document.note)
    if page.is_missing:
        page.pdf.ln(4)
        page.paragraph(MISSING_NOTE)
    return bytes(page.pdf.output())


def _open(document: InvoiceDocument, font: Path | None) -> _Page:
    from fpdf import FPDF

    class Pages(FPDF):
        def footer(self) -> None:
            self.set_y(-12)
            self.set_font(family, "", 8)
            self.set_text_color(_GREY)
            words = f"Invoice {document.number}, page {self.page_no()} of {{nb}}"
            self.cell(_WIDTH_MM, 5, words, align="R")

    family = CORE_FONT if font is None else "invoice"
    pdf = Pages(format="A4")
    pdf.set_creation_date(document.issued_at)
    pdf.set_producer("kolm")
    pdf.set_title(f"Invoice {document.number}")
    pdf.set_lang("en")
    pdf.set_margins(15, 18)
    pdf.set_auto_page_break(True, margin=18)
    code_points = None
    if font is not None:
        pdf.add_font("invoice", fname=str(font))
        code_points = frozenset(pdf.fonts["invoice"].cmap)
    pdf.add_page()
    return _Page(pdf, family, code_points)


def _head(page: _Page, document: InvoiceDocument) -> None:
    page.font(18, is_bold=True)
    page.pdf.cell(_WIDTH_MM, 10, f"Invoice {document.number}", new_x="LMARGIN", new_y="NEXT")
    page.pdf.ln(2)
    top = page.pdf.get_y()
    ends = [_party(page, "From", document.seller, 0, top), _party(page, "To", document.customer, _WIDTH_MM / 2, top)]
    page.pdf.set_xy(page.pdf.l_margin, max(ends) + 4)
    for label, value in (
        ("Date", f"{document.issued_at:%Y-%m-%d}"),
        ("Period", f"{document.period_start:%Y-%m-%d} to {document.period_end:%Y-%m-%d}, end exclusive (UTC)"),
        ("Plan", document.plan_title),
        ("Currency", document.currency),
    ):
        page.font(9.5, grey=_GREY)
        page.pdf.cell(24, 5, label)
        page.font(9.5)
        page.pdf.cell(_WIDTH_MM - 24, 5, page.text(value), new_x="LMARGIN", new_y="NEXT")
    page.pdf.ln(4)


def _party(page: _Page, title: str, lines: Sequence[str], left: float, top: float) -> float:
    """Write a party at its place; where it ends."""
    width = _WIDTH_MM / 2 - 6
    page.pdf.set_xy(page.pdf.l_margin + left, top)
    page.font(8.5, grey=_GREY)
    page.pdf.cell(width, 5, title, new_x="LEFT", new_y="NEXT")
    page.font(9.5)
    for line in lines:
        page.pdf.multi_cell(width, 4.8, page.text(line), new_x="LEFT", new_y="NEXT", align="L", wrapmode="CHAR")
    return float(page.pdf.get_y())


def _lines(page: _Page, document: InvoiceDocument) -> None:
    page.row("What was used", document.currency, is_bold=True)
    page.rule()
    for description, cents in document.lines:
        page.row(description, _cents(cents))
    page.rule()
    page.row("Subtotal", _cents(document.subtotal_cents))
    if document.credit_cents:
        page.row("Credits: granted, and for failures of ours", _cents(-document.credit_cents))
    if document.tax_cents:
        page.row("Tax", _cents(document.tax_cents))
    page.row("Total", f"{document.currency} {_cents(document.total_cents)}", is_bold=True)


def _groups(page: _Page, document: InvoiceDocument) -> None:
    if not document.groups:
        return
    page.pdf.ln(6)
    page.row("What it was for, before credits", document.currency, is_bold=True)
    page.rule()
    for group in document.groups:
        page.row(group.title, _microusd(group.amount_microusd))
    page.rule()
    page.row("Use less what was taken back, unrounded", _microusd(document.used_microusd), is_bold=True)
    page.pdf.ln(1)
    page.paragraph(
        "These are the ledger's amounts to the millionth. The lines above are rounded to whole cents, each once, half "
        "to even; what was taken back for failures of ours is among the credits there."
    )


def _cents(cents: int) -> str:
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100:,}.{abs(cents) % 100:02d}"


def _microusd(amount: int) -> str:
    return f"{'-' if amount < 0 else ''}{abs(amount) // 1_000_000:,}.{abs(amount) % 1_000_000:06d}"
