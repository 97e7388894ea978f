"""Data for the script of the page, as JSON values."""

from collections.abc import Mapping, Sequence
from typing import Any

from sptnet.report.page.image_map import ImageMap
from sptnet.report.page.overview import display_order, doubtful_ids, least_sure, member_order, unsorted
from sptnet.results.categories import Category, labels_to_check
from sptnet.results.run_result import RunResult
from sptnet.runtime.text import printable

MOST_TO_CHECK = 200


def listed_images(result: RunResult) -> tuple[list[int], list[int]]:
    """Return the positions of the images in lists of their own: the least sure ones, and labels to check."""
    return least_sure(result), labels_to_check(result)[:MOST_TO_CHECK].tolist()


def page_data(
    result: RunResult,
    categories: Sequence[Category],
    images: Sequence[int],
    on_map: ImageMap,
    expected: Sequence[float | None] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return categories in display order, with their images by number on the page.

    Names that are not printable also have a printable form under `shown`. `expected` is the expected share of right
    images per category, `facts` are further columns about the images.
    """
    number = {image: i for i, image in enumerate(images)}
    position = {id_: i for i, id_ in enumerate(result.ids)}
    order = display_order(categories)
    shown_at = {categories[index].name: i for i, index in enumerate(order)}
    members, doubtful = member_order(result, categories), doubtful_ids(categories)
    unsure, to_check = listed_images(result)
    open_images = unsorted(result)
    place = {index: i for i, index in enumerate(order)}

    def entry(index: int) -> dict[str, Any]:
        category = categories[index]
        return {
            "name": category.name,
            **({} if category.name.isprintable() else {"shown": printable(category.name)}),
            "new": category.is_new,
            "size": category.size,
            "certainty": _rounded(category.mean_certainty),
            "expected": None if expected is None else _rounded(expected[index]),
            "unsorted": int(open_images[members[index]].sum()),
            "nearest": None if category.nearest_known is None else shown_at[category.nearest_known],
            "doubtful": len(category.doubtful),
            "confirmed": sum(result.ids[i] in result.confirmed for i in members[index]),
            "labels": sum(result.part[i] == "labelled" for i in members[index]),
            "representatives": [number[i] for id_ in category.representatives if (i := position[id_]) in number],
            "members": [number[i] for i in members[index] if i in number],
        }

    return {
        "categories": [entry(index) for index in order],
        "images": {
            "id": [result.ids[i] for i in images],
            "shown": {number[i]: printable(result.ids[i]) for i in images if not result.ids[i].isprintable()},
            "certainty": [round(float(result.certainty[i]), 3) for i in images],
            "doubtful": [int(result.ids[i] in doubtful) for i in images],
            "confirmed": [int(result.ids[i] in result.confirmed) for i in images],
            **(facts or {}),
        },
        "unsure": [number[i] for i in unsure if i in number],
        "to_check": [
            {"image": number[i], "guess": place[int(result.guess[i])], "certainty": round(float(value), 3)}
            for i, value in zip(to_check, result.guess_certainty[to_check], strict=True)
            if i in number
        ],
        "dropped": int((result.category < 0).sum()),
        "map": {
            "image": [number[i] for i in on_map.images.tolist()],
            "x": on_map.places[:, 0].tolist(),
            "y": on_map.places[:, 1].tolist(),
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
