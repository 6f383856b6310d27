"""Divergences of a student's distribution of a token from its teacher's, of whom the likeliest tokens alone are known:
over these and all others together as one outcome. By the data-processing inequality they are at most those over the
whole vocabulary."""

from enum import StrEnum

import torch
from torch import Tensor

LEAST = 1e-6  # of the probability of all others: float32 tells no less of 1 minus a sum


class Divergence(StrEnum):
    """FORWARD_KL is KL(teacher || student), which spreads the student over all that the teacher says; REVERSE_KL is
    KL(student || teacher), which keeps it to what the teacher finds likely (Gu et al. 2024); JSD the mean of both to
    their mixture (the generalised Jensen-Shannon divergence of Agarwal et al. 2024 at 0.5)."""

    FORWARD_KL = "forward_kl"
    REVERSE_KL = "reverse_kl"
    JSD = "jsd"


def divergence_of(probs: Tensor, student: Tensor, *, kind: Divergence) -> Tensor:
    """(n,) nats. `probs` (n, k) are the teacher's probabilities, 0 where nothing is known; `student` (n, k) the
    student's log-probs of the same tokens."""
    there = probs > 0
    student = student.masked_fill(~there, 0.0)  # an unused place may hold any token
    q = student.exp() * there
    p_rest = (1 - probs.sum(dim=1, keepdim=True)).clamp_min(LEAST)
    q_rest = (1 - q.sum(dim=1, keepdim=True)).clamp_min(LEAST)
    p, q = torch.cat([probs, p_rest], dim=1), torch.cat([q, q_rest], dim=1)
    log_q = torch.cat([student, q_rest.log()], dim=1)
    log_p = torch.where(p > 0, p, 1.0).log()
    if kind is Divergence.FORWARD_KL:
        return (p * (log_p - log_q)).sum(dim=1)
    if kind is Divergence.REVERSE_KL:
        return (q * (log_p - log_q).neg()).sum(dim=1)
    log_m = torch.where(p > 0, (p + q) / 2, 1.0).log()
    return (p * (log_p - log_m) + q * (log_q - log_m)).sum(dim=1) / 2
