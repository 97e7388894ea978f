"""Where the images of a run are now."""

from pathlib import Path

from sptnet.config import DataSettings
from sptnet.data.image_file import ImageSource
from sptnet.data.load import read_pile
from sptnet.errors import SptnetError
from sptnet.results.run_result import Found
from sptnet.runtime.progress import Say


def image_sources(found: Found, settings: DataSettings, tell: Say) -> list[ImageSource | None]:
    """A file or the pixels of every image; None for those that are not there any more."""
    if all(found.sources):
        return [Path(source) for source in found.sources if source is not None]
    try:
        pile = read_pile(settings)
    except SptnetError as error:
        tell(f"the page comes without pictures: {error}")
        return [None] * len(found)
    source_of = dict(zip(pile.ids, pile.sources, strict=True))
    return [source_of.get(id_) for id_ in found.ids]
