"""The digits of scikit-learn as an image set."""

import numpy as np

from sptnet.data.benchmarks.digits import digits


def test_digits() -> None:
    image_set = digits()
    assert len(image_set) == 1797
    assert (image_set.name, image_set.ids[0], image_set.ids[-1]) == ("digits", "digit-0000", "digit-1796")
    assert image_set.names == tuple("0123456789")
    assert image_set.labels[:5].tolist() == [0, 1, 2, 3, 4]
    assert image_set.given is None and not image_set.test.any()
    first = image_set.sources[0]
    assert isinstance(first, np.ndarray)
    assert (first.shape, first.dtype) == ((8, 8), np.uint8)
    # The first row of the first digit is 0 0 5 13 9 1 0 0 on a scale of 16.
    assert first[0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
