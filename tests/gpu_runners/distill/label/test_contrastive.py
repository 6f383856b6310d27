import numpy as np
import pytest
import torch

from gpu_runners.distill.label.contrastive import contrastive_loss, embed_members

ROWS = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
ONES = torch.ones(3)


def test_the_loss_by_hand() -> None:
    """Cosines: .6 of the first two, which are alike; .8 and 0 of each with the third."""
    loss = contrastive_loss(ROWS, torch.tensor([0, 0, 1]), ONES)
    assert float(loss) == pytest.approx(0.4**2 + (0.8**2 + 0.0) / 2)


def test_a_pair_counts_by_the_product_of_its_weights() -> None:
    loss = contrastive_loss(ROWS, torch.tensor([0, 1, 2]), torch.tensor([1.0, 3.0, 1.0]))
    assert float(loss) == pytest.approx((3 * 0.6**2 + 3 * 0.8**2 + 0.0) / 7)


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 0]])
def test_a_batch_of_one_kind_of_pairs_has_a_finite_loss(labels: list[int]) -> None:
    rows = ROWS.clone().requires_grad_()
    loss = contrastive_loss(rows, torch.tensor(labels), ONES)
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss)
    assert rows.grad is not None
    assert torch.isfinite(rows.grad).all()


def test_a_batch_of_one_text_has_no_loss() -> None:
    assert float(contrastive_loss(ROWS[:1], torch.tensor([0]), ONES[:1])) == 0.0


class Lengths:
    """Embeds a row as its number."""

    def vectors(self, chosen: list[int], *, dropout: bool) -> torch.Tensor:
        assert not dropout
        return torch.tensor([[float(i), 0.0] for i in chosen])


def test_vectors_come_in_the_order_of_the_members() -> None:
    rows = [[7] * n for n in (5, 1, 4, 2, 3, 9)]
    out = embed_members(Lengths(), rows, np.array([5, 0, 3, 1]))  # type: ignore[arg-type]
    assert out[:, 0].tolist() == [5.0, 0.0, 3.0, 1.0]
