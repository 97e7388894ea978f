"""Forward pass of a training step: views up to the last block, through it, and to the outputs that the loss reads."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.errors import Failure
from sptnet.losses import Loss
from sptnet.methods.phases import Phase, View
from sptnet.methods.stage_plan import Clock, Memory, Rows, StagePlan, Step
from sptnet.model.gcd_model import GcdModel
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.compute import Compute
from sptnet.runtime.distributed import World
from sptnet.training.batching.batches import Batch

Views = Sequence[View]


def step_loss(
    model: GcdModel,
    batch: Batch,
    phase: Phase,
    plan: StagePlan,
    clock: Clock,
    compute: Compute,
    bank: TokenBank | None = None,
    world: World = World(),  # noqa: B008
) -> Loss:
    """Objective on the two views of the phase, over the whole batch on every rank, without memory and teacher."""
    entering = enter_last_block(model, batch, phase.views, compute, bank)
    rows = leave_last_block(model, entering, phase.views, compute)
    return plan.objective(make_step(rows, None, batch, clock, {}, world))


def make_step(
    rows: Rows,
    teacher: Rows | None,
    batch: Batch,
    clock: Clock,
    memory: Memory,
    world: World = World(),  # noqa: B008
) -> Step:
    """Gather the outputs of all ranks from those of this rank's share, with all else that an objective may see."""
    n = len(batch.indices)
    gathered = {name: world.gather_views(values, n) for name, values in rows.items()}
    taught = None if teacher is None else {name: world.gather_views(values, n) for name, values in teacher.items()}
    images = batch.indices.to(batch.labels.device)
    return Step(gathered, batch.labels, batch.labelled, images, clock, memory, taught, batch.n_main)


def enter_last_block(
    model: GcdModel, batch: Batch, views: Views, compute: Compute, bank: TokenBank | None = None
) -> list[Float[Tensor, "b length dim"]]:
    """Compute the tokens that enter the last block per view, or read them from the bank.

    A raw and a prompted view of one draw share its patch embedding, since the prompt only shifts it. Frozen blocks
    leave no graph behind unless a prompt that trains lies before them.
    """
    backbone, computed = model.backbone, [view for view in views if bank is None or view.prompted]
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
            next(entering) if bank is None or view.prompted else banked_tokens(model, batch, view, bank, compute)
            for view in views
        ]


def leave_last_block(
    model: GcdModel, entering: Sequence[Float[Tensor, "b length dim"]], views: Views, compute: Compute
) -> Rows:
    """Outputs of the model from the tokens that enter the last block."""
    with compute.autocast():
        if model.tokens is None:
            return model.finish(torch.cat(list(entering)))
        deep = [model.tokens.values if view.prompted else None for view in views]
        if model.n_token_outputs:
            pairs = [
                model.backbone.finish_with_tokens(x, tokens, model.n_token_outputs)
                for x, tokens in zip(entering, deep, strict=True)
                if tokens is not None
            ]
            features, of_tokens = (torch.cat(rows) for rows in zip(*pairs, strict=True))
            return model.outputs(features, of_tokens)
        return model.outputs(torch.cat([model.backbone.finish(*pair) for pair in zip(entering, deep, strict=True)]))


@torch.no_grad()
def teacher_rows(
    teacher: GcdModel,
    batch: Batch,
    phase: Phase,
    compute: Compute,
    bank: TokenBank | None,
    entering: list[Float[Tensor, "b length dim"]] | None,
) -> Rows:
    """Outputs of the mean teacher. `entering` is the student's input of the last block, used where it is the same."""
    views = phase.teacher_views or phase.views
    shared = phase.teacher_views is None and teacher.tokens is None and teacher.trainable_blocks == 1
    if entering is None or not shared:
        entering = enter_last_block(teacher, batch, views, compute, bank)
    return leave_last_block(teacher, entering, views, compute)


@torch.no_grad()
def banked_tokens(
    model: GcdModel, batch: Batch, view: View, bank: TokenBank, compute: Compute
) -> Float[Tensor, "b length dim"]:
    """Tokens of a raw draw that enter the last block, from the bank; missing ones are computed and stored first."""
    bank = bank.of(view.strong)
    views, made = batch.banked[view.draw].views, batch.banked[view.draw].made
    tokens, stored = bank.read_stored(batch.own, views)
    missing = torch.from_numpy(~stored)
    if (missing & ~made).any():  # stored views stay stored, unless something else writes to the files
        raise Failure(
            f"the token bank {bank.folder} lost tokens while it was in use. Make sure that nothing else writes there, "
            "then go on with `resume=True`."
        )
    if missing.any():
        pixels = batch.draws[view.draw][missing[made].to(compute.device)]
        fresh = model.backbone.enter_last_block(pixels).half().cpu()
        bank.write(batch.own[missing], views[missing], fresh)
        # Fresh tokens are rounded to float16 too, so that a step does not depend on what the bank held before.
        tokens[missing] = bank.read(batch.own[missing], views[missing])
    return tokens.to(compute.device).float()
