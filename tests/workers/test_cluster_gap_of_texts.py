"""The seed's case (eleven paraphrases, one outlier, K = 4) and its opposites, on the embeddings that thresholds are
for."""

import itertools
from functools import cache

import numpy as np
import pytest

from backend.domain.selection.cluster_gap import Severity
from backend.domain.selection.select import SelectionReport, select
from workers.embedding.sentence import load_embedder

PARAPHRASES = {
    "refund": [
        "How do I get a refund for the order that never arrived?",
        "How can I get a refund for an order that never arrived?",
        "My order never arrived, how do I get a refund?",
        "My order never arrived. How can I get my refund?",
        "Can I get a refund for my order that never arrived?",
        "I want a refund for the order that never arrived.",
        "I would like a refund for an order that has never arrived.",
        "The order never arrived, so I would like a refund.",
        "Please refund the order that never arrived.",
        "Please give me a refund for my order, it never arrived.",
        "Could you refund my order, which never arrived?",
    ],
    "password": [
        "I forgot my password, how do I reset it?",
        "I forgot my password. How can I reset it?",
        "How do I reset my password? I forgot it.",
        "How can I reset my forgotten password?",
        "I have forgotten my password and need to reset it.",
        "I need to reset my password because I forgot it.",
        "Please help me reset the password that I forgot.",
        "Can you help me reset my password? I forgot it.",
        "Forgot my password, need to reset it.",
        "I can't remember my password, how do I reset it?",
        "How do I reset a password that I forgot?",
    ],
}
OUTLIERS = {
    "refund": "Do you sell gift cards in your shops?",
    "password": "When does the museum open on Sunday?",
}
DIFFERENT = [
    "Do you sell gift cards in your shops?",
    "When does the museum open on Sunday?",
    "The engine makes a rattling noise when it is cold.",
    "Remind me to water the plants tomorrow.",
    "What is the capital of Mongolia?",
    "My flight to Lisbon was cancelled last night.",
    "Translate this menu into French.",
    "How many calories are in a banana?",
    "The printer jams whenever I use thick paper.",
]


@cache
def row_of() -> dict[str, np.ndarray]:
    texts = [*itertools.chain(*PARAPHRASES.values()), *OUTLIERS.values(), *DIFFERENT]
    return dict(zip(texts, load_embedder().embed(texts), strict=True))


def report_on(texts: list[str], k: int) -> SelectionReport:
    rows = np.stack([row_of()[text] for text in texts])
    return select(rows, np.ones(len(texts)), texts, k=k, method="two_step", score_floor=0.0).report


@pytest.mark.parametrize("about", sorted(PARAPHRASES))
def test_the_seeds_case_warns_and_has_two_natural_clusters(about: str) -> None:
    texts = [*PARAPHRASES[about], OUTLIERS[about]]
    report = report_on(texts, k=4)
    assert report.severity is not Severity.NONE
    assert report.k_natural == 2
    assert sorted(report.cluster_sizes)[0] == 1
    assert report.silhouette_natural is not None
    assert report.silhouette_forced is not None
    assert report.silhouette_natural > report.silhouette_forced + 0.1
    assert report.n_groups < len(texts)


@pytest.mark.parametrize("about", sorted(PARAPHRASES))
@pytest.mark.parametrize("k", [3, 5, 8])
def test_it_warns_whichever_paraphrases_there_are(about: str, k: int) -> None:
    for left_out in itertools.combinations(range(11), 2):
        texts = [text for i, text in enumerate(PARAPHRASES[about]) if i not in left_out] + [OUTLIERS[about]]
        report = report_on(texts, k=k)
        assert report.gap_detected, (about, k, left_out)


@pytest.mark.parametrize("about", sorted(PARAPHRASES))
def test_paraphrases_alone_are_one_natural_cluster(about: str) -> None:
    texts = PARAPHRASES[about]
    report = report_on(texts, k=4)
    assert (report.k_natural, report.gap_detected) == (1, True)


def test_two_sets_of_paraphrases_split_in_two_raise_no_warning() -> None:
    texts = PARAPHRASES["refund"] + PARAPHRASES["password"]
    report = report_on(texts, k=2)
    assert (report.k_natural, report.severity) == (2, Severity.NONE)


def test_different_sentences_are_no_near_duplicates() -> None:
    report = report_on(DIFFERENT, k=8)
    assert report.n_groups == 9
    assert report.severity is not Severity.DEGENERATE
