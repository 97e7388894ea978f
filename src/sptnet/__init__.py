"""Generalized category discovery in images: recognise known categories, find new ones.

The public names are in `__all__`; everything else is organised in folders from runtime (first) to cli (last).
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sptnet.clustering.count import estimate_n_categories
    from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
    from sptnet.discovery.estimator import CategoryDiscoverer
    from sptnet.inference.predictor import load
    from sptnet.metrics import split_accuracy

__version__ = version("sptnet")
__all__ = [
    "CategoryDiscoverer",
    "SemiSupervisedKMeans",
    "__version__",
    "estimate_n_categories",
    "load",
    "split_accuracy",
]

_HOME = {
    "CategoryDiscoverer": "sptnet.discovery.estimator",
    "SemiSupervisedKMeans": "sptnet.clustering.semi_supervised_kmeans",
    "estimate_n_categories": "sptnet.clustering.count",
    "load": "sptnet.inference.predictor",
    "split_accuracy": "sptnet.metrics",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import sptnet` and the command-line help stay fast."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sptnet' has no attribute {name!r}")
