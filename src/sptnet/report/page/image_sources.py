"""Files or pixels of the images of a run."""

from pathlib import Path

from sptnet.config import DataSettings
from sptnet.data.image_file import ImageSource
from sptnet.data.load import read_image_set
from sptnet.errors import SptnetError
from sptnet.results.run_result import RunResult
from sptnet.runtime.progress import Say


def image_sources(result: RunResult, settings: DataSettings, tell: Say) -> list[ImageSource | None]:
    """Return the file or the pixels of each image, None for missing images."""
    if all(result.sources):
        return [Path(source) for source in result.sources if source is not None]
    try:
        image_set = read_image_set(settings)
    except SptnetError as error:
        tell(f"the page comes without pictures: {error}")
        return [None] * len(result)
    source_of = dict(zip(image_set.ids, image_set.sources, strict=True))
    return [source_of.get(id_) for id_ in result.ids]
