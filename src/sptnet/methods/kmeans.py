"""k-means on the features of the pre-trained backbone: nothing is trained. The floor of every table."""

from sptnet.config import Config
from sptnet.head import CentroidHead, Head
from sptnet.methods.method import Method
from sptnet.phases import StagePlan


def stages(config: Config) -> list[StagePlan]:
    return []


def head(config: Config, dim: int, n_categories: int) -> Head:
    return CentroidHead(dim, n_categories)


METHOD = Method(stages, head, clusters="plain")
