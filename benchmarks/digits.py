"""The five-seed table of the digits: all methods, and controls that isolate the effect of the prompts.

    python benchmarks/digits.py --out runs/digits-table --seeds 0 1 2 3 4

Each seed trains SimGCD once; everything else starts from that model and trains for the same number of epochs.
Finished runs in `--out` are read, so an interrupted table can be continued.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

from sptnet.config import Config
from sptnet.config.recipes import load_recipe
from sptnet.data.load import SplitImages, load_data
from sptnet.discovery.demo import BASELINES
from sptnet.results.run_folder import RunFolder
from sptnet.results.scores import format_scores
from sptnet.training.experiment import Experiment

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "further fine-tuning, no prompts": {"sptnet": {"strategy": "fine-tune"}},
    "random prompts, frozen": {"sptnet": {"strategy": "random-prompts"}},
    "SPTNet-S": {"prompt": {"kind": "shared"}},
    "SPTNet-P": {"prompt": {"kind": "spatial"}},
    "SPTNet": {"prompt": {"kind": "spatial+global"}},
}
Scores = dict[str, dict[str, float]]


def finished_scores(experiment: Experiment) -> dict[str, Any]:
    """Run the experiment unless it is finished; return the scores on the unlabelled images."""
    folder = experiment.run_folder
    facts = folder.facts() if folder.is_run else {}
    if facts.get("status") != "finished":
        experiment.run(resume=folder.is_run)
        facts = folder.facts()
    scores: dict[str, Any] = facts["scores"]["unlabelled"]
    return scores


def without_prompts(experiment: Experiment, data: SplitImages) -> dict[str, Any]:
    """Score the finished model without its prompts."""
    from sptnet.inference.predictor import load
    from sptnet.results.scores import score

    split = data.split
    images = [data.image_set.sources[i] for i in split.unlabelled]
    outputs = load(experiment.run_folder.path).outputs(images, prompted=False)
    return score(split.target[split.unlabelled], outputs.categories, split.n_known)


def one_seed(config: Config, data: SplitImages, out: Path) -> Scores:
    """Train all methods and controls with one seed; return their scores."""
    rows: Scores = {}
    for name, method in BASELINES.items():
        rows[name] = finished_scores(
            Experiment(config.model_copy(update={"method": method}), RunFolder(out / method), data)
        )
        print(f"seed {config.seed}  {name}: {format_scores(rows[name])}", flush=True)
    start = {"start_from": str((out / "simgcd").resolve())}
    for name, changes in VARIANTS.items():
        merged = {**changes, "sptnet": {**changes.get("sptnet", {}), **start}}
        experiment = Experiment(config.changed(**merged), RunFolder(out / name.replace(" ", "-")), data)
        rows[name] = finished_scores(experiment)
        print(f"seed {config.seed}  {name}: {format_scores(rows[name])}", flush=True)
        if name.startswith("SPTNet"):
            rows[f"{name}, prompts removed at test"] = without_prompts(experiment, data)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--set", action="append", default=[], help="settings on top of the digits recipe")
    arguments = parser.parse_args()
    config = load_recipe("digits", arguments.set)
    data = load_data(config.data)
    results = [
        one_seed(config.model_copy(update={"seed": seed}), data, arguments.out / f"seed-{seed}")
        for seed in arguments.seeds
    ]
    print(f"| method | All | Old | New | All of seeds {', '.join(map(str, arguments.seeds))} |\n|---|---|---|---|---|")
    for name in results[0]:
        cells = []
        for key in ("all", "old", "new"):
            values = [100 * result[name][key] for result in results]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.1f} ± {spread:.1f}")
        each = ", ".join(f"{100 * result[name]['all']:.1f}" for result in results)
        print(f"| {name} | {' | '.join(cells)} | {each} |")


if __name__ == "__main__":
    main()
