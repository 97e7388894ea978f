"""Facts of a run beside its settings: versions, seed, command, device, data."""

import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version as version_of
from typing import Any

from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.data.readable import BY_ENDS, WHOLE_FILES
from sptnet.errors import Failure, Misuse
from sptnet.runtime.compute import Compute

VERSIONS = ("sptnet", "torch", "torchvision", "timm", "numpy")


def now(ago: float = 0.0) -> str:
    """Local time with its offset, as text; that of some seconds ago if asked."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(time.time() - ago))


def parts_before(earlier: dict[str, Any], metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts of a run that is resumed, each with its start and its seconds.

    A part that was stopped counts with the epochs that it finished; `metrics` has a line per epoch.
    """
    if not earlier:
        return []
    first = {key: earlier[key] for key in ("started", "seconds") if key in earlier}
    parts = [dict(part) for part in earlier.get("parts", [first])]
    known = sum(part.get("seconds", 0.0) for part in parts)
    parts[-1].setdefault("seconds", max(0.0, sum(line.get("seconds", 0.0) for line in metrics) - known))
    return parts


def finished_facts(facts: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Times in run.json at the end of a part that took some seconds; `seconds` there is the sum of all parts."""
    parts = [dict(part) for part in facts["parts"]]
    parts[-1]["seconds"] = seconds
    return {"finished": now(), "parts": parts, "seconds": sum(part["seconds"] for part in parts)}


def starting_facts(
    earlier: dict[str, Any],
    command: Sequence[str],
    config: Config,
    compute: Compute,
    data: SplitImages,
    fingerprint: Callable[[int], str],
    metrics: Sequence[dict[str, Any]] = (),
    seconds: float = 0.0,
) -> dict[str, Any]:
    """Contents of run.json while a run is in progress; `earlier` and `metrics` are those of a run that is resumed.

    `fingerprint` returns the fingerprint of the images by version; a run keeps the version that it began with. The run,
    or its present part, began some `seconds` ago.
    """
    known = earlier.get("data", {})
    if earlier and known.get("fingerprint") is None:
        raise Failure("run.json does not say which images this run began with. Restore it, or delete it to go on.")
    version = known.get("fingerprint_version", BY_ENDS) if earlier else WHOLE_FILES
    if earlier and known["fingerprint"] != fingerprint(version):
        raise Misuse(
            "the images are not those this run began with. Restore them, or begin again with `overwrite=True`."
        )
    split = data.split
    return earlier | {
        "status": "running",
        "started": earlier.get("started", now(seconds)),
        "parts": [*parts_before(earlier, metrics), {"started": now(seconds)}],
        "command": earlier.get("command", list(command)),
        "seed": config.seed,
        "device": str(compute.device),
        "precision": str(compute.dtype).removeprefix("torch."),
        "versions": {name: version_of(name) for name in VERSIONS} | {"python": platform.python_version()},
        "data": {
            "name": data.image_set.name,
            "fingerprint": fingerprint(version),
            "fingerprint_version": version,
            "images": len(data.image_set),
            "labelled": len(split.labelled),
            "unlabelled": len(split.unlabelled),
            "holdout": len(split.holdout),
            "test": len(split.test),
            "unreadable": [{"image": p.name, "reason": p.reason} for p in data.unreadable],
        },
    }
