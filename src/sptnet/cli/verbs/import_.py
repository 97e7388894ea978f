"""`sptnet import`."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer


def import_(
    file: Annotated[Path, typer.Argument(help="A checkpoint as the authors of SimGCD or SPTNet write it.")],
    out: Annotated[Path, typer.Option(help="Model directory to write.")],
    known: Annotated[
        int | None, typer.Option(min=0, help="How many of its categories were known in training; they come first.")
    ] = None,
    names: Annotated[
        Path | None, typer.Option(help="Text file with the names of its categories, one a line, known ones first.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="timm name of its backbone, where the shapes do not tell.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Pixels, where neither prompts nor positions tell.")
    ] = None,
    frame_width: Annotated[int, typer.Option(min=1, help="Width of the frame inside every patch.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in --out.")] = False,
) -> None:
    """Turn a published SimGCD or SPTNet checkpoint into a model directory. Nothing in the file is run."""
    from sptnet.model.model_folder import ModelCard, check_replaceable, save_model
    from sptnet.model.published import TITLES, build_published, read_published

    check_replaceable(out, overwrite)
    found = read_published(file)
    model, prompt = build_published(found, backbone, image_size, frame_width)
    categories, n_known = name_categories(read_names(names) if names else (), known, model.head.n_categories)
    save_model(out.resolve(), model, ModelCard(categories, n_known, prompt, crop_ratio=0.875))
    vit = model.backbone
    print(
        f"{file}: {TITLES[found.kind]}, {len(categories)} categories ({n_known} known), {vit.name}, images of "
        f"{vit.pixels.image_size} px, {describe(prompt)}"
    )
    if known is None and n_known == 0:
        print("the file does not say which categories were known; Old and New need --known N, in a folder also --names")
    print(f"wrote {out}. Use it with:")
    print(f"  sptnet predict {shlex.quote(str(out))} IMAGES")
    print(f"  sptnet evaluate {shlex.quote(str(out))} --data DIR")


def describe(prompt: Any) -> str:
    """The prompts in words."""
    frame = f"a frame of {prompt.width} px {'shared by all patches' if 'shared' in prompt.kind else 'in every patch'}"
    parts = [frame] * ("shared" in prompt.kind or "spatial" in prompt.kind)
    parts += [f"a border of {prompt.border} px"] * ("global" in prompt.kind)
    return f"prompts: {' and '.join(parts)}" if parts else "no prompts"


def read_names(file: Path) -> tuple[str, ...]:
    from sptnet.errors import Misuse

    if not file.is_file():
        raise Misuse(f"there is no file {file}. Give a text file with one category name a line.")
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8-sig").rstrip().splitlines()]
    except UnicodeDecodeError as error:
        raise Misuse(f"{file} is not text in UTF-8 ({error}). Save it again as UTF-8.") from error
    if "" in lines:
        raise Misuse(f"line {lines.index('') + 1} of {file} is empty. Write one category name a line.")
    repeated = next((name for name in lines if lines.count(name) > 1), None)
    if repeated is not None:
        raise Misuse(f"{file} names {repeated} more than once. Give each category its own name.")
    return tuple(lines)


def name_categories(names: tuple[str, ...], known: int | None, n_categories: int) -> tuple[tuple[str, ...], int]:
    """All names, and how many are known: as told, or those with a name if only some have one."""
    from sptnet.errors import Misuse
    from sptnet.results.categories import category_names
    from sptnet.runtime.text import count

    if len(names) > n_categories:
        raise Misuse(f"{count(names, 'name')} for {n_categories} categories are too many. Leave out the last ones.")
    n_known = known if known is not None else len(names) if len(names) < n_categories else 0
    if n_known > n_categories:
        raise Misuse(
            f"the checkpoint has {n_categories} categories. Give --known from 0 to {n_categories}, not {n_known}."
        )
    if names and len(names) < n_known:
        raise Misuse(
            f"{count(names, 'name')} for {n_known} known categories are too few. Name all known ones, or none."
        )
    return category_names(names or tuple(f"known-{i + 1}" for i in range(n_known)), n_categories), n_known
