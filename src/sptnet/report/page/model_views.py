"""Pictures of the model for the page: learned prompts, and attention for a few images."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from sptnet.data.image_file import ImageSource, UnreadableImage, read_image
from sptnet.errors import Failure
from sptnet.inference.attention import last_block_attention
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import ModelCard, load_model
from sptnet.model.prompt_pictures import prompt_pictures
from sptnet.report.page.attention_data import attention_data
from sptnet.report.page.thumbnails import as_uri
from sptnet.results.categories import Category
from sptnet.results.run_result import RunResult
from sptnet.runtime.compute import choose_compute

SAMPLES = 4


@dataclass(frozen=True)
class ModelViews:
    """Pictures of the prompts, and attention of some images."""

    prompts: tuple[tuple[str, str], ...] = ()
    """Title and data URI of each picture."""
    attention: tuple[dict[str, Any], ...] = ()
    """One entry of `attention_data` per image."""


LoadedModel = tuple[GcdModel, ModelCard]


def load_for_pictures(run: Path) -> LoadedModel:
    """Load the model of a run. The error for a damaged model says how to write the page without it."""
    try:
        return load_model(run)
    except Failure as error:
        raise Failure(
            f"{error} To write the page without pictures of the model, add `model_pictures=False`."
        ) from error


def model_views(
    loaded: LoadedModel, result: RunResult, categories: Sequence[Category], sources: Sequence[ImageSource | None]
) -> ModelViews:
    """Compute pictures of the prompts, and attention for up to four images, with and without prompts."""
    model, card = loaded
    prompts = tuple((picture.title, as_uri(picture.png, "png")) for picture in prompt_pictures(model))
    images = sample_images(result, categories, sources)
    if not images:
        return ModelViews(prompts)
    chosen = [source for i in images if (source := sources[i]) is not None]
    compute = choose_compute("cpu", "float32")
    with_prompts = last_block_attention(model, chosen, card.crop_ratio, compute)
    views = [("with prompts" if model.group("prompt") else "", with_prompts)]
    if model.group("prompt"):
        views.append(("without prompts", last_block_attention(model, chosen, card.crop_ratio, compute, prompted=False)))
    return ModelViews(prompts, tuple(attention_data(views, images)))


def sample_images(
    result: RunResult, categories: Sequence[Category], sources: Sequence[ImageSource | None]
) -> list[int]:
    """Return the positions of the best readable representatives of the largest categories, new and known in turn."""
    position = {id_: i for i, id_ in enumerate(result.ids)}
    by_size = sorted((category for category in categories if category.size), key=lambda category: -category.size)
    new = [category for category in by_size if category.is_new]
    known = [category for category in by_size if not category.is_new]
    turns = [category for category in chain.from_iterable(zip_longest(new, known)) if category is not None]
    images: list[int] = []
    for category in turns:
        readable = (i for id_ in category.representatives if _readable(sources[i := position[id_]]))
        images += [image for image in [next(readable, None)] if image is not None]
        if len(images) == SAMPLES:
            break
    return images


def _readable(source: ImageSource | None) -> bool:
    try:
        return source is not None and bool(read_image(source).size)
    except UnreadableImage:
        return False
