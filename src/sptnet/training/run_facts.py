"""Facts of a run beside its settings: versions, seed, command, device, data."""

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.errors import Misuse, SptnetError
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.compute import Compute

VERSIONS = ("sptnet", "torch", "torchvision", "timm", "numpy")


def now() -> str:
    """Local time with its offset, as text."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def starting_facts(
    earlier: dict[str, Any],
    command: Sequence[str],
    config: Config,
    compute: Compute,
    data: SplitImages,
    fingerprint: str,
) -> dict[str, Any]:
    """Contents of run.json while a run is in progress; `earlier` are those of a run that is resumed."""
    if earlier and earlier["data"]["fingerprint"] != fingerprint:
        raise Misuse(
            "the images are not those this run began with. Restore them, or begin again with `overwrite=True`."
        )
    split = data.split
    return earlier | {
        "status": "running",
        "started": earlier.get("started", now()),
        "command": earlier.get("command", list(command)),
        "seed": config.seed,
        "device": str(compute.device),
        "precision": str(compute.dtype).removeprefix("torch."),
        "versions": {name: version(name) for name in VERSIONS} | {"python": platform.python_version()},
        "data": {
            "name": data.image_set.name,
            "fingerprint": fingerprint,
            "images": len(data.image_set),
            "labelled": len(split.labelled),
            "unlabelled": len(split.unlabelled),
            "holdout": len(split.holdout),
            "test": len(split.test),
            "unreadable": [{"image": p.name, "reason": p.reason} for p in data.unreadable],
        },
    }


@contextmanager
def end_noted(run: RunFolder, is_first: bool) -> Iterator[None]:
    """Note in run.json, on rank 0, if the run is stopped by a signal or fails in the context."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if is_first:
            try:
                _note_end(run, "stopped" if isinstance(error, KeyboardInterrupt) else "failed")
            except (OSError, SptnetError) as second:  # the disk may be full, which is why the run failed
                error.add_note(f"run.json could not be written: {second}")
        raise


def _note_end(run: RunFolder, status: str) -> None:
    facts = run.facts()
    if facts.get("status") == "running":
        run.write_facts(facts | {"status": status})
