"""K-means on the features of the pre-trained backbone: nothing is trained.

Plain k-means is the floor of every table. Semi-supervised k-means holds labelled images to their class; it is the GCD
method without its training.
"""

from sptnet.config import Config
from sptnet.head import CentroidHead, Head
from sptnet.methods.method import Method
from sptnet.methods.phases import StagePlan


def stages(config: Config) -> list[StagePlan]:
    return []


def head(config: Config, dim: int, n_categories: int) -> Head:
    return CentroidHead(dim, n_categories)


PLAIN = Method(stages, head, clusters="plain")
SEMI_SUPERVISED = Method(stages, head, clusters="semi-supervised")
