"""PromptCAL's affinity graph compared with the forward pass of the training step that uses it.

    OMP_NUM_THREADS=1 python benchmarks/graph.py --weights FILE
    OMP_NUM_THREADS=1 python benchmarks/graph.py --batch 16 --bank 512 --repeats 1

The forward pass is that of the student without gradients: two views per image with prompt tokens, to the projections of
the class token and of the prompt tokens. A graph is over both views of the batch and the bank. Its time depends on how
well the points are clustered, so it is measured for points round some directions and for points without clusters. All
run in alternation on one thread; the best times are compared, since other work on the machine can only make a call
longer. A step has two graphs, one of the class token and one of the prompt tokens.
"""

import argparse
import time
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sptnet.config import PromptSettings
from sptnet.head import TwinHead
from sptnet.methods.phases import JOINT
from sptnet.methods.promptcal import affinity_graph
from sptnet.model.backbone import build_backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.memory import memory_kept
from sptnet.training.batching.batches import Batch
from sptnet.training.step import enter_last_block, leave_last_block

CLUSTERS, SUPERVISED_TOKENS = 200, 2
NOISE = {"clear clusters": 1.0, "faint clusters": 2.0, "no clusters": None}
GRAPHS = {"k = 5, quantile 0.8": (5, 0.8), "k = 10, quantile 0.5": (10, 0.5)}


def forward_pass(settings: argparse.Namespace) -> Callable[[], object]:
    """Forward pass of a step, from pixels to projections."""
    backbone = build_backbone(settings.name, settings.weights, settings.size, pretrained=False)
    model = GcdModel(backbone, TwinHead(backbone.dim, CLUSTERS))
    model.attach_prompt(PromptSettings(kind="deep"), torch.Generator().manual_seed(0))
    model.n_token_outputs = SUPERVISED_TOKENS
    pixels, n = torch.randn(2, settings.batch, 3, settings.size, settings.size), settings.batch
    batch = Batch(list(pixels), torch.full((n,), -1), torch.zeros(n, dtype=torch.bool), torch.arange(n))
    compute = choose_compute("cpu", "float32")

    @torch.no_grad()
    def run() -> object:
        return leave_last_block(model, enter_last_block(model, batch, JOINT.views, compute), JOINT.views, compute)

    return run


def points(n: int, dim: int, noise: float | None) -> tuple[Float[Tensor, "n dim"], Int[Tensor, " n"]]:
    """Draw points round directions, or anywhere; half of those of the first half of the directions are labelled."""
    random = torch.Generator().manual_seed(0)
    directions, of_point = torch.randn(CLUSTERS, dim, generator=random), torch.randint(CLUSTERS, (n,), generator=random)
    drawn = torch.randn(n, dim, generator=random)
    labelled = (of_point < CLUSTERS // 2) & (torch.rand(n, generator=random) < 0.5)
    features = drawn if noise is None else directions[of_point] + noise * drawn
    return features, torch.where(labelled, of_point, -1)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and CPU time of a call; only the latter is meaningful on a busy machine."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def graphs(n: int, dim: int) -> dict[str, Callable[[], object]]:
    """A graph for every kind of points and every published setting."""

    def graph(noise: float | None, k: int, quantile: float) -> Callable[[], object]:
        features, labels = points(n, dim, noise)
        return lambda: affinity_graph(features, k, quantile, labels)

    return {
        f"{kind}, {how}": graph(noise, *setting) for kind, noise in NOISE.items() for how, setting in GRAPHS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="vit_small_patch14_dinov2")
    parser.add_argument("--weights", help="file with weights of the backbone; random ones without it")
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--bank", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    n = 2 * settings.batch + settings.bank
    work = {"forward pass": forward_pass(settings), **graphs(n, settings.dim)}
    with memory_kept():
        times = [{name: seconds(each) for name, each in work.items()} for _ in range(settings.repeats)]
    print(f"{2 * settings.batch} views of {settings.size} px; graphs of {n} points of {settings.dim} values; 1 thread")
    best = {name: tuple(min(of_round[name][i] for of_round in times) for i in (0, 1)) for name in work}
    processor = best["forward pass"][1]
    print(f"{'':44}{'wall s':>9}{'CPU s':>9}{'both graphs / forward pass, CPU':>34}")
    for name, (of_wall, of_processor) in best.items():
        share = "" if name == "forward pass" else f"{2 * of_processor / processor:34.3f}"
        print(f"{name:44}{of_wall:9.2f}{of_processor:9.2f}{share}")


if __name__ == "__main__":
    main()
