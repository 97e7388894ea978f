"""Forward pass of a training step: views up to the last block, through it, and to the loss."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.losses import Loss
from sptnet.methods.phases import Phase, StagePlan
from sptnet.model.gcd_model import GcdModel
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.compute import Compute
from sptnet.runtime.distributed import World
from sptnet.training.batches import Batch

Projected = tuple[Float[Tensor, "2b bottleneck"], Float[Tensor, "2b k"]]
"""Projections and logits: view one of all images, then view two of all."""


def step_loss(
    model: GcdModel,
    batch: Batch,
    phase: Phase,
    plan: StagePlan,
    epoch: int,
    compute: Compute,
    bank: TokenBank | None = None,
    world: World = World(),  # noqa: B008
) -> Loss:
    """Objective on the two views of the phase, over the whole batch on every rank."""
    entering = enter_last_block(model, batch, phase, compute, bank)
    return loss_of(leave_last_block(model, entering, phase, compute), batch, plan, epoch, world)


def loss_of(outputs: Projected, batch: Batch, plan: StagePlan, epoch: int, world: World) -> Loss:
    """Objective on the outputs of all ranks, gathered from those of this rank's share."""
    projections, logits = (world.gather_views(rows, len(batch.indices)) for rows in outputs)
    return plan.objective(projections, logits, batch.labels, batch.labelled, epoch)


def enter_last_block(
    model: GcdModel, batch: Batch, phase: Phase, compute: Compute, bank: TokenBank | None = None
) -> list[Float[Tensor, "b length dim"]]:
    """Compute the tokens that enter the last block per view, or read them from the bank.

    A raw and a prompted view of one draw share its patch embedding, since the prompt only shifts it. Frozen blocks
    leave no graph behind unless a prompt that trains lies before them.
    """
    backbone, computed = model.backbone, [view for view in phase.views if bank is None or view.prompted]
    with compute.autocast():
        raw = {draw: backbone.embed(batch.draws[draw]) for draw in sorted({view.draw for view in computed})}
        patches = [
            model.with_prompt(raw[view.draw], batch.draws[view.draw]) if view.prompted else raw[view.draw]
            for view in computed
        ]
        if model.tokens is None:
            together = torch.cat(patches) if computed else None
            del raw, patches  # the blocks need the room
            run = () if together is None else backbone.run_to_last_block(together).chunk(len(computed))
        else:  # prompted views are longer than raw ones
            deep = [model.tokens.values if view.prompted else None for view in computed]
            run = tuple(backbone.run_to_last_block(*pair) for pair in zip(patches, deep, strict=True))
        entering = iter(run)
        return [
            next(entering) if bank is None or view.prompted else banked_tokens(model, batch, view.draw, bank, compute)
            for view in phase.views
        ]


def leave_last_block(
    model: GcdModel, entering: Sequence[Float[Tensor, "b length dim"]], phase: Phase, compute: Compute
) -> Projected:
    """Projections and logits from the tokens that enter the last block."""
    with compute.autocast():
        if model.tokens is None:
            return model.finish(torch.cat(list(entering)))
        deep = [model.tokens.values if view.prompted else None for view in phase.views]
        features = [model.backbone.finish(*pair) for pair in zip(entering, deep, strict=True)]
        projections, logits = model.head(torch.cat(features))
        return projections, logits


@torch.no_grad()
def banked_tokens(
    model: GcdModel, batch: Batch, draw: int, bank: TokenBank, compute: Compute
) -> Float[Tensor, "b length dim"]:
    """Tokens of a raw draw that enter the last block, from the bank; missing ones are computed and stored first."""
    views, made = batch.banked[draw].views, batch.banked[draw].made
    missing = torch.from_numpy(~bank.filled(batch.own, views))
    if missing.any():
        pixels = batch.draws[draw][missing[made].to(compute.device)]
        fresh = model.backbone.enter_last_block(pixels).half().cpu()
        bank.write(batch.own[missing], views[missing], fresh)
    # Fresh tokens are rounded to float16 too, so that a step does not depend on what the bank held before.
    return bank.read(batch.own, views).to(compute.device).float()
