"""What learning rates and other settings do to published systems: rows of `systems.py` with one thing changed.

    python benchmarks/departures.py --table b --data DIR --weights vits14.safetensors --out runs/departures \\
        --seeds 0 1 --sets "CUB, 12 classes" --arms "PromptCAL, a tenth" --precision bf16

Table b has batches of 32 images with new views, table a batches of 128 with stored views, where PromptCAL cannot train.
One JSON line per run is appended to `--results`; runs that are there already are skipped. `info_nce` of a line are the
means of InfoNCE in the epochs of the first stage, if it has this loss, and `alike` is its value if all features are
equal: the logarithm of the number of other views.
"""

import argparse
import math
import shutil
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from systems import add_line, add_run_options, arms_to_run, config_of, one_run

from sptnet.config import Config
from sptnet.discovery.departures import SHARP_PROTOTYPES
from sptnet.discovery.lengths import by_section
from sptnet.methods import METHODS
from sptnet.methods.stage_plan import Optimiser, StagePlan
from sptnet.results.run_folder import RunFolder
from sptnet.schedules import steps_per_epoch

PUBLISHED = 0.1
ORIGINAL = dict(METHODS)


@dataclass(frozen=True)
class Arm:
    """A method, learning rates as multiples of the published ones, and the size of a batch if not that of the table."""

    method: str = "promptcal"
    projections: float = 1.0
    block: float = 1.0
    tokens: float = 1.0
    batch: int | None = None
    stage: str | None = None
    """The only stage whose rates change; None: all."""
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Other settings that change, by section."""

    def optimiser(self, group: str, published: Optimiser) -> Optimiser:
        """Change the learning rates of a group."""
        factor = self.tokens if group == "prompt" else self.projections

        def learning_rate(epoch: int, step: int, epochs: int, steps: int) -> float:
            return factor * published.learning_rate(epoch, step, epochs, steps)

        change = 1.0 if group == "prompt" else self.block / self.projections
        return replace(published, learning_rate=learning_rate, backbone_ratio=change * published.backbone_ratio)

    def stages(self, config: Config) -> list[StagePlan]:
        """Return the stages of the method with these learning rates."""
        return [
            plan
            if self.stage not in (None, plan.name)
            else replace(plan, optimisers={group: self.optimiser(group, old) for group, old in plan.optimisers.items()})
            for plan in ORIGINAL[self.method].stages(config)
        ]


ARMS = {
    "PromptCAL, published rate": Arm(),
    "PromptCAL, a third": Arm(projections=1 / 3, block=1 / 3, tokens=1 / 3),
    "PromptCAL, a tenth": Arm("promptcal", 0.1, 0.1, 0.1),
    "PromptCAL, tokens at a tenth": Arm(tokens=0.1),
    "PromptCAL, last block at a tenth": Arm(block=0.1),
    "PromptCAL, projections at a tenth": Arm(projections=0.1),
    "PromptCAL, tokens and last block at a tenth": Arm(block=0.1, tokens=0.1),
    "PromptCAL, published rate and batch": Arm(batch=128),
    "GCD, published rate": Arm("gcd"),
    "GCD, a tenth": Arm("gcd", 0.1, 0.1, 0.1),
    "DCCL, a tenth": Arm("dccl", 0.1, 0.1, 0.1),
    "CiPR, a tenth": Arm("cipr", 0.1, 0.1, 0.1),
    "GPC, sharp prototypes, a tenth": Arm("gpc", 0.1, 0.1, 0.1, settings=by_section(SHARP_PROTOTYPES)),
    "muGCD, its GCD at a tenth": Arm("mugcd", 0.1, 0.1, 0.1, stage="gcd"),
}


def main() -> None:
    """Run the arms that `--results` does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=("a", "b"), required=True)
    add_run_options(parser, "departures.jsonl")
    parser.add_argument("--arms", nargs="+", choices=ARMS, required=True)
    given = parser.parse_args()
    for key, place, base, data in arms_to_run(given, given.table, given.arms):
        what = ARMS[key["arm"]]
        base = base if what.batch is None else base.changed(training={"batch_size": what.batch})
        size = base.training.batch_size
        # All arms of table b have new views like PromptCAL, whose row cannot read stored ones.
        row = what.method if given.table == "a" else "promptcal"
        config = config_of(row, given.table, place, base, steps_per_epoch(len(data.split.training), size))
        rate = {"learning_rate": PUBLISHED}
        config = config.changed(promptcal=rate, promptcal_calibrated=rate, **what.settings)
        config = config.model_copy(update={"method": what.method})
        folder = place / "departures"
        with mock.patch.dict(METHODS, {what.method: replace(ORIGINAL[what.method], stages=what.stages)}):
            scores = one_run(config, folder, data)
        first = [line for line in RunFolder(folder).metrics() if line["stage_number"] == 0]
        losses = [phase.get("info_nce") for line in first for phase in line["losses"].values()]
        shutil.rmtree(folder)
        line = key | scores | {"info_nce": [round(loss, 3) for loss in losses if loss is not None]}
        add_line(given.results, line | {"alike": round(math.log(2 * size - 1), 3)})


if __name__ == "__main__":
    main()
