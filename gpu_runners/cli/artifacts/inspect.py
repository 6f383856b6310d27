"""`kolm inspect`: what an intact `.kolm` says about itself, whoever signed it."""

import json
from typing import Any

import click

from backend.domain.artifact.kolm_verify import Kolm
from backend.domain.number_words import score
from gpu_runners.cli.artifacts.loading import Refused, read_intact
from gpu_runners.cli.artifacts.recipes import pack_line, rules_line
from gpu_runners.cli.options import file_argument, json_option
from gpu_runners.cli.terminal import fail
from gpu_runners.terminal_text import as_line


@click.command()
@file_argument
@json_option("manifest, documents and receipts as JSON")
def inspect(*, file: str, as_json: bool) -> int:
    """Print what an intact file says about itself. Trust is `kolm verify`'s question, and not answered here."""
    try:
        kolm = read_intact(file)
    except Refused as error:
        return fail(str(error), code=error.exit_code)
    if as_json:
        documents = {path: json.loads(kolm.members[path]) for path in kolm.members if path in _DOCUMENTS}
        contents = {"manifest": kolm.manifest, "documents": documents, "receipts": kolm.receipts}
        print(json.dumps(contents, ensure_ascii=False, indent=2))
        return 0
    _show(kolm)
    return 0


_DOCUMENTS = frozenset(
    {
        *("spec.json", "k_score.json", "gate.json", "evals.json", "training_stats.json", "provenance.json"),
        *("labels.json", "prompt.json", "recipes.json", "rules.json", "extraction.json"),
    }
)


def _show(kolm: Kolm) -> None:
    manifest = kolm.manifest
    print(
        f"{manifest['name']}  {manifest['task_type']} task, compiled {manifest['created_at']} as {manifest['compile']}"
    )
    print(f"base      {as_line(manifest['base']['id'])}  {manifest['base']['sha256'][:16]}…")
    print(f"K-score   {score(manifest['k_score_ppm'])}, gate {manifest['gate']}")
    if "labels.json" in kolm.members:
        print(f"labels    {', '.join(as_line(str(label)) for label in json.loads(kolm.members['labels.json']))}")
    if "prompt.json" in kolm.members:
        print(f"answers   {as_line(_answers(json.loads(kolm.members['prompt.json'])))}")
    if "extraction.json" in kolm.members:
        print(f"answers   {as_line(_leaves(json.loads(kolm.members['extraction.json'])))}")
    print(f"recipes   {as_line(pack_line(kolm))}")
    print(f"rules     {as_line(rules_line(kolm))}")
    signers = ", ".join(keyid[:16] + "…" for keyid in kolm.signers)
    print(f"signed by {signers}  (not checked against a keyring: kolm verify)")
    print("receipts  " + " → ".join(str(receipt["predicate"]["step"]) for receipt in kolm.receipts))
    for member in manifest["members"]:
        print(f"  {member['size']:>10,}  {member['sha256'][:16]}…  {member['path']}")


def _answers(prompt: Any) -> str:
    """Say in a line what a model on a causal base writes; the file's maker may have put anything there."""
    answer = prompt.get("answer") if isinstance(prompt, dict) else None
    kind = answer.get("type") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or kind not in ("json", "label", "text"):
        return "of no known kind"
    longest = f"at most {prompt.get('max_new_tokens')} tokens"
    if kind != "json":
        return f"{'one of its labels' if kind == 'label' else 'text'}, {longest}"
    schema = answer.get("schema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    names = ", ".join(sorted(fields)) if isinstance(fields, dict) and fields else "any fields"
    return f"JSON with {names}, {longest}"


def _leaves(plan: Any) -> str:
    """Say in a line what a span student reads; the file's maker may have put anything there."""
    rules = plan.get("rules") if isinstance(plan, dict) else None
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        return "of no known kind"
    sentences = plan.get("sentences")
    forms = sentences.get("forms") if isinstance(sentences, dict) else None
    if isinstance(forms, list):
        return f"text of fixed forms, {len(forms):,} of them, with what is copied from the input"
    ways: dict[str, list[str]] = {}
    for rule in rules:
        ways.setdefault(str(rule.get("way")), []).append(str(rule.get("path")))
    return "JSON by spans: " + "; ".join(f"{way} {', '.join(paths)}" for way, paths in ways.items())
