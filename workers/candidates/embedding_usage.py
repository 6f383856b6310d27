"""The usage fact of an embedding call."""

from collections.abc import Sequence

from backend.compiles.models import Candidate
from backend.domain.canonical import sha256_of
from backend.domain.money.pricing import cost_microusd
from backend.usage.ledger import Fact
from workers.embedding.protocol import Embedder
from workers.step.durable import CompileRun

SKU = "embedding.token"


def embedding_fact(run: CompileRun, rows: Sequence[Candidate], embedder: Embedder) -> Fact:
    book = run.book
    n_tokens = embedder.count_tokens([row.text for row in rows])
    return Fact(
        sku=SKU,
        quantity=n_tokens,
        unit="token",
        amount_microusd=cost_microusd(n_tokens, book.prices[SKU]),
        price_version=book.version,
        source_key=f"embed:{run.compile_id}:{sha256_of(sorted(row.text_key for row in rows))[:32]}",
    )
