"""A batch in parts that fit into memory, with the gradient of the whole.

The losses compare every view with every other, so no part has a loss of its own. Therefore three passes: all parts
forward without a graph; the loss of all their projections and logits together, and back to these; then each part once
more, with a graph, and back from its rows of that gradient to the weights. No pass draws anything at random, so the
third repeats the first.
"""

from dataclasses import replace
from itertools import compress, pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.methods.phases import Phase
from sptnet.model.gcd_model import GcdModel
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.compute import Compute
from sptnet.training.batches import Batch
from sptnet.training.step import Projected, enter_last_block, leave_last_block


class InParts:
    """The first pass; `outputs` are for the loss. When that has gone back to them, `go_back` does the rest."""

    def __init__(
        self, model: GcdModel, batch: Batch, phase: Phase, compute: Compute, bank: TokenBank | None, n_parts: int
    ):
        self.model, self.phase, self.compute, self.bank = model, phase, compute, bank
        self.parts = split_batch(batch, n_parts)
        # Where nothing before the last block trains, what enters it is kept: far smaller than what the blocks need.
        self.kept: list[list[Tensor]] = []
        outputs = []
        with torch.no_grad():
            for part in self.parts:
                entering = enter_last_block(model, part, phase, compute, bank)
                outputs.append(leave_last_block(model, entering, phase, compute))
                if not trains_before_last_block(model, phase):
                    self.kept.append(entering)
        projections, logits = (join_views(list(rows)).requires_grad_() for rows in zip(*outputs, strict=True))
        self.outputs: Projected = (projections, logits)

    def go_back(self) -> None:
        """From the gradients of the outputs to those of the weights, part by part."""
        sizes = [len(part.own) for part in self.parts]
        read = [rows.grad is not None for rows in self.outputs]  # not every loss reads both
        gradients = [split_views(rows.grad, sizes) for rows in self.outputs if rows.grad is not None]
        for number, part in enumerate(self.parts):
            entering = (
                self.kept[number]
                if self.kept
                else enter_last_block(self.model, part, self.phase, self.compute, self.bank)
            )
            outputs = leave_last_block(self.model, entering, self.phase, self.compute)
            torch.autograd.backward(list(compress(outputs, read)), [rows[number] for rows in gradients])


def trains_before_last_block(model: GcdModel, phase: Phase) -> bool:
    return "prompt" in phase.trains or model.trainable_blocks > 1


def split_batch(batch: Batch, n_parts: int) -> list[Batch]:
    """This process's share in parts that differ by one image at most; no part is empty, if the share is not."""
    own = range(len(batch.indices))[batch.share]
    n = max(1, min(n_parts, len(own)))
    return [_part(batch, own[a:b], slice(a, b)) for a, b in pairwise(len(own) * i // n for i in range(n + 1))]


def _part(batch: Batch, of_all: range, of_own: slice) -> Batch:
    share = slice(of_all.start, of_all.stop)
    if not batch.banked:
        return replace(batch, draws=[pixels[of_own] for pixels in batch.draws], share=share)
    banked = [replace(draw, views=draw.views[of_own], made=draw.made[of_own]) for draw in batch.banked]
    draws = []
    for pixels, draw in zip(batch.draws, batch.banked, strict=True):  # with pixels only where they were made
        before, within = int(draw.made[: of_own.start].sum()), int(draw.made[of_own].sum())
        draws.append(pixels[before : before + within])
    return replace(batch, draws=draws, banked=banked, share=share)


def join_views(parts: list[Float[Tensor, "2part dim"]]) -> Float[Tensor, "2b dim"]:
    """From view one and two of each part to view one of all, then view two of all."""
    return torch.cat([torch.cat(view) for view in zip(*(part.chunk(2) for part in parts), strict=True)])


def split_views(rows: Float[Tensor, "2b dim"], sizes: list[int]) -> list[Float[Tensor, "2part dim"]]:
    """The inverse, for parts of these sizes."""
    return [torch.cat(pair) for pair in zip(*(view.split(sizes) for view in rows.chunk(2)), strict=True)]
