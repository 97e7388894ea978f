"""`sptnet pretrain`."""

from pathlib import Path
from typing import Annotated

import typer


def pretrain(
    out: Annotated[Path, typer.Option(help="Weights file (.safetensors) to write.")],
    data: Annotated[Path | None, typer.Option(help="Folder of images; the embedded digits if not given.")] = None,
    backbone: Annotated[str, typer.Option(help="Architecture: a timm ViT, or the embedded small one.")] = (
        "sptnet_digits_vit"
    ),
    epochs: Annotated[int, typer.Option(min=1)] = 60,
    batch_size: Annotated[int, typer.Option(min=2)] = 64,
    learning_rate: Annotated[float, typer.Option(min=0)] = 5e-4,
    max_unreadable: Annotated[
        float, typer.Option(min=0, max=1, help="Share of unreadable images that is still skipped.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
) -> None:
    """Train a backbone from scratch by self-distillation, without any label."""
    from sptnet.config import DataSettings
    from sptnet.data.load import load_image_set
    from sptnet.errors import Misuse
    from sptnet.runtime.progress import bar, duration, say
    from sptnet.training.pretrain import PretrainEpoch, pretrain_image_set

    if out.suffix != ".safetensors":
        raise Misuse(f"weights are written as safetensors. Give a name such as {out.with_suffix('.safetensors')}.")
    if out.exists() and not overwrite:
        raise Misuse(f"{out} exists already. Replace it with --overwrite, or give another --out.")
    settings = (
        DataSettings(source="digits") if data is None else DataSettings(folder=str(data), max_unreadable=max_unreadable)
    )
    image_set, _ = load_image_set(settings, limit_flag="--max-unreadable ")
    seconds = 0.0
    with bar("pretrain", epochs) as update:

        def tell(epoch: PretrainEpoch) -> None:
            nonlocal seconds
            seconds += epoch.seconds
            update(epoch.epoch)
            say(f"epoch {epoch.epoch}/{epochs}  loss {epoch.loss:.3f}  {epoch.seconds:.1f} s")

        accuracy = pretrain_image_set(
            image_set,
            backbone,
            out,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            seed=seed,
            on_epoch=tell,
        )
    print(f"wrote {out} after {duration(seconds)} of training")
    if accuracy is not None:
        print(f"10-nearest-neighbour accuracy (leave one out): {100 * accuracy:.2f} %")
