"""Checkpoints: one safetensors file per epoch, written atomically and verified when read."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from sptnet.errors import Failure
from sptnet.runtime.digest import digest
from sptnet.runtime.files import make_folder, write_atomically

KEEP = 2  # the newest, and the one before it in case the disk damages the newest


@dataclass(frozen=True)
class Checkpoint:
    """State of an interrupted run: trained weights, momentum, stage and epoch."""

    stage: int
    epoch: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    @property
    def reached(self) -> tuple[int, int]:
        """Stage, and number of its epochs done."""
        return self.stage, self.epoch


def frozen_digest(model: nn.Module, trained: set[str]) -> str:
    """Digest of the weights that a checkpoint leaves out because nothing trains them."""
    return digest({name: value for name, value in model.state_dict().items() if name not in trained})


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint and remove all but the newest two."""
    make_folder(folder)
    facts = json.dumps({"stage": checkpoint.stage, "epoch": checkpoint.epoch, **checkpoint.facts})
    tensors = {name: value.detach().cpu().contiguous() for name, value in checkpoint.tensors.items()}
    metadata = {"sptnet": facts, "sha256": digest(tensors, facts)}
    path = folder / f"stage{checkpoint.stage}-epoch{checkpoint.epoch:05d}.safetensors"
    write_atomically(path, lambda part: save_file(tensors, part, metadata))
    for old in sorted(folder.glob("stage*.safetensors"))[:-KEEP]:
        old.unlink()
    return path


def newest_checkpoint(folder: Path) -> Path | None:
    """Path of the newest checkpoint, if any."""
    found = sorted(folder.glob("stage*.safetensors"))
    return found[-1] if found else None


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and verify its checksum."""
    others = sorted(p.name for p in path.parent.glob("stage*.safetensors") if p != path)
    go_on = f"goes on from {others[-1]}" if others else "starts the run again"
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if digest(tensors, metadata["sptnet"]) != metadata["sha256"]:
            raise ValueError("its checksum differs")
        facts = json.loads(metadata["sptnet"])
        return Checkpoint(facts.pop("stage"), facts.pop("epoch"), tensors, facts)
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, OSError) as error:
        raise Failure(f"the checkpoint {path} is damaged ({error}). Delete it; `resume=True` then {go_on}.") from error


def check_frozen(checkpoint: Checkpoint, frozen: str) -> None:
    """Refuse a checkpoint made with other frozen weights than those with the digest `frozen`."""
    if checkpoint.facts["frozen"] != frozen:
        raise Failure(
            "the backbone's weights are not those this run began with. Restore the same weights file, or "
            "begin again with `overwrite=True`."
        )
