"""Published numbers and learning rates, and the recipes that repeat them."""

from typing import Any

from sptnet.config.recipe_table import PublishedScores, published
from sptnet.config.recipes import recipe_text

PAPER = ("aircraft", "cars", "cifar10", "cifar100", "cub", "herbarium19", "imagenet100")
SSB = ("cub", "cars", "aircraft")

# Systems that the paper compares with or names, and the data sets for which they have recipes.
SYSTEMS = {
    "rankstats": (*PAPER, "domainnet"),
    "uno": (*PAPER, "domainnet"),
    "orca": (*PAPER, "domainnet"),
    "dccl": PAPER,
    "promptcal": PAPER,
    "cipr": PAPER,
    "gpc": PAPER,
    "mugcd": PAPER,
}

# Recipes of these systems for sets on which nothing is published that could be checked.
WITHOUT_NUMBERS = {
    *(f"{source}/cipr" for source in PAPER),
    "aircraft/dccl",
    "herbarium19/dccl",
    "herbarium19/gpc",
    *(f"{source}/mugcd" for source in ("cifar10", "cifar100", "imagenet100")),
}

# Learning rates of prompts and model: the authors' README, and the paper's Table 6 for SPTNet-P and SPTNet-S.
README = {
    "cifar10": (1, 3e-3), "cifar100": (5, 3e-3), "imagenet100": (5, 3e-3), "herbarium19": (0.5, 1e-2),
    "cub": (25, 0.05), "cars": (10, 0.05), "aircraft": (1, 0.05),
}  # fmt: skip
TABLE_6 = {
    "cifar10": (20, 3e-3), "cifar100": (1, 1e-3), "imagenet100": (10, 3e-3), "herbarium19": (1, 5e-3),
    "cub": (25, 0.05), "cars": (10, 0.05), "aircraft": (1, 0.05),
}  # fmt: skip

# Published rows whose All is not the mix of Old and New, and that mix.
INCONSISTENT = {
    "cub/sptnet": 66.3,
    "cub/sptnet-p-dinov2": 75.9,
    "imagenet100/sptnet-p-estimated": 80.4,
    "aircraft/rankstats": 27.1,
    "aircraft/uno": 27.7,
    "cifar100/orca": 77.1,
    "cifar10/dccl": 96.8,
    "cifar100/dccl": 74.6,
    "imagenet100/dccl": 81.0,
    "cars/dccl": 42.5,
    "cub/gpc": 50.2,
    "cars/gpc": 37.6,
    "cifar100/gpc": 76.4,
    "imagenet100/gpc": 75.6,
    "ablation/border-30": 66.3,
    "ablation/prompt-only-global": 57.2,
    "ablation/strategy-end-to-end": 57.9,
    "ablation/strategy-data-first": 56.7,
    "ablation/strategy-data-first-imagenet100": 82.8,
}

# Tables 4 and 5: averages over the Semantic Shift Benchmark. Kind of prompt, strategy, All, Old, New.
PROMPTS = {
    "prompt-only-vpt": ("vpt", "prompts-only", 54.4, 64.7, 49.1),
    "prompt-only-global": ("global", "prompts-only", 56.7, 64.6, 53.5),
    "prompt-only-spatial": ("spatial", "prompts-only", 57.9, 67.2, 53.3),
    "prompt-global": ("global", "alternate", 57.8, 66.3, 53.8),
    "prompt-shared": ("shared", "alternate", 60.5, 68.6, 56.5),
    "prompt-spatial": ("spatial", "alternate", 59.1, 68.5, 54.5),
    "prompt-shared-global": ("shared+global", "alternate", 60.9, 69.0, 57.3),
    "prompt-spatial-global": ("spatial+global", "alternate", 61.4, 69.9, 57.5),
    "strategy-fine-tune": ("none", "fine-tune", 57.0, 66.0, 52.3),
    "strategy-end-to-end": ("spatial+global", "end-to-end", 58.6, 67.4, 53.2),
    "strategy-data-first": ("spatial+global", "data-first", 58.0, 66.4, 51.9),
    "strategy-model-first": ("spatial+global", "model-first", 59.2, 67.8, 54.9),
    "strategy-alternate": ("spatial+global", "alternate", 61.4, 69.9, 57.5),
}


def header(name: str) -> str:
    """Comment at the top of a recipe, as one line of text."""
    lines = recipe_text(name).splitlines()
    return " ".join(line.lstrip("# ") for line in lines[: next(i for i, line in enumerate(lines) if line[:1] != "#")])


def scores_of(name: str) -> PublishedScores:
    """Published scores of a recipe, which must have some."""
    scores = published(recipe_text(name))
    assert scores is not None, name
    return scores


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
