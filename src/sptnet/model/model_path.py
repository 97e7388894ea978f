"""Files of a model directory, and where a run has it. Needs no torch, so that reading results stays quick."""

from pathlib import Path

from sptnet.errors import Misuse

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"


def find_model_folder(path: str | Path) -> Path:
    """Return the model directory: the path itself, or `model` inside a run."""
    path = Path(path)
    for folder in (path, path / "model"):
        if (folder / DESCRIPTION).is_file():
            return folder
    if (path / "config.toml").is_file():
        command = f"`train(resume=True, out={str(path)!r})`"
        raise Misuse(f"the run {path} has no finished model yet. Finish it with: {command}")
    raise Misuse(f"{path} is neither a run nor a model directory: there is no {DESCRIPTION}. Give the folder of a run.")
