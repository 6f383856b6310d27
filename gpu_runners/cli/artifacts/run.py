"""`kolm run`: texts answered by a `.kolm` on the reader's machine, offline."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from backend.domain.artifact.kolm_verify import Kolm
from backend.domain.errors import OurError
from backend.domain.evaluation.spans import SURE_PPM
from gpu_runners.cli.artifacts.loading import Refused, model_of, read_inputs, read_trusted, rules_of
from gpu_runners.cli.options import file_argument, json_option, trust_options
from gpu_runners.cli.terminal import fail
from gpu_runners.terminal_text import as_line

SHOWN_FIELDS = 5  # of those that a span student is not sure of


@click.command()
@file_argument
@click.argument("texts", metavar="[TEXT]...", nargs=-1, help="each is answered on a line")
@click.option(
    "--jsonl", is_flag=False, flag_value="-", metavar="FILE", help='lines of {"input": …} (default: standard input)'
)
@json_option("one JSON object a line")
@trust_options("run")
def run(
    *, file: str, texts: Sequence[str], jsonl: str | None, as_json: bool, keyring: str | None, allow_untrusted: bool
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
