"""`sptnet import`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sptnet.cli.options import JSON
from sptnet.cli.output import show_json, show_line
from sptnet.runtime.text import shell_word


def import_(
    file: Annotated[Path, typer.Argument(help="A checkpoint as the authors of SimGCD or SPTNet write it.")],
    out: Annotated[Path, typer.Option(help="Model directory to write.")],
    known: Annotated[
        int | None, typer.Option(min=0, help="How many of its categories were known in training; they come first.")
    ] = None,
    names: Annotated[
        Path | None, typer.Option(help="Text file with the names of its categories, one per line, known ones first.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="timm name of its backbone, if the shapes are ambiguous.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Image size in pixels, if prompts and positions do not determine it.")
    ] = None,
    frame_width: Annotated[int, typer.Option(min=1, help="Width of the frame inside every patch.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in --out.")] = False,
    as_json: JSON = False,
) -> None:
    """Turn a published SimGCD or SPTNet checkpoint into a model directory. Nothing in the file is run."""
    from sptnet.model.model_folder import ModelCard, check_replaceable, save_model
    from sptnet.model.published import TITLES, build_published, read_published
    from sptnet.results.categories import name_categories, read_names

    check_replaceable(out, overwrite)
    checkpoint = read_published(file)
    model, prompt = build_published(checkpoint, backbone, image_size, frame_width)
    categories, n_known = name_categories(read_names(names) if names else (), known, model.head.n_categories)
    save_model(out.resolve(), model, ModelCard(categories, n_known, prompt, crop_ratio=0.875))
    vit = model.backbone
    commands = [
        f"sptnet predict {shell_word(str(out))} IMAGES",
        f"sptnet evaluate {shell_word(str(out))} --data DIR",
    ]
    if as_json:
        show_json(
            {
                "model": out,
                "kind": checkpoint.kind,
                "categories": categories,
                "n_known": n_known,
                "backbone": vit.name,
                "image_size": vit.pixels.image_size,
                "prompt": {"kind": prompt.kind, "width": prompt.width, "border": prompt.border},
                "next": commands,
            }
        )
        return
    show_line(
        f"{file}: {TITLES[checkpoint.kind]}, {len(categories)} categories ({n_known} known), {vit.name}, images of "
        f"{vit.pixels.image_size} px, {_in_words(prompt)}"
    )
    if known is None and n_known == 0:
        show_line(
            "the file does not say which categories were known; Old and New need --known N, in a folder also --names"
        )
    show_line(f"wrote {out}. Use it with:")
    for command in commands:
        show_line(f"  {command}")


def _in_words(prompt: Any) -> str:
    frame = f"a frame of {prompt.width} px {'shared by all patches' if 'shared' in prompt.kind else 'in every patch'}"
    parts = [frame] * ("shared" in prompt.kind or "spatial" in prompt.kind)
    parts += [f"a border of {prompt.border} px"] * ("global" in prompt.kind)
    return f"prompts: {' and '.join(parts)}" if parts else "no prompts"
