"""Length of the training stages of a plan, and the settings that follow from it."""

from collections.abc import Collection, Mapping
from typing import Any

from sptnet.config import Config
from sptnet.methods import METHODS

STAGES = {
    name: {stage.name: stage.epochs for stage in method.stages(Config(method=name))}
    for name, method in METHODS.items()
    if method.stages(Config(method=name))
}
"""Stages of each method that trains, with their published epochs."""
# From clusters, SimGCD has most of its gain after a hundred steps (docs/results.md). SPTNet's prompts begin as noise:
# with 40 steps it ends below the SimGCD model it starts from, and prompts alone warm up for 1,000 steps.
LEAST_STEPS = {"simgcd": 150, "sptnet": 5000}
# With few labels, images are drawn to the few labelled ones the more the longer it trains (docs/results.md).
STEPS_PER_LABEL = 2
# Published epochs are for thousands of images in batches of 128. With a few images per batch, so many epochs would show
# every image beside the same few others again and again.
EPOCHS_PER_BATCH_IMAGE = 20
WARM_UP = 0.15  # share of the epochs in which the teacher sharpens
SCHEDULES = {
    "rankstats": {"ramp_up": 0.75},
    "dccl": {"warm_up": 0.025, "weight_epochs": 0.5},
    "mugcd": {"teacher_warm_up": WARM_UP},
}
"""Settings in epochs that keep their published share of a stage's length."""


def warm_up(epochs: int) -> int:
    """Return the epochs in which the teacher sharpens."""
    return max(1, round(WARM_UP * epochs))


def scaled_border(image_size: int) -> int:
    """Scale the published border of 30 px at 224 px to another image size."""
    return max(1, round(30 * image_size / 224))


def most_epochs(published: int, batch_size: int) -> int:
    """Largest number of epochs that is of use: fewer than published if there are few images."""
    return min(published, EPOCHS_PER_BATCH_IMAGE * batch_size)


def most_from_clusters(n_labelled: int, batches: int) -> int:
    """Largest number of epochs that is of use for a training from clusters; `batches` are the steps per epoch."""
    return -(-max(LEAST_STEPS["simgcd"], STEPS_PER_LABEL * n_labelled) // batches)


def too_short(epochs: int, batches: int) -> bool:
    """True if SPTNet would not get past its noisy start: neither enough steps nor the published epochs."""
    return epochs * batches < LEAST_STEPS["sptnet"] and epochs < STAGES["sptnet"]["sptnet"]


def length_settings(config: Config, epochs: Mapping[str, int], batches: int, given: Collection[str]) -> dict[str, Any]:
    """Return epochs and all settings that follow from them, by key; `epochs` are by stage, `batches` per epoch.

    Settings with keys in `given` are left out.
    """
    wanted: dict[str, Any] = {f"{stage}.epochs": n for stage, n in epochs.items()}
    wanted["training.evaluate_every"] = max(epochs.values())
    for stage, n in epochs.items():
        wanted |= {f"{stage}.{name}": max(1, round(share * n)) for name, share in SCHEDULES.get(stage, {}).items()}
    if "simgcd" in epochs:
        wanted["simgcd.teacher_warm_up"] = warm_up(epochs["simgcd"])
    if "sptnet" in epochs:
        steps = epochs["sptnet"] * batches
        k = config.sptnet.k if "sptnet.k" in given else min(config.sptnet.k, max(1, steps // 4))
        wanted |= {"sptnet.k": k} | ({"sptnet.counter": "continuous"} if batches < 2 * k else {})
        if too_short(epochs["sptnet"], batches):
            wanted["prompt.noise"] = 0.0
    return {key: value for key, value in wanted.items() if key not in given}


def by_section(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return settings by section and name instead of by key."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        section, name = key.split(".")
        sections.setdefault(section, {})[name] = value
    return sections
