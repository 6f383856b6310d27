"""An invoice as a file: complete, the same bytes each time, safe for any name, and nobody else's."""

import re
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

from backend.billing.invoice_document import DocumentGroup, InvoiceDocument, document_of
from backend.billing.invoices import close_ended
from backend.billing.models import BilledBy, BillingDetails, Invoice
from backend.billing.pdf import MISSING_NOTE, write_pdf
from backend.domain.errors import Conflict
from backend.domain.ids import Prefix, encode_id
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.usage import accounts
from tests.backend.billing.billing_month import at, begin_month, new_tenant, use
from tests.factories import bearer, make_api_key

SEEN = datetime(2026, 12, 1, 3, 4, tzinfo=UTC)
DOCUMENT = InvoiceDocument(
    number="KOLM-ABC123-0001",
    issued_at=SEEN,
    period_start=datetime(2026, 11, 1, tzinfo=UTC),
    period_end=datetime(2026, 12, 1, tzinfo=UTC),
    plan_title="Pro",
    currency="USD",
    seller=("kolm GmbH", "Hauptstraße 1", "VAT ID DE123456789"),
    customer=("Acme",),
    note="",
    lines=(("Teacher calls", 123), ("Pro plan", 4_900)),
    subtotal_cents=5_023,
    credit_cents=23,
    tax_cents=950,
    total_cents=5_950,
    groups=(DocumentGroup(title="Compile router (cmp_x)", amount_microusd=1_234_567),),
)


