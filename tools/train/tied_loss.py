"""Losses through tables of output embeddings that never hold the logits of a whole batch.

The logits of all heads would be [B * L, h, V]; here they are formed in chunks of rows that stay in the last-level
cache, and the gradient of each chunk is taken at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

CHUNK_ROWS = 1024
DISTILL_CHUNK_ROWS = 256  # two matrices of logits are alive at a time


class TiedCrossEntropy(torch.autograd.Function):
    """Mean cross entropy [] in nats of softmax(hidden @ embedding.T) against ids.

    hidden [n, width]; embedding [V, width]; ids [n] int64. Gradients are formed in the forward pass, those that are
    wanted.
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
            if not any(ctx.needs_input_grad):
                continue
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


def cross_entropy(hidden: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """`TiedCrossEntropy`, which does not see by itself that gradients are switched off."""
    inputs = (hidden, table) if torch.is_grad_enabled() else (hidden.detach(), table.detach())
    return TiedCrossEntropy.apply(*inputs, ids)


def first_loss(mixed: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """Loss of head 1 at every position; mixed [B, L, width] are its states before the table [V, width], ids [B, L]."""
    return cross_entropy(mixed[:, :-1].flatten(0, 1), table, ids[:, 1:].flatten())


def later_losses(
    heads: Sequence[nn.Module], tables: Sequence[Tensor], hidden: Tensor, ids: Tensor, rows: Tensor
) -> list[Tensor]:
    """Losses of `heads`, the model's heads 2..h, at the positions `rows` (indices into the flattened [B, L]); hidden
    [B, L, width].

    Head j's logits are heads[j - 2](hidden) @ tables[j - 2].T.
    """
    length = ids.shape[1]
    flat_hidden, flat_ids = hidden.flatten(0, 1), ids.flatten()
    losses = []
    for j, (head, table) in enumerate(zip(heads, tables), start=2):
        inside = rows[rows % length < length - j]
        losses.append(cross_entropy(head(flat_hidden[inside]), table, flat_ids[inside + j]))
    return losses


def own_positions(start: Tensor, stop: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Where the model continued itself: positions int64 [n] in the flattened [B, L], and how many heads may look there.

    Position m predicts token m + 1, which the model drew for start <= m + 1 < stop. Head j predicts the same token
    from position m - j + 1, and is taught if everything after that position was drawn too: j - 1 <= reach[m], int64
    [n].
    """
    column = torch.arange(length, device=start.device)
    taught = (column >= start[:, None]) & (column < stop[:, None] - 1)
    positions = taught.flatten().nonzero()[:, 0]
    return positions, (column - start[:, None] + 1).flatten()[positions]


def distill(
    heads: Sequence[nn.Module],
    tables: Sequence[Tensor],
    target: Callable[[Tensor], Tensor],
    hidden: Tensor,
    positions: Tensor,
    reach: Tensor,
    *,
    measure: bool,
) -> list[float]:
    """Add to the gradients of heads 2..h, and of the tables that want them, those of the mean cross entropy against
    head 1.

    Head j learns the model's own distribution j positions ahead of what it has read: the token there was drawn
    by the model, and head 1 at the position before it says from which distribution: `target` gives these probabilities
    [n, V] for hidden states [n, width]. heads and tables as in `later_losses`; hidden [B, L, width]; `positions` and
    `reach` as given by `own_positions`. The losses in nats come back when `measure` is set, else an empty list.
    """
    flat = hidden.flatten(0, 1)
    ahead = range(1, len(heads) + 1)
    mixed = [head(flat[(positions - d).clamp(min=0)]) for d, head in zip(ahead, heads)]
    taught = [(reach >= d).float()[:, None] for d in ahead]
    weights = [mask / mask.sum().clamp(min=1) for mask in taught]
    grads = [torch.empty_like(m) for m in mixed]
    learnt = [table.requires_grad and torch.is_grad_enabled() for table in tables]
    table_grads = [
        torch.zeros_like(table, dtype=torch.float32) if wanted else None for table, wanted in zip(tables, learnt)
    ]
    losses = torch.zeros(len(mixed))
    with torch.no_grad():
        for begin in range(0, len(positions), DISTILL_CHUNK_ROWS):
            part = slice(begin, begin + DISTILL_CHUNK_ROWS)
            aim = target(flat[positions[part]])
            for d, (states, table, weight, grad, table_grad) in enumerate(
                zip(mixed, tables, weights, grads, table_grads)
            ):
                logits = states[part] @ table.T
                if measure:
                    logp = torch.log_softmax(logits.float(), dim=-1)
                    losses[d] -= ((logp * aim).sum(dim=-1, keepdim=True) * weight[part]).sum().cpu()
                slope = torch.softmax(logits, dim=-1).sub_(aim)
                grad[part] = (slope @ table) * weight[part]
                if table_grad is not None:
                    table_grad += slope.T @ (states[part] * weight[part]).to(slope.dtype)
    wanted = [(m, grad) for m, grad in zip(mixed, grads) if m.requires_grad]
    wanted += [(table, grad.to(table.dtype)) for table, grad in zip(tables, table_grads) if grad is not None]
    if wanted:
        torch.autograd.backward(*zip(*wanted))
    return losses.tolist() if measure else []
