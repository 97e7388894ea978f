"""Read `model.json`, the description of a model, and check its values."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from sptnet.config import PromptSettings
from sptnet.config.sections import MOST_PIXELS
from sptnet.errors import Misuse
from sptnet.runtime.readers import FileShape, check_shape, decoded, one_line, parse_json, reading

FORMAT = 1
WAY_OUT = "Copy it again or train again."

Size = Annotated[int, Field(ge=1, le=2**20)]
Channels = Annotated[list[Annotated[float, Field(ge=-1e6, le=1e6)]], Field(min_length=3, max_length=3)]
Line = Annotated[list[Annotated[float, Field(ge=-1e9, le=1e9)]], Field(min_length=2, max_length=2)]


class PixelsShape(FileShape):
    """Pixel format of the backbone."""

    image_size: Annotated[int, Field(ge=1, le=MOST_PIXELS)]
    mean: Channels
    std: Annotated[list[Annotated[float, Field(gt=0, le=1e6)]], Field(min_length=3, max_length=3)]
    interpolation: Literal["nearest", "bilinear", "bicubic"]
    reading: Literal["quick", "exact"] = "exact"


class HeadShape(FileShape):
    """Arguments to build the head with."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["centroids", "linear"] | None = None
    hidden: Size = 1
    bottleneck: Size = 1
    with_lengths: bool = False
    projects: bool = True


class ArchitectureShape(FileShape):
    """Sizes of the backbone that differ from timm's."""

    model_config = ConfigDict(extra="forbid")

    patch_size: Size = 1
    embed_dim: Size = 1
    depth: Annotated[int, Field(ge=1, le=200)] = 1
    num_heads: Size = 1
    mlp_ratio: Annotated[float, Field(gt=0, le=64)] = 1


class CalibratorShape(FileShape):
    """Slope and offset for known and for new categories."""

    known: Line
    new: Line


class CategoriesShape(FileShape):
    """Names of the categories, the known ones first."""

    categories: Annotated[list[str], Field(min_length=1)]
    n_known: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if self.n_known > len(self.categories):
            raise ValueError(f"{self.n_known} of {len(self.categories)} categories cannot be known")
        if len(set(self.categories)) < len(self.categories):
            raise ValueError("the names of the categories repeat")
        return self


class ModelShape(CategoriesShape):
    """model.json."""

    format: int
    backbone: str
    architecture: ArchitectureShape | None = None
    pixels: PixelsShape
    head: HeadShape
    prompt: PromptSettings
    crop_ratio: Annotated[float, Field(ge=0.01, le=1)]
    trainable_blocks: Size
    sha256: str
    calibrator: CalibratorShape | None = None


def read_description(path: Path) -> dict[str, Any]:
    """Read and check `model.json`; one of another format is refused."""
    with reading(path, WAY_OUT):
        description: dict[str, Any] = parse_json(decoded(path))
        if not isinstance(description, dict) or "format" not in description:
            raise ValueError("it has no format")
        if description["format"] != FORMAT:
            raise Misuse(
                f"{path} has format {one_line(description['format'])}, but this sptnet reads format {FORMAT}. "
                "Install the version of sptnet that wrote it, or train again."
            )
        check_shape(description, ModelShape)
    return description


def read_categories(path: Path) -> tuple[tuple[str, ...], int]:
    """Read the names of the categories and the number of known ones from `model.json`."""
    with reading(path, WAY_OUT):
        content = parse_json(decoded(path))
        check_shape(content, CategoriesShape)
    return tuple(content["categories"]), content["n_known"]
