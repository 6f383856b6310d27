"""A tokenizer.json as llama.cpp's vocabulary, and whether llama.cpp cuts a text where it does."""

from collections.abc import Mapping
from typing import Any

_APOSTROPHES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
_SPACES = " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
_CUTS = {  # regular expressions of byte-level tokenizers, by llama.cpp's names
    f"{_APOSTROPHES}|\\p{{N}}|{_SPACES}": "qwen2",
    f"{_APOSTROPHES}|\\p{{N}}{{1,3}}|{_SPACES}": "llama-bpe",
}
_SPACE = "▁"


def cut_of(tokenizer: Mapping[str, Any]) -> str | None:
    """llama.cpp's name for how this tokenizer cuts texts; "spm" for one of sentencepiece's kind; None: it has none, and
    prompts must be sent as token ids."""
    model, cutter = tokenizer["model"], tokenizer.get("pre_tokenizer") or {}
    if model.get("type") != "BPE":
        return None
    if model.get("byte_fallback"):
        normal = tokenizer.get("normalizer") or {}
        return "spm" if normal.get("type") == "Replace" and normal.get("content") == _SPACE else None
    parts = cutter.get("pretokenizers", [cutter])
    last = parts[-1]
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        return None
    if len(parts) == 1:
        return "gpt-2" if last.get("use_regex", True) else None
    pattern = (parts[0].get("pattern") or {}).get("Regex", "")
    is_plain = len(parts) == 2 and parts[0].get("behavior") == "Isolated" and not last.get("use_regex", True)
    return _CUTS.get(pattern) if is_plain else None


def write_tokens(writer: Any, tokenizer: Mapping[str, Any], n_vocab: int) -> None:
    """Write tokens, kinds and merges, or scores. A base has more rows than tokens: the others are unused."""
    from gguf import TokenType

    vocab = {index: token for token, index in tokenizer["model"]["vocab"].items()}
    added = {one["id"]: one for one in tokenizer.get("added_tokens", [])}
    unknown = tokenizer["model"].get("unk_token")

    def kind(index: int) -> int:
        token = added[index]["content"] if index in added else vocab.get(index)
        if token is None:
            return int(TokenType.UNUSED)
        if token == unknown:
            return int(TokenType.UNKNOWN)
        if index in added:
            return int(TokenType.CONTROL if added[index]["special"] else TokenType.USER_DEFINED)
        is_byte = tokenizer["model"].get("byte_fallback") and len(token) == 6 and token.startswith("<0x")
        return int(TokenType.BYTE if is_byte else TokenType.NORMAL)

    texts = {**vocab, **{index: one["content"] for index, one in added.items()}}
    is_sentencepiece = bool(tokenizer["model"].get("byte_fallback"))
    writer.add_tokenizer_model("llama" if is_sentencepiece else "gpt2")
    writer.add_tokenizer_pre("default" if is_sentencepiece else cut_of(tokenizer) or "gpt-2")
    writer.add_token_list([texts.get(i, f"[UNUSED{i}]") for i in range(n_vocab)])
    writer.add_token_types([kind(i) for i in range(n_vocab)])
    if is_sentencepiece:  # the earlier a piece was merged, the higher it scores: what sentencepiece's BPE writes too
        writer.add_token_scores([-float(i) for i in range(n_vocab)])
        writer.add_add_space_prefix(False)
    else:
        merges = tokenizer["model"]["merges"]
        writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])
