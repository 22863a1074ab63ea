"""Cross entropy of heads against the model's own distributions, computed in chunks to save memory."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 256  # rows whose logits are in memory at once
LEAST = 1e-30  # probabilities are clamped to this before taking logarithms


def taught(ids: Tensor, logp: Tensor, columns: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Returns the target distribution over a draft vocabulary: columns int64 [..., K], probabilities float32 [..., K].

    ids, logp [..., K]: as in `Lesson`; columns int64 [V]: an id's column or -1. Mass outside the draft vocabulary or
    the top K is dropped; the rest is renormalised to 1, or all 0 if nothing remains.
    """
    at = torch.where(ids >= 0, columns[ids.clamp(min=0)], -1)
    weight = torch.where(at >= 0, (logp / temperature).exp(), 0.0)
    return at.clamp(min=0), weight / weight.sum(dim=-1, keepdim=True).clamp(min=1e-30)


class Distillation(torch.autograd.Function):
    """Mean cross entropy [] in nats of softmax(states @ table.T) against probabilities at some columns.

    states [n, width], table [D, width], columns and probs [n, K]; rows whose probabilities are all 0 do not count. The
    gradient of the states is computed in the forward pass; the table gets none.
    """

    @staticmethod
    def forward(ctx, states: Tensor, table: Tensor, columns: Tensor, probs: Tensor) -> Tensor:
        counted = (probs.sum(dim=-1, keepdim=True) > 0).float()
        rows = counted.sum().clamp(min=1)
        total = states.new_zeros((), dtype=torch.float32)
        grad = torch.empty_like(states)
        for start in range(0, len(states), CHUNK):
            part = slice(start, start + CHUNK)
            logits = states[part] @ table.T
            at, wanted = columns[part], probs[part]
            slope = torch.softmax(logits, dim=-1)
            logp = slope.gather(1, at).float().clamp(min=LEAST).log()
            total -= (wanted * logp).sum()
            slope.scatter_add_(1, at, -wanted.to(slope.dtype)).mul_(counted[part])
            grad[part] = slope @ table
        ctx.save_for_backward(grad / rows)
        return total / rows

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0], None, None, None
