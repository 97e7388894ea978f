"""SimGCD in a custom training loop: backbone, head, views and losses of sptnet, everything else plain torch.

python examples/own_training_loop.py --epochs 30
"""

import argparse

import numpy as np
import torch

from sptnet import split_accuracy
from sptnet.data.benchmarks.digits import digits
from sptnet.data.split import make_split
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.head import PrototypeHead
from sptnet.losses import gcd_loss
from sptnet.model.backbone import build_backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.schedules import cosine_by_epoch, teacher_temperature
from sptnet.training.batching.sampler import balanced_batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200, help="how many of the 1,797 handwritten digits")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)

    image_set = digits().subset(range(given.images))
    split = make_split(image_set, known_classes=5)  # 0 to 4 are known, half of their images labelled
    backbone = build_backbone("sptnet_digits_vit")
    model = GcdModel(backbone, PrototypeHead(backbone.dim, n_categories=10, hidden=256, bottleneck=64))
    store, maker = ImageStore(image_set.sources, backbone.pixels), ViewMaker(backbone.pixels, flip=0.0)
    labels = torch.from_numpy(split.labels)
    optimiser = torch.optim.SGD(model.group("model"), lr=given.learning_rate, momentum=0.9, weight_decay=5e-5)
    model.train_only(frozenset({"model"}))

    for epoch in range(given.epochs):
        for group in optimiser.param_groups:
            group["lr"] = cosine_by_epoch(given.learning_rate, 1e-3, epoch, given.epochs)
        temperature = teacher_temperature(0.07, 0.04, warm_up=max(1, given.epochs // 4), epoch=epoch)
        losses = []
        for batch in balanced_batches(
            split.labelled, split.unlabelled, given.batch_size, seed=1000 * given.seed + epoch
        ):
            draws = [
                maker.random_view(store[int(i)], seed=int(torch.randint(2**31, ()))) for _ in range(2) for i in batch
            ]
            projections, logits = model(maker.normalise(torch.stack(draws)))
            loss = gcd_loss(projections, logits, labels[batch], labels[batch] >= 0, temperature, 0.35, 1.0)
            optimiser.zero_grad()
            loss.total.backward()
            optimiser.step()
            losses.append(loss.total.item())
        print(f"epoch {epoch + 1}/{given.epochs}  loss {np.mean(losses):.3f}")

    with torch.inference_mode():
        views = torch.stack([maker.centre_view(store[int(i)]) for i in split.unlabelled])
        predicted = model.eval()(maker.normalise(views))[1].argmax(1).numpy()
    score = split_accuracy(split.target[split.unlabelled], predicted, split.old_ids)
    print(f"unlabelled images: All {score.all:.1%}  Old {score.old:.1%}  New {score.new:.1%}")


if __name__ == "__main__":
    main()
