"""The one place that knows about devices and number formats."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from sptnet.errors import Misuse


@dataclass(frozen=True)
class Compute:
    """Where and how exactly a run computes."""

    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> AbstractContextManager[None]:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def scaler(self) -> torch.amp.GradScaler:
        """Loss scaling for fp16; for other formats it does nothing."""
        return torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)

    @property
    def on_cuda(self) -> bool:
        return self.device.type == "cuda"


def choose_compute(device: str = "auto", precision: str = "auto", local_rank: int = 0) -> Compute:
    """`auto` takes CUDA, then MPS, then the CPU; half precision only on CUDA. Each process of a machine has its own."""
    where = _choose_device(device, local_rank)
    cuda = where.type == "cuda"
    if precision == "auto":
        half = torch.bfloat16 if cuda and torch.cuda.is_bf16_supported() else torch.float16
        return Compute(where, half if cuda else torch.float32)
    dtype = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    if dtype != torch.float32 and not cuda:
        raise Misuse(f"precision {precision} needs CUDA, but the device is {where}. Use --set precision=float32.")
    return Compute(where, dtype)


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
        raise Misuse(f"device {device!r} is not available here. Use --set device=auto or --set device=cpu.")
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
