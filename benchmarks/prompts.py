"""Do prompts earn their time on a folder? SPTNet against controls of equal wall time, from the model of `discover`.

    OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/prompts.py --data DIR --weights vits14.safetensors \
        --sets cub cifar100 --numbers 4 5 --minutes 4 --out benchmarks/results/prompts.jsonl

The draws are those of `folders.py`, the true number of categories is given. SimGCD starts from clusters and trains for
`--steps` steps; from that model, each arm trains for the same number of minutes: SPTNet with prompts that begin small,
the same with random frozen prompts, and further fine-tuning from stored tokens. SPTNet is scored with its prompts and
without them. One JSON line per draw and arm is appended to `--out`; lines that are there are skipped.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from folders import CATEGORIES, add_image_options, draw_folder, match, read_classes, write_folder

from sptnet.config import Config
from sptnet.config.recipes import load_recipe
from sptnet.data.load import SplitImages, load_unsorted
from sptnet.discovery.departures import FROM_CLUSTERS
from sptnet.discovery.lengths import warm_up
from sptnet.inference.predictor import load
from sptnet.results.run_folder import RunFolder
from sptnet.schedules import steps_per_epoch
from sptnet.training.experiment import Experiment

ARMS: dict[str, dict[str, dict[str, Any]]] = {
    "SPTNet": {"sptnet": {"strategy": "alternate"}},
    "random prompts": {"sptnet": {"strategy": "random-prompts"}},
    "fine-tuning": {"sptnet": {"strategy": "fine-tune"}},
}


def accuracy(categories: Any, truth: np.ndarray, known: tuple[str, ...]) -> dict[str, float]:
    """All, Old and New after one matching."""
    right, old = match(truth, np.array(categories)), np.isin(truth, known)
    parts = {"all": right, "old": right[old], "new": right[~old]}
    return {name: round(float(values.mean()), 4) for name, values in parts.items()}


def train(config: Config, folder: Path, images: SplitImages) -> tuple[list[str], dict[str, Any]]:
    """Train and return the category per unsorted image and the facts of the run."""
    experiment = Experiment(config, RunFolder(folder), images, tell=lambda line: None)
    experiment.run()
    categories = experiment.outputs_of_all.categories[images.split.unlabelled]
    steps = sum(sum(line["steps"].values()) for line in RunFolder(folder).metrics())
    return [str(c) for c in categories], {"steps": steps, "seconds": round(RunFolder(folder).facts()["seconds"], 1)}


def main() -> None:
    """Train what `--out` does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_image_options(parser)
    parser.add_argument("--sets", nargs="+", default=["cub", "cifar100"], choices=sorted(CATEGORIES))
    parser.add_argument("--numbers", nargs="+", type=int, default=[4, 5], help="numbers of the draws")
    parser.add_argument("--steps", type=int, default=150, help="steps of SimGCD before")
    parser.add_argument("--minutes", type=float, default=4.0, help="minutes of each arm")
    parser.add_argument("--batch", type=int, default=32, help="batch size of the arms")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []

    for number in given.numbers:
        for set_name in given.sets:
            key = {"set": set_name, "draw": number, "minutes": given.minutes}
            if any(key.items() <= line.items() and line["arm"] == "fine-tuning" for line in lines):
                continue
            draw = draw_folder(read_classes(given.data, set_name), set_name, number)
            work = Path(tempfile.mkdtemp())
            truth_of = write_folder(draw, work / "photos")
            config = load_recipe("sptnet", {"seed": number, "n_categories": draw.n_categories, **FROM_CLUSTERS})
            size = {"name": given.backbone, "weights": str(given.weights.resolve()), "image_size": given.size}
            config = config.changed(
                data={"source": "folder", "folder": str(work / "photos")},
                backbone=size,
                views={"bank": 4, "bank_folder": str(work / "tokens"), "workers": 0},
                training={"batch_size": 64, "evaluate_every": 10000},
                prompt={"noise": 0.1, "border": 15},
            )
            data, images = load_unsorted(config.data, lambda line: None)
            config = config.model_copy(update={"data": data})
            ids, unlabelled = images.image_set.ids, images.split.unlabelled
            truth = np.array([truth_of[ids[i]] for i in unlabelled])
            epochs = -(-given.steps // steps_per_epoch(len(images.split.training), 64))
            config = config.changed(simgcd={"epochs": epochs, "teacher_warm_up": warm_up(epochs)})
            found, facts = train(config.model_copy(update={"method": "simgcd"}), work / "start", images)
            made = [{"arm": "start"} | accuracy(found, truth, draw.known) | facts]
            for arm, changes in ARMS.items():
                settings = {"start_from": str(work / "start"), "minutes": given.minutes, "epochs": 1000, "k": 5}
                settings |= {"counter": "continuous", "learning_rate": 0.03, "backbone_ratio": 0.1}
                settings |= {"prompt_warm_up": 10, "teacher_warm_up": 1, **changes["sptnet"]}
                own = config.changed(sptnet=settings, head={"start": "random"}, training={"batch_size": given.batch})
                folder = work / arm.replace(" ", "-")
                found, facts = train(own, folder, images)
                made.append({"arm": arm} | accuracy(found, truth, draw.known) | facts)
                if arm == "SPTNet":
                    sources = [images.image_set.sources[i] for i in unlabelled]
                    bare = load(folder).outputs(sources, prompted=False).categories
                    without = accuracy([str(c) for c in bare], truth, draw.known)
                    made.append({"arm": "SPTNet, prompts removed at test"} | without | facts)
            for line in made:
                print(json.dumps(key | line), flush=True)
                with given.out.open("a") as file:
                    file.write(json.dumps(key | line) + "\n")
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
