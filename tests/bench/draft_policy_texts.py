"""Task families of real sentences for `draft_policy`: the ten domains of CLINC150, four parts of BANKING77, and those
of five parts of HWU64 that have at least five intents.

CLINC150 (Larson et al. 2019, CC BY 3.0, github.com/clinc/oos-eval) is taken from `clinc150/data_full.json` below
$KOLM_DATA; BANKING77 as in `banking77_data`; HWU64 as in `label/sets`. None is part of the project.
"""

import hashlib
import json
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from tests.bench.banking77_data import read_banking77
from tests.bench.label.sets import read_rows
from tests.bench.minilm import minilm

Rows = NDArray[np.float32]

CACHE = Path(tempfile.gettempdir())  # for the vectors, minutes of processor time
N_BANKING_PARTS = 4
N_HWU_PARTS, LEAST_HWU_INTENTS = 5, 5
DOMAINS = {
    "banking": "freeze_account routing pin_change bill_due pay_bill account_blocked interest_rate min_payment "
    "bill_balance transfer order_checks balance spending_history transactions report_fraud",
    "credit_cards": "replacement_card_duration expiration_date damaged_card improve_credit_score report_lost_card "
    "card_declined credit_limit_change apr redeem_rewards credit_limit rewards_balance application_status credit_score "
    "new_card international_fees",
    "kitchen_and_dining": "food_last confirm_reservation how_busy ingredients_list calories nutrition_info recipe "
    "restaurant_reviews restaurant_reservation meal_suggestion restaurant_suggestion cancel_reservation "
    "ingredient_substitution cook_time accept_reservations",
    "home": "what_song play_music todo_list_update reminder reminder_update calendar_update order_status "
    "update_playlist shopping_list calendar next_song order todo_list shopping_list_update smart_home",
    "auto_and_commute": "current_location oil_change_when oil_change_how uber traffic tire_pressure "
    "schedule_maintenance gas mpg distance directions last_maintenance gas_type tire_change jump_start",
    "travel": "plug_type travel_notification translate flight_status international_visa timezone exchange_rate "
    "travel_suggestion travel_alert vaccines lost_luggage book_flight book_hotel carry_on car_rental",
    "utility": "weather alarm date find_phone share_location timer make_call calculator definition "
    "measurement_conversion flip_coin spelling time roll_dice text",
    "work": "pto_request_status next_holiday insurance_change insurance meeting_schedule payday taxes income "
    "rollover_401k pto_balance pto_request w2 schedule_meeting direct_deposit pto_used",
    "small_talk": "who_made_you meaning_of_life who_do_you_work_for do_you_have_pets what_are_your_hobbies fun_fact "
    "what_is_your_name where_are_you_from goodbye thank_you greeting tell_joke are_you_a_bot how_old_are_you "
    "what_can_i_ask_you",
    "meta": "change_speed user_name whisper_mode yes change_volume no change_language repeat change_accent cancel "
    "sync_device change_user_name change_ai_name reset_settings maybe",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`intents[i]` holds intent i's sentences as (n, d) unit rows."""

    name: str
    intents: tuple[Rows, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """`outside` are sentences of no intent."""

    families: tuple[Family, ...]
    outside: Rows


def read_texts(folder: Path) -> Texts:
    """All fourteen families, embedded by MiniLM; FileNotFoundError where the files are not below `folder`."""
    clinc = _clinc(folder / "clinc150" / "data_full.json")
    banking: dict[str, list[str]] = defaultdict(list)
    data = read_banking77(folder)
    for question in (*data.train, *data.test):
        banking[question.intent].append(question.text)
    sentences = [text for texts in (*clinc.values(), *banking.values()) for text in texts]
    rows = dict(zip(sentences, embedded(sentences), strict=True))
    intents = {name: np.stack([rows[text] for text in texts]) for name, texts in (*clinc.items(), *banking.items())}
    families = [
        Family(name=domain, intents=tuple(intents[name] for name in names.split())) for domain, names in DOMAINS.items()
    ]
    families += parts_of("banking77", [intents[name] for name in sorted(banking)], N_BANKING_PARTS)
    return Texts(families=tuple(families), outside=intents["oos"])


def read_hwu64(outside: Rows) -> Texts:
    """Three families of 64 intents in all; the sentences of no intent are another set's. FileNotFoundError where
    $KOLM_LABEL_DATA has no hwu64.jsonl, ValueError where it is not the file that was measured."""
    by_label: dict[str, list[str]] = defaultdict(list)
    for text, label, _ in read_rows("hwu64"):
        by_label[label].append(text)
    sentences = [text for label in sorted(by_label) for text in by_label[label]]
    rows = dict(zip(sentences, embedded(sentences), strict=True))
    intents = [np.stack([rows[text] for text in by_label[label]]) for label in sorted(by_label)]
    parts = parts_of("hwu64", intents, N_HWU_PARTS)
    return Texts(families=tuple(f for f in parts if len(f.intents) >= LEAST_HWU_INTENTS), outside=outside)


def _clinc(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for part in json.loads(path.read_text(encoding="utf-8")).values():
        for text, intent in part:
            found[intent].append(text)
    return found


def parts_of(name: str, intents: list[Rows], n_parts: int) -> list[Family]:
    """Families of intents whose mean sentences are near each other, by Ward's linkage."""
    centres = np.stack([rows.mean(axis=0) for rows in intents])
    part_of = fcluster(linkage(centres, "ward"), n_parts, "maxclust")
    return [
        Family(name=f"{name}-{part}", intents=tuple(r for r, at in zip(intents, part_of, strict=True) if at == part))
        for part in range(1, n_parts + 1)
    ]


def embedded(sentences: list[str]) -> Rows:
    """MiniLM's unit rows, from the cache of an earlier run if there is one."""
    embedder = minilm()
    digest = hashlib.sha256("\n".join([embedder.identity, *sentences]).encode()).hexdigest()
    path = CACHE / f"kolm-draft-policy-{digest[:16]}.npy"
    if not path.exists():
        np.save(path, embedder.embed(sentences))
    rows: Rows = np.load(path)
    return rows