def words_of(pdf: bytes) -> str:
    """What a core font's text streams say."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    texts = [zlib.decompress(stream) for stream in streams if stream[:1] == b"x"]
    shown = re.findall(rb"\((.*?)(?<!\\)\) Tj", b"\n".join(texts), re.DOTALL)
    return "\n".join(part.replace(b"\\(", b"(").replace(b"\\)", b")").decode("latin-1") for part in shown)


def test_equal_documents_are_equal_bytes_and_hold_every_amount():
    made = write_pdf(DOCUMENT)
    assert made == write_pdf(DOCUMENT)
    assert made.startswith(b"%PDF-")
    words = words_of(made)
    wanted = ("Invoice KOLM-ABC123-0001", "2026-12-01", "Hauptstraße 1", "1.23", "49.00", "50.23", "-0.23", "9.50")
    for text in (*wanted, "USD 59.50", "1.234567", "Compile router (cmp_x)"):
        assert text in words, text
    assert MISSING_NOTE[:40] not in words


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("Zażółć", "Zazó?c"),
        ("株式会社", "????"),
        ("safe\u202egpj.exe", "safe gpj.exe"),
        ("a\x00b\x07", "a b"),
        ("😀 Co", "? Co"),
        (") Tj (evil", ") Tj (evil"),
        ("\\", "\\"),
    ],
)
def test_a_hostile_name_is_text_and_nothing_else(name, shown):
    words = words_of(write_pdf(replace(DOCUMENT, customer=(name,))))
    assert shown in words.replace("\\\\", "\\")
    is_missing = "?" in shown
    assert (MISSING_NOTE[:40] in words.replace("\n", " ")) is is_missing


def test_a_name_of_any_length_and_many_groups_make_pages_and_no_error():
    groups = tuple(DocumentGroup(title="x" * 400, amount_microusd=i) for i in range(200))
    made = write_pdf(replace(DOCUMENT, customer=("y" * 500,), groups=groups))
    assert made.count(b"/Type /Page\n") > 3


def test_every_page_says_which_it_is_and_five_hundred_rows_stand_on_them_in_order():
    groups = tuple(DocumentGroup(title=f"Deployment d{i}", amount_microusd=i) for i in range(500))
    made = write_pdf(replace(DOCUMENT, groups=groups))
    words, n_pages = words_of(made), made.count(b"/Type /Page\n")
    assert [f"page {i + 1} of \n{n_pages}" in words for i in range(n_pages)] == [True] * n_pages
    assert re.findall(r"Deployment d(\d+)", words) == [str(i) for i in range(500)]


def test_an_invoice_over_nothing_has_its_total():
    zero = {"lines": (), "groups": (), "subtotal_cents": 0, "credit_cents": 0, "tax_cents": 0, "total_cents": 0}
    words = words_of(write_pdf(replace(DOCUMENT, **zero)))
    assert "USD 0.00" in words
    assert "page 1 of \n1" in words


def test_letters_of_the_operators_font_stand_as_they_are(tmp_path):
    font = small_font(tmp_path / "letters.ttf", "Invoice KOLM0123456789-.,:()Жß")
    made = write_pdf(replace(DOCUMENT, customer=("Ж",)), font=font)
    assert made == write_pdf(replace(DOCUMENT, customer=("Ж",)), font=font)
    assert b"/FontFile2" in made


def small_font(path: Path, letters: str) -> Path:
    """A real TrueType font with a box for each letter, and the few that notes need."""
    names = [".notdef", *sorted({f"u{ord(char):04X}" for char in letters + " ?"})]
    pen = TTGlyphPen(None)
    for number, (x, y) in enumerate(((0, 0), (0, 500), (500, 500), (500, 0))):
        (pen.moveTo if number == 0 else pen.lineTo)((x, y))
    pen.closePath()
    box = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({int(name[1:], 16): name for name in names[1:]})
    builder.setupGlyf(dict.fromkeys(names, box))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (600, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Letters", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, sTypoDescender=-200)
    builder.setupPost()
    builder.save(str(path))
    return path


def closed_month(*, used: int = 1_234_567, granted: int = 0):
    tenant = new_tenant(now=at("2027-02-01T00:00"))
    use(tenant, at("2027-02-03T10:00"), used)
    if granted:
        with tenant_scope(tenant.id):
            accounts.grant(
                tenant.id, kind="promo", amount_microusd=granted, expires_at=None, source_key="g", actor=SYSTEM
            )
    begin_month(tenant, at("2027-03-01T00:01"))
    with tenant_scope(tenant.id):
        (invoice,) = close_ended(tenant.id, now=at("2027-03-01T00:01"))
    return tenant, invoice


@pytest.mark.usefixtures("committed_db")
def test_an_invoice_keeps_the_details_that_it_was_made_with_and_its_bytes(client, settings):
    settings.KOLM_SELLER = {"name": "kolm GmbH", "vat_id": "DE1"}
    tenant, invoice = closed_month()
    secret, path = make_api_key(tenant), f"/v1/invoices/{encode_id(Prefix.INVOICE, invoice.id)}/pdf"
    before = client.get(path, headers=bearer(secret))
    assert (before["Content-Type"], before.status_code) == ("application/pdf", 200)
    assert before["Content-Disposition"] == f'attachment; filename="{invoice.number}.pdf"'
    changed = client.patch(
        "/v1/billing/details",
        {"name": "Ärger AG", "address": "Weg 1\n8000 Zürich", "vat_id": "CHE-1"},
        content_type="application/json",
        headers=bearer(secret),
    ).json()
    assert changed == {
        "object": "billing_details",
        "name": "Ärger AG",
        "address": "Weg 1\n8000 Zürich",
        "vat_id": "CHE-1",
    }
    settings.KOLM_SELLER = {"name": "another"}
    assert client.get(path, headers=bearer(secret)).content == before.content
    words = words_of(before.content)
    assert "kolm GmbH" in words
    assert "1.234567" in words
    with tenant_scope(tenant.id):
        document = document_of(invoice)
        assert document.used_microusd == invoice.usage_microusd - invoice.our_fault_microusd


@pytest.mark.usefixtures("committed_db")
def test_the_file_is_its_tenants_alone_and_needs_the_scope(client):
    _, invoice = closed_month()
    path = f"/v1/invoices/{encode_id(Prefix.INVOICE, invoice.id)}/pdf"
    other = new_tenant(now=at("2027-02-01T00:00"))
    assert client.get(path, headers=bearer(make_api_key(other))).status_code == 404
    assert client.get(path).status_code == 401
    narrow = make_api_key(other, scopes=["compiles:read"])
    assert client.get(path, headers=bearer(narrow)).status_code == 403


@pytest.mark.usefixtures("committed_db")
def test_what_stripe_did_not_settle_yet_has_no_file():
    tenant, invoice = closed_month()
    with tenant_scope(tenant.id):
        Invoice.objects.filter(id=invoice.id).update(billed_by=BilledBy.STRIPE)
        invoice.refresh_from_db()
        with pytest.raises(Conflict) as caught:
            document_of(invoice)
    assert caught.value.code == "invoice_not_final"


@pytest.mark.usefixtures("committed_db")
@pytest.mark.parametrize(
    "body",
    [
        {"name": "x" * 201},
        {"name": "two\nlines"},
        {"address": "\n".join("abcdefghi")},
        {"name": "safe\u202egpj"},
        {"nmae": "x"},
        {"vat_id": ["x"]},
    ],
)
def test_details_that_cannot_be_printed_are_refused(client, body):
    tenant = new_tenant(now=at("2027-02-01T00:00"))
    secret = make_api_key(tenant)
    answer = client.patch("/v1/billing/details", body, content_type="application/json", headers=bearer(secret))
    assert answer.status_code in (400, 422), answer.content
    with tenant_scope(tenant.id):
        assert not BillingDetails.objects.exists()
