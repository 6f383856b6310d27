"""`kolm inspect`, `run` and `serve`: what is done with a `.kolm` on the reader's machine, offline. `recipes` shows its
recipes and rules, `bench` measures them."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from backend.domain.artifact.kolm_verify import Kolm
from backend.domain.errors import OurError
from backend.domain.evaluation.spans import SURE_PPM
from gpu_runners.cli.artifacts.loading import Refused, model_of, read_inputs, read_intact, read_trusted, rules_of
from gpu_runners.cli.artifacts.recipes import pack_line, rules_line
from gpu_runners.cli.options import AddOptions
from gpu_runners.cli.terminal import fail
from gpu_runners.terminal_text import as_line

SHOWN_FIELDS = 5  # of those that a span student is not sure of


def _inspect_options(inspect: argparse.ArgumentParser) -> None:
    inspect.add_argument("file", metavar="FILE")
    inspect.add_argument("--json", action="store_true")
    inspect.set_defaults(command=_run_inspect)


def _run_options(run: argparse.ArgumentParser) -> None:
    run.add_argument("file", metavar="FILE")
    run.add_argument("texts", metavar="TEXT", nargs="*")
    run.add_argument(
        "--jsonl", nargs="?", const="-", metavar="FILE", help='lines of {"input": …} (default: standard input)'
    )
    run.add_argument("--json", action="store_true", help="one JSON object a line")
    _add_trust(run)
    run.set_defaults(command=_run_run)


def _serve_options(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("file", metavar="FILE")
    serve.add_argument(
        "--host", default="127.0.0.1", help="loopback unless you say otherwise: there is no authentication"
    )
    serve.add_argument("--port", type=int, default=8090)
    serve.add_argument(
        "--max-running", type=int, default=16, metavar="N", help="answers generated at a time (json and text tasks)"
    )
    serve.add_argument(
        "--draft", metavar="BASE", help="a base that drafts tokens, where the compiler chose one (or the spec's)"
    )
    _add_trust(serve)
    serve.set_defaults(command=_run_serve)


def _add_trust(command: argparse.ArgumentParser) -> None:
    command.add_argument("--keyring", metavar="FILE")
    command.add_argument(
        "--allow-untrusted", action="store_true", help="run an intact file although nobody vouches for its key"
    )


def _run_inspect(options: argparse.Namespace) -> int:
    return inspect(options.file, as_json=options.json)


def _run_run(options: argparse.Namespace) -> int:
    return run(
        options.file,
        options.texts,
        jsonl=options.jsonl,
        as_json=options.json,
        keyring=options.keyring,
        allow_untrusted=options.allow_untrusted,
    )


def _run_serve(options: argparse.Namespace) -> int:
    return serve(
        options.file,
        host=options.host,
        port=options.port,
        max_running=options.max_running,
        draft=options.draft,
        keyring=options.keyring,
        allow_untrusted=options.allow_untrusted,
    )


def inspect(file: str, *, as_json: bool) -> int:
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
    print(f"K-score   {manifest['k_score_ppm'] / 1e6:.4f}, gate {manifest['gate']}")
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
    ways: dict[str, list[str]] = {}
    for rule in rules:
        ways.setdefault(str(rule.get("way")), []).append(str(rule.get("path")))
    return "JSON by spans: " + "; ".join(f"{way} {', '.join(paths)}" for way, paths in ways.items())


def run(
    file: str, texts: Sequence[str], *, jsonl: str | None, as_json: bool, keyring: str | None, allow_untrusted: bool
) -> int:
    try:
        inputs = list(texts) if jsonl is None else read_inputs(jsonl)
        if jsonl is not None and texts:
            return fail("give texts or --jsonl, not both.", code=2)
        if not inputs:
            return fail('give a text, or lines of {"input": …} with --jsonl.', code=2)
        outputs = _outputs(read_trusted(file, keyring, allow_untrusted), inputs)
    except Refused as error:
        return fail(str(error), code=error.exit_code)
    except OurError as error:  # an input longer than the base's context
        return fail(error.message)
    for text, output in zip(inputs, outputs, strict=True):
        print(json.dumps({"input": text} | output, ensure_ascii=False) if as_json or jsonl else _line(output))
    return 0


def _outputs(kolm: Kolm, inputs: Sequence[str]) -> list[dict[str, Any]]:
    """Rules before the model: where they answer everything, no model is loaded. Raises Refused, OurError."""
    from gpu_runners.artifacts.abstaining import abstain_ppm_of, with_doubts
    from gpu_runners.artifacts.rules_first import predict_with_rules

    def model(left: Sequence[str]) -> list[dict[str, Any]]:
        loaded = model_of(kolm, n_texts=len(left))
        return [dict(row) for row in loaded.predict(left)]

    is_label = kolm.manifest["task_type"] == "label"
    rows = predict_with_rules(rules_of(kolm), inputs, is_label=is_label, model=model)
    return with_doubts(rows, abstain_ppm_of(kolm.members)) if is_label else rows


def _line(output: Mapping[str, Any]) -> str:
    rule = f"  rule {output['rule']}" if output.get("rule") else "  rules" if "rule" in output else ""
    if "label" in output:
        doubt = "  unsure" if output.get("is_unsure") else ""
        label, ms = as_line(output["label"]), output["latency_us"] / 1000
        return f"{label}  {output['confidence']:.3f}{doubt}  {ms:.1f} ms{rule}"
    sure = f"  {output['confidence']:.3f}" if "confidence" in output else ""
    cut = "" if output["finish_reason"] == "stop" else "  (cut off)"
    return f"{output['output']}{cut}{sure}{rule}{_unsure(output.get('fields', ()))}"


def _unsure(fields: Sequence[Mapping[str, Any]]) -> str:
    """The fields of a span student's answer that it is not sure of, the least sure first; "" for none."""
    doubted = sorted((one for one in fields if one["confidence_ppm"] < SURE_PPM), key=lambda one: one["confidence_ppm"])
    named = [f"{as_line(one['path'])} {one['confidence_ppm'] / 1e6:.3f}" for one in doubted[:SHOWN_FIELDS]]
    more = f" and {len(doubted) - SHOWN_FIELDS} more" if len(doubted) > SHOWN_FIELDS else ""
    return f"  unsure of {', '.join(named)}{more}" if named else ""


def serve(
    file: str,
    *,
    host: str,
    port: int,
    keyring: str | None,
    allow_untrusted: bool,
    max_running: int = 16,
    draft: str | None = None,
) -> int:
    try:
        kolm = read_trusted(file, keyring, allow_untrusted)
        model = model_of(kolm, max_running=max_running, draft=draft)
    except Refused as error:
        return fail(str(error), code=error.exit_code)
    from gpu_runners.artifacts.label_model import LabelModel
    from gpu_runners.artifacts.span_model import SpanModel
    from gpu_runners.serving.label_server import ArtifactServer

    if not isinstance(model, LabelModel | SpanModel):
        from gpu_runners.serving.openai.single import serve_one

        return serve_one(kolm, model, host=host, port=port)
    try:
        server = ArtifactServer((host, port), model=model, manifest=kolm.manifest)
    except OSError as error:
        return fail(f"{host}:{port} cannot be used ({error.strerror}); choose another --port.")
    with server:
        url = f"http://{host}:{server.server_address[1]}/v1"
        print(f"serving {kolm.manifest['name']} on {url}/run, for OpenAI's clients on {url}", flush=True)
        server.serve_forever()
    return 0


OPTIONS: dict[str, AddOptions] = {
    "inspect": _inspect_options,
    "run": _run_options,
    "serve": _serve_options,
}
