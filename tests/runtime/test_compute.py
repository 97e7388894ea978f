"""Device and number format."""

import pytest
import torch

from sptnet.errors import Misuse
from sptnet.runtime.compute import choose_compute


@pytest.mark.parametrize(
    ("precision", "dtype"), [("auto", torch.float32), ("float32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_the_cpu_computes_in_float32_unless_asked_for_bfloat16(precision: str, dtype: torch.dtype) -> None:
    compute = choose_compute("cpu", precision)
    assert compute.dtype == dtype
    with compute.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == dtype
    assert not compute.scaler().is_enabled()


def test_formats_that_a_device_lacks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Misuse, match="precision fp16 needs CUDA, but the device is cpu"):
        choose_compute("cpu", "fp16")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(Misuse, match="precision bf16 needs CUDA or a CPU, but the device is mps"):
        choose_compute("mps", "bf16")
