"""Train the tiny base: the same source and seed give the same bytes on one machine, other machines' may differ in the
last bits. What it gave once is part of this package, so that nobody has to wait for it and its digest is the same
everywhere; `make base-anew` trains it again."""

import ast
import fcntl
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from gpu_runners.tiny_base import rows, words
from gpu_runners.tiny_base.chats import chats
from gpu_runners.tiny_base.circuit import plant
from gpu_runners.tiny_base.tokens import save_tokenizer, train_tokenizer

NAME = "kolm-tiny-1"
STAMP = "trained.json"
SHIPPED = Path(__file__).parent / NAME  # as the recipe below left it, once; a test holds its stamp to the source


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The defaults are kolm-tiny-1's."""

    seed: int = 7
    steps: int = 4000
    step_tokens: int = 1024
    learning_rate: float = 2e-3
    warmup: int = 20
    context: int = 1024
    hidden: int = 128
    layers: int = 5
    heads: int = 4
    head_dim: int = 64
    tokenizer_chats: int = 3000


def ensure(
    folder: Path,
    *,
    say: Callable[[str], None] = lambda line: None,
    recipe: Recipe | None = None,
    is_trained_here: bool = False,
) -> Path:
    """`folder`/kolm-tiny-1: what is there, if it is of this source; else what this package ships; else, or with
    `is_trained_here`, trained (a quarter of an hour of one core). Processes that come at the same time wait for the
    one that trains."""
    made, recipe = folder / NAME, recipe or Recipe()
    folder.mkdir(parents=True, exist_ok=True)
    digest = source_sha256(recipe)
    with _alone(folder / f".{NAME}.lock"):
        if _stamp(made) == digest and not is_trained_here:
            return made
        scratch = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=folder))
        try:
            if _stamp(SHIPPED) == digest and not is_trained_here:
                shutil.copytree(SHIPPED, scratch, dirs_exist_ok=True)
            else:
                say(f"training {NAME} into {folder} (once; about a quarter of an hour on one core)")
                started = time.process_time()
                train(scratch, recipe, say=say)
                stamp = {"source_sha256": digest, "cpu_s": round(time.process_time() - started)}
                (scratch / STAMP).write_text(json.dumps(stamp) + "\n")
            scratch.chmod(0o755)
            for path in scratch.iterdir():
                path.chmod(0o644)
            _replace(made, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return made


def train(folder: Path, recipe: Recipe, *, say: Callable[[str], None] = lambda line: None) -> None:
    """Write a base into `folder`, which must exist: config, generation config, tokenizer, safetensors."""
    import torch

    from gpu_runners.distill.repeatable import deterministic

    with deterministic(recipe.seed):
        tokenizer = train_tokenizer(_texts(recipe), context=recipe.context)
        model = _new_model(recipe, tokenizer)
        optimizer = torch.optim.AdamW(_groups(model), betas=(0.9, 0.95), weight_decay=0.01)
        start, shown = time.monotonic(), 0.0
        feed = rows.batches(
            tokenizer,
            seed=recipe.seed,
            n_steps=recipe.steps,
            step_tokens=recipe.step_tokens,
            context=recipe.context,
        )
        for step, batch in enumerate(feed):
            loss = _step(model, optimizer, batch, tokenizer.pad_token_id, _rate(recipe, step))
            if step + 1 == recipe.steps or time.monotonic() - shown > 10:
                shown = time.monotonic()
                say(f"step {step + 1}/{recipe.steps}  loss {loss:.3f}  {shown - start:.0f} s")
    _save(folder, model, tokenizer)


def source_sha256(recipe: Recipe) -> str:
    """Hash this package's code and the recipe: other code is another base, other comments are not."""
    digest = hashlib.sha256(repr(recipe).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(f"{path.name}\0{_code(path.read_text(encoding='utf-8'))}\0".encode())
    return digest.hexdigest()


def _code(source: str) -> str:
    """The lines that hold code: without docstrings, blank lines and those of a comment alone."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            first, last = node.body[0].lineno, node.body[0].end_lineno or node.body[0].lineno
            lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def _texts(recipe: Recipe) -> Iterator[str]:
    """The texts that the vocabulary is trained on; common words often enough to become one token each."""
    for chat in islice(chats(recipe.seed), recipe.tokenizer_chats):
        yield from (chat.system, chat.user, chat.answer)
    lists = (words.COMMON, words.FIRST, words.LAST, words.CITIES, words.THINGS, words.FIELD_WORDS, words.TITLE_WORDS)
    for known in lists:
        for word in known:
            yield " ".join([word] * 20 + [word.capitalize()] * 10)


def _new_model(recipe: Recipe, tokenizer: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads // 2,
        head_dim=recipe.head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        intermediate_size=2 * recipe.hidden,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model: Any = LlamaForCausalLM(config)
    plant(model, seed=recipe.seed)
    return model.train()


def _groups(model: Any) -> list[dict[str, Any]]:
    """Group the parameters: what was planted is sharp and moves slowly: at the full rate it is gone after 40 steps
    (measured)."""
    slow = {"embed_tokens": 0.3, "layers.0.self_attn": 0.1, "layers.1.self_attn": 0.1}
    groups: dict[float, list[Any]] = {}
    for name, parameter in model.named_parameters():
        share = next((share for part, share in slow.items() if part in name), 1.0)
        groups.setdefault(share, []).append(parameter)
    return [{"params": parameters, "share": share} for share, parameters in groups.items()]


def _step(model: Any, optimizer: Any, batch: list[rows.Row], pad: int, rate: float) -> float:
    """One update. The head is computed where something is learnt and nowhere else: it is a fifth of the work."""
    import torch

    ids, labels = rows.tensors(batch, pad)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    learnt = labels[:, 1:] != rows.IGNORED
    loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[learnt]), labels[:, 1:][learnt])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def _rate(recipe: Recipe, step: int) -> float:
    """Rise over the warm-up, then linearly down to a twentieth."""
    if step < recipe.warmup:
        return recipe.learning_rate * (step + 1) / recipe.warmup
    left = 1 - (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    return recipe.learning_rate * (0.05 + 0.95 * left)


def _save(folder: Path, model: Any, tokenizer: Any) -> None:
    from transformers import GenerationConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.eval()
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=False
    )
    model.save_pretrained(str(folder))
    save_tokenizer(tokenizer, folder)


def _stamp(folder: Path) -> str:
    try:
        data: dict[str, Any] = json.loads((folder / STAMP).read_text("utf-8"))
    except (OSError, ValueError):
        return ""
    return str(data.get("source_sha256", ""))


def _replace(made: Path, scratch: Path) -> None:
    """Replace under the lock. Whoever has the old files open keeps them."""
    if made.exists():
        shutil.rmtree(made)
    scratch.rename(made)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """The kernel drops the lock however its holder dies."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
