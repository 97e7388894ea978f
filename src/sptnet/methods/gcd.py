"""GCD (Vaze et al., CVPR 2022): contrastive fine-tuning of the last block, then semi-supervised k-means.

The two contrastive losses use a wide projection. Categories come from clustering the class tokens of all training
images, with labelled images fixed to their class.
"""

from sptnet.config import Config
from sptnet.head import ContrastiveHead, Head
from sptnet.losses import ContrastiveLoss, contrastive_loss
from sptnet.methods.method import Method
from sptnet.methods.phases import RAW, Always
from sptnet.methods.simgcd import limit
from sptnet.methods.stage_plan import Optimiser, StagePlan, Step
from sptnet.schedules import cosine_by_epoch


def stages(config: Config) -> list[StagePlan]:
    """Return the one stage of GCD: contrastive fine-tuning."""
    settings = config.gcd

    def objective(step: Step) -> ContrastiveLoss:
        return contrastive_loss(step.projections, step.labels, step.labelled, settings.sup_weight)

    def learning_rate(epoch: int, step: int, epochs: int, steps: int) -> float:
        return cosine_by_epoch(settings.learning_rate, settings.final_ratio, epoch, epochs)

    optimiser = Optimiser(learning_rate, settings.weight_decay, config.training.momentum, decay_vectors=True)
    return [StagePlan("gcd", settings.epochs, Always(RAW), objective, {"model": optimiser}, limit=limit(settings))]


def head(config: Config, dim: int, n_categories: int) -> Head:
    """Build a projection head for features of length `dim`."""
    widths = config.head.hidden, config.head.bottleneck, config.gcd.output
    return ContrastiveHead(dim, n_categories, *widths, short=True)


METHOD = Method(stages, head, clusters="semi-supervised")
