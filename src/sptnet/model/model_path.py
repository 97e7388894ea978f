"""Files of a model directory, and where a run has it. Needs no torch, so that reading results stays quick."""

import json
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
        raise Misuse(f"the run {path} has no finished model yet. Finish it with: {resuming(path)}")
    raise Misuse(f"{path} is neither a run nor a model directory: there is no {DESCRIPTION}. Give the folder of a run.")


def resuming(run: Path) -> str:
    """Return the call that goes on with a run; a planned one is a discovery, which also writes its report."""
    try:
        facts = json.loads((run / "run.json").read_bytes())
    except (OSError, ValueError, RecursionError):  # gone or damaged: either call goes on with the run
        facts = None
    verb = "discover" if isinstance(facts, dict) and "plan" in facts else "train"
    return f"`{verb}(resume=True, out={str(run)!r})`"
