"""The forty specs of `estimates_hold`: label tasks by grammar, by recordings and by a server that counts its tokens
with a real model's tokenizer, in several languages and sizes; and json tasks on the tiny causal base.

Every fifth is of the same kind; within a kind labels, candidates, votes, picks, shares and methods vary.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backend.domain.spec.models import Spec
from tests.acceptance.json_specs import small_orders
from tests.acceptance.specs import LABELS, asks, small_spec
from tests.bench.banking77_data import Banking77, Question, read_banking77

N_SPECS = 40
PRICE = {"input_usd_per_mtok": 0.4, "output_usd_per_mtok": 1.6}
EASY = {"k_min": 0.0, "accuracy_lower": 0.0, "worst_class_recall": 0.0, "beat_majority": False, "min_heldout": 5}
_EVERY = {
    "method": ("auto", "auto", "two_step", "top_k"),
    "label_samples": (5, 1, 3, 5),
    "n_candidates": (12, 24, 16, 36),
}
# two labels each: things, ways to ask for money back, ways to ask where it is
LANGUAGES = {
    "de": (
        ("Rückgabe", "Lieferung", "Geht es um eine Rückgabe oder um die Lieferung?", " "),
        "die Jacke,das Gerät,der Schlüssel,die Größentabelle,das Öl,die Tür,die Äpfel,das Fahrrad",
        "möchte ich zurückgeben, Geld zurück bitte;schicke ich zurück, bitte Geld erstatten;gefällt mir nicht",
        "ist nicht angekommen, wo bleibt das Paket;steckt im Paket fest, wann kommt der Bote;fehlt im Paket",
    ),
    "ja": (
        ("返品", "配達", "返品についてですか、それとも配達についてですか。", ""),
        "上着,スマホ,鍵,サイズ表,オイル,ドア,りんご,自転車",
        "を返品したいので返金してください;は気に入らないので返金をお願いします;を送り返します、返金はいつですか",
        "がまだ届きません、荷物はどこですか;の荷物が届かない、配達はいつですか;の配達が遅れています",
    ),
    "ru": (
        ("возврат", "доставка", "Речь идёт о возврате товара или о доставке?", " "),
        "куртку,телефон,ключ,таблицу размеров,масло,дверь,яблоки,велосипед",
        "хочу вернуть и получить деньги обратно;отправляю назад, верните деньги;возвращаю, мне не понравилось",
        "до сих пор не привезли, где посылка;курьер не принёс, когда доставят;жду уже неделю, доставка опаздывает",
    ),
    "ar": (
        ("استرجاع", "توصيل", "هل الرسالة عن استرجاع أم عن توصيل؟", " "),
        "المعطف,الهاتف,المفتاح,الزيت,الباب,التفاح,الدراجة,الكتاب",
        "أريد إرجاعه واسترداد المبلغ;سأعيده وأرجو رد المال;لم يعجبني وأريد نقودي",
        "لم يصل بعد، أين الطرد;متى يأتي المندوب به;تأخر توصيله أسبوعا",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One compile. `uploads` are to be put in the places that they name: captures, examples, recording."""

    name: str
    spec: dict[str, Any]
    uploads: dict[str, bytes] = field(default_factory=dict)


def cases(data: Path, *, server: str | None) -> Iterator[Case]:
    """The specs, kinds in turn; without a `server` (its address) grammar takes its place. Where specs have a plan, it
    is fixed: what a plan that decides will buy is known while it runs."""
    banking = read_banking77(data)
    plan = {"plan": "fixed"} if "plan" in Spec.model_fields else {}
    for i in range(N_SPECS):
        case = _case(i, banking, server)
        yield replace(case, spec=case.spec | plan)


def _case(i: int, banking: Banking77, server: str | None) -> Case:
    turn = i // 5
    match i % 5:
        case 0:
            return _grammar(i, turn)
        case 1:
            return _banking(i, turn, banking.train, banking.test)
        case 2:
            return _language(i, turn)
        case 3:
            return _grammar(i, turn + 3) if server is None else _served(i, turn, server)
        case _:
            return _orders(i, turn) if turn % 2 == 0 else _banking(i, turn + 5, banking.train, banking.test)


