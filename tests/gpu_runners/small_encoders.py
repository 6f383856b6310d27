"""Random encoders of the families that people use, each with a real tokenizer of its kind and the files that
sentence-transformers writes beside the weights. Made in a second, good for everything but meaning."""

import json
import warnings
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

WORDS = [
    "where is my parcel number 17 of the order",
    "my invoice shows 30 too much, the card payment failed",
    "i want to send back the broken part and get a refund",
    "what are your opening hours in the shop; do you hire people",
    "query: classification: clustering: passage",
    "Wo bleibt mein Paket? Die Größe paßt nicht, ich möchte es zurückgeben",
    "荷物はどこですか。返品したいのですが、請求書が間違っています",
]
FAMILIES = ("bert", "roberta", "xlm-roberta", "mpnet", "modernbert", "nomic_bert")
NARROW = ("albert", "electra")  # with an embedding of a width of its own
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.3,
}


def make_encoder(
    folder: Path,
    family: str = "bert",
    *,
    pooling: str = "mean",
    prompts: dict[str, str] | None = None,
    default_prompt: str | None = None,
    max_tokens: int | None = 40,
    normalize: bool = True,
    is_old: bool = False,
) -> Path:
    """`is_old`: the pooling is written as sentence-transformers did before 6 (one `pooling_mode_*` a mode)."""
    import torch
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True)
    tokenizer, special = _tokenizer(family)
    vocabulary = tokenizer.get_vocab()
    torch.manual_seed(7)
    model = _model(family, len(vocabulary), vocabulary[special["pad_token"]])
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=60, **special).save_pretrained(folder)
    _write_sentence_files(folder, pooling, normalize=normalize, is_old=is_old)
    bert = {} if max_tokens is None else {"max_seq_length": max_tokens, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(bert))
    config = {"prompts": prompts or {}, "default_prompt_name": default_prompt, "similarity_fn_name": "cosine"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    return folder


def _write_sentence_files(folder: Path, pooling: str, *, normalize: bool, is_old: bool) -> None:
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    keys = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
    keys |= {"weightedmean": "weightedmean_tokens", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens"}
    if is_old:
        config: dict[str, Any] = {f"pooling_mode_{key}": mode == pooling for mode, key in keys.items()}
        config["word_embedding_dimension"] = SIZES["hidden_size"]
    else:
        config = {"embedding_dimension": SIZES["hidden_size"], "pooling_mode": pooling, "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))


def _model(family: str, n_tokens: int, pad_id: int) -> Any:
    import transformers as t

    sizes = SIZES | {"vocab_size": n_tokens, "pad_token_id": pad_id, "max_position_embeddings": 64}
    after_padding = sizes | {"max_position_embeddings": 64 + pad_id + 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match family:
            case "roberta":
                return t.RobertaModel(t.RobertaConfig(**after_padding, type_vocab_size=1))
            case "xlm-roberta":
                return t.XLMRobertaModel(t.XLMRobertaConfig(**after_padding, type_vocab_size=1))
            case "mpnet":
                return t.MPNetModel(t.MPNetConfig(**after_padding))
            case "modernbert":
                ids = {"bos_token_id": 0, "eos_token_id": 1, "cls_token_id": 0, "sep_token_id": 1}
                return t.ModernBertModel(t.ModernBertConfig(**sizes, **ids))
            case "albert":
                return t.AlbertModel(t.AlbertConfig(**sizes, embedding_size=16))
            case "electra":
                return t.ElectraModel(t.ElectraConfig(**sizes, embedding_size=16))
            case "nomic_bert":
                return t.NomicBertModel(t.NomicBertConfig(**sizes))
            case _:
                return t.BertModel(t.BertConfig(**sizes))


def _tokenizer(family: str) -> tuple[Tokenizer, dict[str, str]]:
    special = {"cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
    trainer: Any
    if family in ("bert", "nomic_bert", *NARROW):
        special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
        special["pad_token"] = "[PAD]"
        order = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=order)
    else:
        special["pad_token"] = "<pad>"
        order = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        if family == "xlm-roberta":
            tokenizer = Tokenizer(models.Unigram())
            tokenizer.normalizer = normalizers.NFKC()
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
            trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=order, unk_token="<unk>")
        else:
            tokenizer = Tokenizer(models.BPE())
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=order, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(WORDS * 3, trainer)
    cls, sep = special["cls_token"], special["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", special_tokens=[(name, tokenizer.token_to_id(name)) for name in (cls, sep)]
    )
    return tokenizer, special
