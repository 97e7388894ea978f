"""The number of categories of the digits, estimated from the features of the embedded backbone."""

from sptnet.clustering.count import estimate_n_categories
from sptnet.data.benchmarks.digits import digits
from sptnet.data.split import make_split
from sptnet.inference.features import extract_features
from sptnet.model.backbone import build_backbone
from sptnet.runtime.compute import choose_compute


def test_the_digits_are_about_ten() -> None:
    image_set = digits()
    split = make_split(image_set, 5)
    features = extract_features(build_backbone("sptnet_digits_vit"), image_set.sources, 0.875, choose_compute("cpu"))
    result = estimate_n_categories(features.numpy(), split.labels, random_state=0)
    assert 7 <= result.n_categories <= 13
    assert result.interval[0] >= 5
