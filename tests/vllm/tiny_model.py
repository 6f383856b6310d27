"""A language model small enough to be made by the tests: 850,000 weights that have read a few thousand made-up
support replies, so that its answers are text and not noise, and are uncertain where the replies vary.

    python -m tests.vllm.tiny_model FOLDER          (in .venv; about a minute)

FOLDER/model holds the weights, FOLDER/tokenizer the tokenizer: beside a config, transformers would rebuild it after the
model's type, with other token boundaries.
"""

import json
import random
import sys
from pathlib import Path

TOPICS = {
    "refund": ("refund", "We have refunded", "The refund for"),
    "delivery": ("delivery", "We have sent", "The delivery of"),
    "repair": ("repair", "We have repaired", "The repair of"),
    "invoice": ("invoice", "We have billed", "The invoice for"),
}
ITEMS = ("lamp", "chair", "kettle", "printer", "bicycle", "blanket", "monitor", "teapot")
DAYS = ("two days", "three days", "one week", "two weeks", "one month")
OPENINGS = ("Hello,", "Good morning,", "Dear customer,", "Thank you for writing.")
CLOSINGS = ("Kind regards", "Please write again if anything is unclear.", "Have a good day.", "We are sorry for this.")
SPECIALS = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CONTEXT = 512
VOCABULARY = 512
STEPS = 450
NUL = "\u0100"  # how byte-level tokenizers write the byte 0, which no answer may hold


def question(topic: str, item: str, days: str) -> str:
    return f"A customer asks about the {TOPICS[topic][0]} of a {item} that was bought {days} ago."


def reply(topic: str, item: str, days: str, rng: random.Random) -> str:
    """One of many: the order, the phrases and the promise vary."""
    _, done, subject = TOPICS[topic]
    middle = [
        f"{done} the {item} that you bought {days} ago.",
        f"{subject} the {item} takes {rng.choice(DAYS)}.",
        f"You bought the {item} {days} ago, so this is {rng.choice(('free', 'covered', 'not covered'))}.",
    ]
    rng.shuffle(middle)
    parts = [rng.choice(OPENINGS), *middle[: rng.choice((1, 2, 2, 3))], rng.choice(CLOSINGS)]
    return " ".join(parts)


def questions() -> list[str]:
    return [question(topic, item, days) for topic in TOPICS for item in ITEMS for days in DAYS]


def conversations(n: int, rng: random.Random) -> list[tuple[str, str]]:
    """`n` questions, each with one reply."""
    asked = [(rng.choice(tuple(TOPICS)), rng.choice(ITEMS), rng.choice(DAYS)) for _ in range(n)]
    return [(question(*slice_), reply(*slice_, rng)) for slice_ in asked]


def make(folder: Path) -> None:
    pairs = conversations(4000, random.Random(0))
    _make_tokenizer(folder / "tokenizer", [text for pair in pairs for text in pair])
    _train(folder / "model", folder / "tokenizer", pairs)


def _make_tokenizer(folder: Path, texts: list[str]) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - {NUL})
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": SPECIALS[0],
        "pad_token": SPECIALS[0],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _train(folder: Path, tokenizer_folder: Path, pairs: list[tuple[str, str]]) -> None:
    import torch
    from tokenizers import Tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_num_threads(1)  # two that spin on a shared machine are slower than one
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    end = tokenizer.token_to_id(SPECIALS[0])
    rows = [tokenizer.encode(f"<|user|>{asked}<|end|><|assistant|>{said}<|end|>").ids for asked, said in pairs]
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=STEPS)
    order = random.Random(0)
    for _ in range(STEPS):
        batch = order.sample(rows, 16)
        longest = max(map(len, batch))
        ids = torch.tensor([row + [end] * (longest - len(row)) for row in batch])
        labels = torch.tensor([row + [-100] * (longest - len(row)) for row in batch])
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    (folder / "loss.txt").write_text(f"{loss.item():.4f}\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
