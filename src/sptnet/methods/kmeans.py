"""K-means on the features of the pre-trained backbone, without training.

Plain k-means is the lowest baseline. Semi-supervised k-means fixes labelled images to their class; it is the GCD
method without its training.
"""

from sptnet.config import Config
from sptnet.head import CentroidHead, Head
from sptnet.methods.method import Method
from sptnet.methods.stage_plan import StagePlan


def stages(config: Config) -> list[StagePlan]:
    """Return no stages: nothing is trained."""
    return []


def head(config: Config, dim: int, n_categories: int) -> Head:
    """Build a head with one centroid per category for features of length `dim`."""
    return CentroidHead(dim, n_categories)


PLAIN = Method(stages, head, clusters="plain")
SEMI_SUPERVISED = Method(stages, head, clusters="semi-supervised")
