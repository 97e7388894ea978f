"""Devices, number formats and eval mode."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from sptnet.errors import Misuse

_DTYPES = {"cuda": (torch.float32, torch.bfloat16, torch.float16), "cpu": (torch.float32, torch.bfloat16)}


@dataclass(frozen=True)
class Compute:
    """Device and number format of a run."""

    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> AbstractContextManager[None]:
        """Return a context with autocast to `dtype`; disabled for float32."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def scaler(self) -> torch.amp.GradScaler:
        """Return a gradient scaler; enabled for fp16 only."""
        return torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)

    @property
    def on_cuda(self) -> bool:
        """True if the device is a CUDA device."""
        return self.device.type == "cuda"


def choose_compute(device: str = "auto", precision: str = "auto", local_rank: int = 0) -> Compute:
    """Choose device and number format.

    Device `auto`: CUDA (the GPU of this local rank), then MPS, then the CPU. Precision `auto`: half precision on CUDA,
    float32 elsewhere. The CPU computes in bfloat16 if asked to, which is quicker only where it has instructions for it.
    """
    chosen = _choose_device(device, local_rank)
    cuda = chosen.type == "cuda"
    if precision == "auto":
        half = torch.bfloat16 if cuda and torch.cuda.is_bf16_supported() else torch.float16
        return Compute(chosen, half if cuda else torch.float32)
    dtype = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    if dtype not in _DTYPES.get(chosen.type, (torch.float32,)):
        where = " or a CPU" if dtype == torch.bfloat16 else ""
        raise Misuse(f"precision {precision} needs CUDA{where}, but the device is {chosen}. Use `precision='float32'`.")
    return Compute(chosen, dtype)


def _choose_device(device: str, local_rank: int) -> torch.device:
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if device == "auto":
        return torch.device(
            f"cuda:{local_rank}" if cuda and local_rank else "cuda" if cuda else "mps" if mps else "cpu"
        )
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise Misuse(f"unknown device {device!r}. Use auto, cpu, cuda, cuda:N or mps.") from error
    if chosen.type not in ("cpu", "cuda", "mps"):
        raise Misuse(f"device {device!r} is not supported. Use auto, cpu, cuda, cuda:N or mps.")
    if (chosen.type == "cuda" and not cuda) or (chosen.type == "mps" and not mps):
        raise Misuse(f"device {device!r} is not available here. Use `device='auto'` or `device='cpu'`.")
    return chosen


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Set eval mode; restore the previous mode on exit, even after an exception."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)
