"""The selection of a slice in sentences: what it found and what it did. The report is on the receipt and in the API."""

from collections.abc import Mapping
from typing import Any

from backend.domain.number_words import score

_MITIGATIONS = {
    "none": "",
    "resynthesize": "The teacher was asked for another round at a higher temperature.",
    "drop_k": "K was lowered to the number of groups that differ.",
    "split": "The slice was split in two, and each half selected for itself.",
}
_SEVERITIES = {
    "warning": "K is above the number of natural clusters, so some picks are close to each other.",
    "degenerate": "K is far above what the pool holds apart: further picks would have been near-duplicates.",
}


def pool_words(report: Mapping[str, Any], forced: Mapping[str, Any]) -> list[str]:
    """The sentences about one slice, in the order in which it happened; none before its selection. `forced` is the
    report at the K that was asked for.

    >>> report = {"n": 24, "k_requested": 8, "k_actual": 6, "method": "k_center", "k_natural": 6, "n_groups": 9}
    >>> for sentence in pool_words(report | {"severity": "warning", "mitigation": "drop_k"}, report):
    ...     print(sentence)
    Of 24 candidates 6 are kept by k-center, where K = 8 was asked for.
    They form 6 natural clusters and 9 groups without near-duplicates.
    K was lowered to the number of groups that differ.
    """
    if "n" not in report or "k_actual" not in report:
        return []
    asked = "" if report["k_actual"] == report["k_requested"] else f", where K = {report['k_requested']} was asked for"
    method = str(report["method"]).replace("_", "-")
    sentences = [f"Of {report['n']:,} candidates {report['k_actual']:,} are kept by {method}{asked}."]
    if forced.get("k_natural"):
        silhouette = forced.get("silhouette_natural_ppm")
        cohesion = "" if silhouette is None else f" (silhouette {score(silhouette)})"
        clusters = f"{forced['k_natural']:,} natural cluster{'' if forced['k_natural'] == 1 else 's'}{cohesion}"
        sentences.append(f"They form {clusters} and {forced['n_groups']:,} groups without near-duplicates.")
    sentences += [_SEVERITIES.get(str(forced.get("severity")), ""), _MITIGATIONS.get(str(report.get("mitigation")), "")]
    if report.get("coverage_radius_ppm") is not None:
        farthest = score(report["coverage_radius_ppm"])
        sentences.append(f"No candidate is farther than {farthest} (cosine distance) from a kept one.")
    if report.get("method_reason"):
        sentences.append(str(report["method_reason"]))
    return [sentence for sentence in sentences if sentence]
