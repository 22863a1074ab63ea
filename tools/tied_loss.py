"""Losses through the tied embedding that never hold the logits of a whole batch.

The logits of all heads would be [B * L, h, V]; here they are formed in chunks of rows that stay in the last-level
cache, and the gradient of each chunk is taken at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rescore.decode.blockwise import BlockwiseTransformer

CHUNK_ROWS = 1024
DISTILL_CHUNK_ROWS = 256  # two matrices of logits are alive at a time


class TiedCrossEntropy(torch.autograd.Function):
    """Mean cross entropy [] in nats of softmax(hidden @ embedding.T) against ids.

    hidden [n, width]; embedding [V, width]; ids [n] int64. Gradients are formed in the forward pass.
    """

    @staticmethod
    def forward(ctx, hidden: Tensor, embedding: Tensor, ids: Tensor) -> Tensor:
        rows = hidden.shape[0]
        total = hidden.new_zeros((), dtype=torch.float32)
        grad_hidden = torch.empty_like(hidden)
        grad_embedding = torch.zeros_like(embedding, dtype=torch.float32)
        for start in range(0, rows, CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            logp = torch.log_softmax(hidden[part] @ embedding.T, dim=-1)
            total -= logp.gather(1, ids[part, None]).sum(dtype=torch.float32)
            grad = logp.exp_()
            grad.scatter_add_(1, ids[part, None], -torch.ones_like(grad[:, :1]))
            grad_hidden[part] = grad @ embedding
            if ctx.needs_input_grad[1]:
                grad_embedding += grad.T @ hidden[part]
        ctx.save_for_backward(grad_hidden / rows, (grad_embedding / rows).to(embedding.dtype))
        return total / rows

    @staticmethod
    def backward(ctx, grad_output):
        grad_hidden, grad_embedding = ctx.saved_tensors
        return grad_output * grad_hidden, grad_output * grad_embedding, None


def first_loss(model: BlockwiseTransformer, hidden: Tensor, ids: Tensor) -> Tensor:
    """Loss of head 1 at every position; hidden [B, L, width], ids [B, L]."""
    mixed = model.heads[0](hidden[:, :-1]).flatten(0, 1)
    return TiedCrossEntropy.apply(mixed, model.embedding.weight, ids[:, 1:].flatten())


def later_losses(model: BlockwiseTransformer, hidden: Tensor, ids: Tensor, rows: Tensor) -> list[Tensor]:
    """Losses of heads 2..h at the positions `rows` (indices into the flattened [B, L]); hidden [B, L, width]."""
    length = ids.shape[1]
    flat_hidden, flat_ids = hidden.flatten(0, 1), ids.flatten()
    losses = []
    for j in range(2, model.config.heads + 1):
        inside = rows[rows % length < length - j]
        mixed = model.heads[j - 1](flat_hidden[inside])
        losses.append(TiedCrossEntropy.apply(mixed, model.embedding.weight, flat_ids[inside + j]))
    return losses


def own_positions(start: Tensor, stop: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Where the model continued itself: positions int64 [n] in the flattened [B, L], and how many heads may look there.

    Position m predicts token m + 1, which the model drew for start <= m + 1 < stop. Head j predicts the same token
    from position m - j + 1, and is taught if everything after that position was drawn too: j - 1 <= reach[m], int64 [n].
    """
    column = torch.arange(length, device=start.device)
    taught = (column >= start[:, None]) & (column < stop[:, None] - 1)
    positions = taught.flatten().nonzero()[:, 0]
    return positions, (column - start[:, None] + 1).flatten()[positions]


def distill(
    model: BlockwiseTransformer, hidden: Tensor, positions: Tensor, reach: Tensor, temperature: float, *, measure: bool
) -> list[float]:
    """Add to the gradients of heads 2..h those of the mean cross entropy against head 1 at `temperature`.

    Head j learns the target's own distribution j positions ahead of what it has read: the token there was drawn
    by the target, and head 1 at the position before it says from which distribution. `positions` and `reach` as given by
    `own_positions`; hidden [B, L, width]. The losses in nats come back when `measure` is set, else an empty list.
    """
    flat, embedding = hidden.flatten(0, 1), model.embedding.weight
    with torch.no_grad():
        teacher = model.heads[0](flat[positions])
    ahead = range(1, model.config.heads)
    mixed = [model.heads[d](flat[(positions - d).clamp(min=0)]) for d in ahead]
    taught = [(reach >= d).float()[:, None] for d in ahead]
    weights = [mask / mask.sum().clamp(min=1) for mask in taught]
    grads = [torch.empty_like(m) for m in mixed]
    losses = torch.zeros(len(mixed))
    with torch.no_grad():
        for begin in range(0, len(positions), DISTILL_CHUNK_ROWS):
            part = slice(begin, begin + DISTILL_CHUNK_ROWS)
            target = torch.softmax((teacher[part] @ embedding.T).div_(temperature), dim=-1)
            for d, (states, weight, grad) in enumerate(zip(mixed, weights, grads)):
                logits = states[part] @ embedding.T
                if measure:
                    logp = torch.log_softmax(logits.float(), dim=-1)
                    losses[d] -= ((logp * target).sum(dim=-1, keepdim=True) * weight[part]).sum().cpu()
                grad[part] = (torch.softmax(logits, dim=-1).sub_(target) @ embedding) * weight[part]
    if mixed[0].requires_grad:
        torch.autograd.backward(mixed, grads)
    return losses.tolist() if measure else []
