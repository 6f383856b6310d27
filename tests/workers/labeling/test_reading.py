"""Inputs that an encoder does not read as they are meant, through the step with the real tokenizer."""

import pytest

from backend.compiles.events import events_after
from backend.compiles.models import Compile
from backend.tenants.isolation import tenant_scope
from tests.workers.labeling.test_purchases import ALL, GOLD, TEXTS, make, recorded, right_label
from tests.workers.pipeline_helpers import candidates, check_money, start, walk_through
from workers.embedding.protocol import Spelling
from workers.embedding.sentence import load_embedder
from workers.labeling.reading import cut_warning, language_warning

SENTENCES = {
    "german": "Wo bleibt meine Rückerstattung für das Paket, das ich letzte Woche zurückgeschickt habe?",
    "french": "Où est mon remboursement pour le colis que j'ai renvoyé la semaine dernière ?",
    "italian": "Dove si trova il rimborso per il pacco che ho restituito la settimana scorsa?",
    "turkish": "Geçen hafta iade ettiğim paketin parası nerede kaldı acaba?",
    "russian": "Где мой возврат за посылку, которую я отправил на прошлой неделе?",
    "korean": "지난주에 반품한 소포의 환불은 어디에 있나요?",
    "thai": "เงินคืนสำหรับพัสดุที่ฉันส่งคืนเมื่อสัปดาห์ที่แล้วอยู่ที่ไหน",
}
CYRILLIC = dict(zip("abcdefghijklmnopqrstuvwxyz", "абцдефгхийклмнопярстувщхыз", strict=True))


def warnings_of(row: Compile) -> dict[str, str]:
    with tenant_scope(row.tenant_id):
        events = events_after(row.tenant_id, row.id, 0)
    return {event.data["code"]: event.data["message"] for event in events if event.type == "warning"}


def in_cyrillic(text: str) -> str:
    return "".join(CYRILLIC.get(char, char) for char in text.lower())


@pytest.mark.parametrize("text", SENTENCES.values(), ids=SENTENCES)
def test_a_language_that_the_tokenizer_does_not_know_is_seen(text: str) -> None:
    texts = [f"{text} Ref. 12-{i}" for i in range(20)]
    assert "multilingual" in language_warning(texts, load_embedder().spell(texts))
    assert not language_warning(texts[:19], load_embedder().spell(texts[:19])), "too few to say so"


def test_english_with_numbers_and_names_is_known() -> None:
    texts = [*TEXTS, *(f"Order #{i}-XK9 for Müller & Søn: 7,50 € was charged twice, pls fix asap!!" for i in range(20))]
    spellings = load_embedder().spell(texts)
    assert language_warning(texts, spellings) == ""
    assert sum(one.n_tokens for one in spellings) == load_embedder().count_tokens(texts)


def test_inputs_are_counted_whole_and_the_limit_that_binds_is_named() -> None:
    (long,) = load_embedder().spell(["many plain words " * 200])
    assert (long.n_tokens, load_embedder().max_tokens) == (602, 256)
    few = [Spelling(n_tokens=20, n_alphabetic_tokens=18)] * 38
    message = cut_warning([*few, long, long], embedder=256, student=128)
    assert message.startswith("2 of 40 inputs have more than the 128 tokens that train.max_tokens allows")
    assert "the longest has 602" in message
    assert "Raise train.max_tokens, or shorten" in message
    assert "the 256 tokens that the embedder" in cut_warning([*few, long, long], embedder=256, student=512)
    assert cut_warning([*few, long], embedder=256, student=128) == ""
    assert cut_warning([], embedder=256, student=128) == ""


@pytest.mark.nightly
@pytest.mark.usefixtures("committed_db")
def test_a_compile_in_a_script_that_the_embedder_does_not_know_says_so_and_goes_on(monkeypatch):
    texts = [in_cyrillic(text) for text in TEXTS]
    right = {in_cyrillic(text): [right_label(text)] for text in TEXTS}
    recorded(monkeypatch, right, texts=texts)
    gold = [{**one, "input": in_cyrillic(one["input"])} for one in GOLD]
    row = make(plan="auto", sampling={}, captures={"inline": texts}, examples={"inline": gold, "holdout": 0.5})
    walk_through(start(row), *ALL)
    warnings = warnings_of(row)
    assert "Name a multilingual model as embedder and as train.base." in warnings["language_not_known"]
    labelled = candidates(row, state__in=["trained", "left_out"])
    assert all(one.label == right[one.text][0] for one in labelled)
    assert "random" in {one.bought_for for one in labelled}
    check_money(row)


@pytest.mark.nightly
@pytest.mark.usefixtures("committed_db")
def test_a_compile_whose_inputs_are_cut_says_how_many_and_what_to_do(monkeypatch):
    texts = [f"{text} {'and so on ' * 100}" if i % 4 == 0 else text for i, text in enumerate(TEXTS)]
    right = {text: [right_label(short)] for text, short in zip(texts, TEXTS, strict=True)}
    recorded(monkeypatch, right, texts=texts)
    row = make(captures={"inline": texts})
    walk_through(start(row), *ALL)
    assert "12 of 48 inputs have more than the 128 tokens" in warnings_of(row)["inputs_cut"]
    assert len(candidates(row, state__in=["trained", "left_out"])) == 48
    check_money(row)