def _sampling(turn: int) -> dict[str, Any]:
    return {name: values[turn % len(values)] for name, values in _EVERY.items()} | {"seed": turn}


def _grammar(i: int, turn: int) -> Case:
    """Three labels of the demo; every other without slices of its own, every third with other shares."""
    name = f"bench-{i:02}-grammar"
    sampling = _sampling(turn) | ({"k_select": 9, "k_distill": 8} if turn % 4 == 3 else {})
    spec = small_spec(name, family=name, sampling=sampling, gate=EASY, train={"epochs": (3, 7, 5)[turn % 3]})
    if turn % 2:
        spec["slices"] = []
    elif turn % 3 == 2:
        for part, share in zip(spec["slices"], (0.6, 0.3, 0.1), strict=True):
            part["share"] = share
    return Case(name=name, spec=spec)


def _served(i: int, turn: int, server: str) -> Case:
    """The same tasks, asked of a server that counts as a model's tokenizer does; every other takes one choice a
    call."""
    case = _grammar(i, turn + 1)
    teacher = asks(server, f"counting-{turn % 2}") | {"price": PRICE}
    if turn % 2:
        teacher |= {"dialect": "ollama"}
    return Case(name=case.name.replace("grammar", "served"), spec=case.spec | {"teacher": teacher})


def _banking(i: int, turn: int, train: Sequence[Question], test: Sequence[Question]) -> Case:
    """Captures of some of BANKING77's intents, labelled by a recording of what people said."""
    intents = sorted({question.intent for question in train})[turn * 7 % 9 :: 9][: 3 + turn % 6]
    chosen, held = ([q for q in side if q.intent in intents] for side in (train, test))
    few = chosen[:: max(1, len(chosen) // (60 + 40 * (turn % 5)))]
    name = f"bench-{i:02}-banking"
    spec = _replayed(name, "Name the intent of a question that a customer asks a bank.", intents, turn)
    return Case(
        name=name,
        spec=spec,
        uploads={
            "captures": _lines({"input": q.text} for q in few),
            "examples": _lines({"input": q.text, "output": q.intent} for q in held[:: 1 + turn % 3]),
            "recording": _lines({"item": q.text, "completions": [{"text": q.intent}]} for q in few),
        },
    )


def _language(i: int, turn: int) -> Case:
    """Captures of a language that is not English."""
    language = tuple(LANGUAGES)[turn % len(LANGUAGES)]
    (first, second, task, space), things, back, where = LANGUAGES[language]
    rows = [
        (f"{thing}{space}{end}", label)
        for label, ends in ((first, back), (second, where))
        for end in ends.split(";")
        for thing in things.split(",")
    ]
    gold, captured = rows[::2], rows[1::2]
    name = f"bench-{i:02}-{language}"
    return Case(
        name=name,
        spec=_replayed(name, task, [first, second], turn),
        uploads={
            "captures": _lines({"input": text} for text, _ in captured),
            "examples": _lines({"input": text, "output": label} for text, label in gold),
            "recording": _lines({"item": text, "completions": [{"text": label}]} for text, label in captured),
        },
    )


def _replayed(name: str, task: str, labels: Sequence[str], turn: int) -> dict[str, Any]:
    sampling = _sampling(turn)
    del sampling["n_candidates"]
    return {
        "name": name,
        "family": name,
        "task": task,
        "output": {"type": "label", "labels": [{"name": label} for label in labels]},
        "examples": {"holdout": (0.5, 0.8, 1.0)[turn % 3]},
        "captures": {},
        "teacher": {"provider": "replay", "model": "recorded", "price": PRICE},
        "sampling": sampling,
        "train": {"epochs": (7, 3, 5, 2)[turn % 4], "escalate": False},
        "gate": EASY,
    }


def _orders(i: int, turn: int) -> Case:
    """A json task on the tiny base, every other without recipes."""
    name = f"bench-{i:02}-orders"
    changes = {} if turn % 4 else {"recipes": {"enabled": False}}
    spec = small_orders(name, family=name, **changes)
    spec["sampling"] |= {"n_candidates": (8, 12, 20)[turn % 3], "label_samples": (1, 2, 3)[turn % 3]}
    return Case(name=name, spec=spec)


def _lines(rows: Iterator[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


assert len(LABELS) == 3  # what the shares above are for
