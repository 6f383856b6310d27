"""What the trainer is measured beside: the plain loop of transformers (batches padded as they come) and TRL's
SFTTrainer with packing. TRL is not the project's: it lies in .bench-peers/trl (see peers_trl.txt)."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpu_runners.models.causal_base import CausalBase, load_weights
from gpu_runners.models.device import detect
from tests.bench.causal_trainer_arms import ALPHA, RANK, WARMUP, Clock, Measure, encoded, rate_of
from tests.bench.causal_trainer_data import Task

IGNORED = -100
TRL_ROW = 256  # tokens of a packed row, as ours on a CPU


def plain_loop(measure: Measure, base: CausalBase, task: Task, clock: Clock, folder: Path) -> dict[str, Any]:
    """transformers.Trainer with its collator, batches as they come."""
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    rows = [encoded(base, task, row) for row in task.train]
    dataset = [{"input_ids": ids, "labels": [IGNORED] * n + ids[n:]} for ids, n in rows]
    mean = sum(len(ids) for ids, _ in rows) / len(rows)
    arguments = TrainingArguments(
        per_device_train_batch_size=max(1, round(measure.tokens_per_step / mean)),
        remove_unused_columns=False,
        **_same(measure, base, folder),
    )
    model = _with_lora(base)
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=dataset,  # type: ignore[arg-type]
        data_collator=DataCollatorForSeq2Seq(base.tokenizer, padding=True),
        callbacks=[_ticks(clock)],
    )
    trainer.train()
    model.save_pretrained(str(folder))
    return {"batch_size": arguments.per_device_train_batch_size}


def trl_packed(measure: Measure, base: CausalBase, task: Task, clock: Clock, folder: Path) -> dict[str, Any]:
    """SFTTrainer(packing=True), best-fit-decreasing, completions alone; given the prompts and completions as we have
    them, so that its templates change nothing."""
    import secrets

    import datasets.fingerprint  # type: ignore[import-not-found,unused-ignore]
    from datasets import Dataset  # type: ignore[import-not-found,unused-ignore]
    from trl import SFTConfig, SFTTrainer  # type: ignore[import-not-found,unused-ignore]

    # it names its caches by pickling what its functions refer to, which here is everything; nothing is cached here
    datasets.fingerprint.Hasher.hash = staticmethod(lambda value: secrets.token_hex(8))
    rows = [encoded(base, task, row) for row in task.train]
    dataset = Dataset.from_list(
        [{"input_ids": ids, "completion_mask": [0] * n + [1] * (len(ids) - n)} for ids, n in rows]
    )
    row = max(TRL_ROW, max(len(ids) for ids, _ in rows))
    config = SFTConfig(
        packing=True,
        packing_strategy="bfd",
        max_length=row,
        per_device_train_batch_size=max(1, round(measure.tokens_per_step / row)),
        completion_only_loss=True,
        **_same(measure, base, folder),
    )
    model = _with_lora(base)
    trainer = SFTTrainer(
        model=model, args=config, train_dataset=dataset, processing_class=base.tokenizer, callbacks=[_ticks(clock)]
    )
    trainer.train()
    model.save_pretrained(str(folder))
    return {"row": row, "n_rows": len(trainer.train_dataset), "attention": model.config._attn_implementation}


PEERS: Mapping[str, Callable[[Measure, CausalBase, Task, Clock, Path], dict[str, Any]]] = {
    "transformers loop": plain_loop,
    "TRL, packed": trl_packed,
}


def _same(measure: Measure, base: CausalBase, folder: Path) -> dict[str, Any]:
    """Arguments that both have. The schedule is ours."""
    return {
        "output_dir": str(folder / "trainer"),
        "num_train_epochs": measure.epochs,
        "learning_rate": rate_of(base),
        "lr_scheduler_type": "linear",
        "warmup_steps": WARMUP,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "bf16": detect().bf16,
        "use_cpu": detect().device == "cpu",
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "seed": measure.seed,
        "gradient_checkpointing": False,
    }


def _with_lora(base: CausalBase) -> Any:
    from peft import LoraConfig, TaskType, get_peft_model

    from gpu_runners.distill.causal.loading import target_names

    model = load_weights(base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return get_peft_model(
            model,
            LoraConfig(
                task_type=TaskType.CAUSAL_LM,
                r=RANK,
                lora_alpha=ALPHA,
                lora_dropout=0.0,
                target_modules=target_names(model),
                bias="none",
            ),
        )


def _ticks(clock: Clock) -> Any:
    from transformers import TrainerCallback

    class Ticks(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            clock.tick()

    return Ticks()
