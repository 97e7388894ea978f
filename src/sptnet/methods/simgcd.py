"""SimGCD (Wen et al., ICCV 2023): the last block and the head are trained on two views without prompts.

SimGCD is a baseline of the SPTNet paper, and the first stage of SPTNet.
"""

from sptnet.config import Config, StageSettings, TimedSettings, TrainedSettings
from sptnet.errors import Misuse
from sptnet.head import Head, PrototypeHead
from sptnet.losses import GcdLoss, gcd_loss
from sptnet.methods.method import Method
from sptnet.methods.phases import RAW, Always
from sptnet.methods.stage_plan import Limit, Objective, Optimiser, StagePlan, Step
from sptnet.schedules import cosine_by_epoch, teacher_temperature


def objective(stage: StageSettings) -> Objective:
    """Return the loss of SimGCD and SPTNet, with the teacher temperature of the epoch."""

    def loss(step: Step) -> GcdLoss:
        epoch = step.clock.epoch
        temperature = teacher_temperature(stage.teacher_start, stage.teacher_end, stage.teacher_warm_up, epoch)
        return gcd_loss(
            step.projections,
            step.logits,
            step.labels,
            step.labelled,
            temperature,
            stage.sup_weight,
            stage.entropy_weight,
        )

    return loss


def model_optimiser(stage: StageSettings | TrainedSettings, momentum: float) -> Optimiser:
    """Return the optimiser of the last block and the head: cosine schedule per epoch."""

    def learning_rate(epoch: int, step: int, epochs: int, steps: int) -> float:
        return cosine_by_epoch(stage.learning_rate, stage.final_ratio, epoch, epochs)

    return Optimiser(learning_rate, stage.weight_decay, momentum, backbone_ratio=stage.backbone_ratio)


def limit(settings: TimedSettings) -> Limit:
    """Return the early end that the settings of a stage ask for."""
    return Limit(settings.minutes, settings.max_steps, settings.anneal_steps)


def stages(config: Config) -> list[StagePlan]:
    """Return the one stage of SimGCD."""
    stage = config.simgcd
    if config.method == "simgcd" and config.sptnet.start_from is not None:
        raise Misuse("SimGCD starts from the backbone, not from a run. Leave `sptnet.start_from` out, or train sptnet.")
    return [
        StagePlan(
            name="simgcd",
            epochs=stage.epochs,
            turns=Always(RAW),
            objective=objective(stage),
            optimisers={"model": model_optimiser(stage, config.training.momentum)},
            limit=limit(stage),
        )
    ]


def head(config: Config, dim: int, n_categories: int) -> Head:
    """Build a prototype head for features of length `dim`."""
    settings = config.head
    projects = settings.contrast == "projections"
    return PrototypeHead(dim, n_categories, settings.hidden, settings.bottleneck, projects=projects)


METHOD = Method(stages, head)
