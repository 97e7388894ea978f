"""The estimators of the folder are imported by their names, and on first use only."""

import subprocess
import sys

import pytest
from sklearn.base import ClusterMixin

from sptnet import clustering


@pytest.mark.parametrize("name", clustering.__all__)
def test_every_public_name_is_an_estimator_of_that_name(name: str) -> None:
    estimator = getattr(clustering, name)
    assert estimator.__name__ == name
    assert issubclass(estimator, ClusterMixin)
    assert estimator.__module__.startswith("sptnet.clustering.")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Kmeans'"):
        _ = clustering.Kmeans


def test_the_folder_is_imported_without_its_estimators() -> None:
    code = "import sys, sptnet.clustering; print(sorted(name for name in sys.modules if name in ('torch', 'sklearn')))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"
