"""Gradient of a whole batch, computed in parts that fit into memory.

The losses compare every view with every other, so a part has no loss of its own. Three passes: all parts forward
without a graph; the loss of all outputs together, backward to these; then each part forward again with
a graph, and backward from its rows of that gradient to the weights. No pass draws anything at random, so the third
repeats the first.
"""

from dataclasses import replace
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.methods.phases import Phase
from sptnet.methods.stage_plan import Rows
from sptnet.model.gcd_model import GcdModel
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.compute import Compute
from sptnet.training.batching.batches import Batch
from sptnet.training.step import enter_last_block, leave_last_block


class InParts:
    """Forward pass in parts. Compute the loss of `outputs`, call its `backward`, then `go_back`."""

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
                entering = enter_last_block(model, part, phase.views, compute, bank)
                outputs.append(leave_last_block(model, entering, phase.views, compute))
                if not trains_before_last_block(model, phase):
                    self.kept.append(entering)
        joined = {name: join_views([rows[name] for rows in outputs]) for name in outputs[0]}
        self.outputs: Rows = {name: rows.requires_grad_() for name, rows in joined.items()}

    def go_back(self) -> None:
        """Backward from the gradients of the outputs to those of the weights, part by part."""
        sizes = [len(part.own) for part in self.parts]
        gradients = {  # not every loss reads all of them
            name: split_views(rows.grad, sizes) for name, rows in self.outputs.items() if rows.grad is not None
        }
        for number, part in enumerate(self.parts):
            entering = (
                self.kept[number]
                if self.kept
                else enter_last_block(self.model, part, self.phase.views, self.compute, self.bank)
            )
            outputs = leave_last_block(self.model, entering, self.phase.views, self.compute)
            torch.autograd.backward([outputs[name] for name in gradients], [g[number] for g in gradients.values()])


def trains_before_last_block(model: GcdModel, phase: Phase) -> bool:
    """True if prompts or blocks before the last one train."""
    return "prompt" in phase.trains or model.trainable_blocks > 1


def split_batch(batch: Batch, n_parts: int) -> list[Batch]:
    """Split this rank's share into parts whose sizes differ by one at most; none is empty unless the share is."""
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
    """Join rows of parts (view one, then view two of each) into view one of all, then view two of all."""
    return torch.cat([torch.cat(view) for view in zip(*(part.chunk(2) for part in parts), strict=True)])


def split_views(rows: Float[Tensor, "2b dim"], sizes: list[int]) -> list[Float[Tensor, "2part dim"]]:
    """Inverse of `join_views` for parts of these sizes."""
    return [torch.cat(pair) for pair in zip(*(view.split(sizes) for view in rows.chunk(2)), strict=True)]
