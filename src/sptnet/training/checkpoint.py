"""Checkpoints: one safetensors file per epoch, written atomically and verified when read."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from safetensors.torch import save_file
from torch import Tensor, nn

from sptnet.errors import Failure
from sptnet.runtime.digest import digest
from sptnet.runtime.files import make_folder, write_atomically
from sptnet.runtime.readers import FileShape, check_shape, parse_json
from sptnet.runtime.tensor_files import first_misfit, load_tensors, reading_tensors

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


SCALER_KEYS = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}


def _check_scaler(state: dict[str, float]) -> dict[str, float]:
    if state and state.keys() != SCALER_KEYS:  # empty in full precision
        raise ValueError(f"a gradient scaler has {', '.join(sorted(SCALER_KEYS))}")
    return state


Number = Annotated[int, Field(ge=0, le=10**12)]


class CheckpointShape(FileShape):
    """Facts in the metadata of a checkpoint."""

    stage: Number
    epoch: Number
    momentum: Number = 0
    frozen: str = ""
    best: Annotated[list[Annotated[float, Field(ge=0, le=10**12)]], Field(min_length=2, max_length=2)] | None = None
    scalers: dict[str, Annotated[dict[str, float], AfterValidator(_check_scaler)]]
    ending: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = None
    seconds: Annotated[float, Field(ge=0, le=10**12)] = 0


def frozen_digest(model: nn.Module, trained: set[str]) -> str:
    """Digest of the weights that a checkpoint leaves out because nothing trains them."""
    return digest({name: value for name, value in model.state_dict().items() if name not in trained})


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint and remove all but the newest two."""
    path = folder / f"stage{checkpoint.stage}-epoch{checkpoint.epoch:05d}.safetensors"
    write_checkpoint(path, checkpoint)
    for old in checkpoints(folder)[:-KEEP]:
        old.unlink()
    return path


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint with its checksum."""
    make_folder(path.parent)
    said = {"stage": checkpoint.stage, "epoch": checkpoint.epoch, "momentum": _n_momentum(checkpoint.tensors)}
    facts = json.dumps(said | checkpoint.facts)
    tensors = {name: value.detach().cpu().contiguous() for name, value in checkpoint.tensors.items()}
    metadata = {"sptnet": facts, "sha256": digest(tensors, facts)}
    write_atomically(path, lambda part: save_file(tensors, part, metadata))


def best_checkpoint(folder: Path, stage: int) -> Path:
    """Path of the best epoch of a stage, if one is selected."""
    return folder / f"best-stage{stage}.safetensors"


def checkpoints(folder: Path) -> list[Path]:
    """Paths of all checkpoints, the oldest first."""
    found = ((re.fullmatch(r"stage(\d+)-epoch(\d+)", path.stem), path) for path in folder.glob("stage*.safetensors"))
    return [path for _, path in sorted((tuple(map(int, name.groups())), path) for name, path in found if name)]


def _n_momentum(tensors: Mapping[str, Tensor]) -> int:
    return sum(name.startswith("momentum.") for name in tensors)


def newest_checkpoint(folder: Path) -> Path | None:
    """Path of the newest checkpoint, if any."""
    found = checkpoints(folder)
    return found[-1] if found else None


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and verify its checksum."""
    others = [other for other in checkpoints(path.parent) if other != path]
    go_on = f"goes on from {others[-1].name}" if others else "starts the run again"
    with reading_tensors(path, f"Delete it; `resume=True` then {go_on}."):
        tensors, metadata = load_tensors(path)
        if not {"sptnet", "sha256"} <= metadata.keys():
            raise ValueError("it has no facts of a run")
        if digest(tensors, metadata["sptnet"]) != metadata["sha256"]:
            raise ValueError("its checksum differs")
        facts = parse_json(metadata["sptnet"])
        check_shape(facts, CheckpointShape)
        missing = facts.pop("momentum", _n_momentum(tensors)) - _n_momentum(tensors)  # 0.1.0 did not count them
        if missing:
            raise ValueError(f"the momentum of {missing} parameters is missing")
    return Checkpoint(facts.pop("stage"), facts.pop("epoch"), tensors, facts)


def check_frozen(checkpoint: Checkpoint, frozen: str) -> None:
    """Refuse a checkpoint made with other frozen weights than those with the digest `frozen`."""
    if checkpoint.facts.get("frozen") != frozen:
        raise Failure(
            "the backbone's weights are not those this run began with. Restore the same weights file, or "
            "begin again with `overwrite=True`."
        )


def check_stage(checkpoint: Checkpoint, n_stages: int) -> None:
    """Refuse a checkpoint of a stage that the run does not have."""
    if checkpoint.stage >= n_stages:
        raise _other_settings(f"it is of stage {checkpoint.stage + 1}, and there are {n_stages}")


def check_tensors(checkpoint: Checkpoint, wanted: Mapping[str, Tensor], momentum: Mapping[str, Tensor]) -> None:
    """Refuse a checkpoint that lacks a wanted tensor, or that has one of another shape or dtype.

    Momentum is in a checkpoint only after the first step of its parameter.
    """
    tensors = {name: value for name, value in checkpoint.tensors.items() if not name.startswith("memory.")}
    possible = dict(wanted) | {name: value for name, value in momentum.items() if name in tensors}
    misfit = first_misfit(tensors, possible)
    if misfit is not None:
        raise _other_settings(misfit)


def _other_settings(why: str) -> Failure:
    return Failure(
        f"the checkpoint does not fit the settings of the run: {why}. Restore config.toml as it was when the run "
        "began, or begin again with `overwrite=True`."
    )
