"""Write the page of a finished run."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sptnet.errors import Misuse
from sptnet.report.page.confusion import confusion
from sptnet.report.page.content import listed_images, page_data
from sptnet.report.page.curves import count_chart, reliability_chart, training_charts
from sptnet.report.page.facts import COMMANDS, page_commands, run_facts
from sptnet.report.page.image_facts import file_times, image_facts
from sptnet.report.page.image_map import image_map
from sptnet.report.page.image_sources import image_sources
from sptnet.report.page.model_views import LoadedModel, ModelViews, load_for_pictures, model_views
from sptnet.report.page.overview import display_order, expectation, expected_shares, in_words
from sptnet.report.page.render import render
from sptnet.report.page.shown_images import pictured_images
from sptnet.report.page.thumbnails import thumbnails
from sptnet.report.page_age import PAGE, count_edits, page_mark
from sptnet.results.assessment import read_expectation
from sptnet.results.categories import Category, describe_categories, labels_to_check
from sptnet.results.counts import KeptCounts
from sptnet.results.edits.log import Count, current, read_edited
from sptnet.results.edits.second_choices import second_choices
from sptnet.results.run_content import EDITS
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult
from sptnet.runtime.files import write_text_atomically
from sptnet.runtime.progress import Say, bar, say

BUDGET = 15_000_000
LEAST_FOR_PICTURES = 1_000_000
GENERATOR = "sptnet report"


@dataclass(frozen=True, eq=False)
class Report:
    """A finished run as edited, its categories, and its page if one was written."""

    result: RunResult
    categories: list[Category]
    expectation: str
    """How many unsorted images should be right, a sentence without its end; "" if there are none."""
    page: Path | None = None


def read_for_report(run: str | Path) -> Report:
    """Read a finished run without writing a page."""
    result = current(run)
    return Report(result, describe_categories(result), expectation(result, *read_expectation(RunFolder(run).facts())))


def write_report(
    run: str | Path,
    out: str | Path | None = None,
    tell: Say = say,
    model_pictures: bool = True,
    model: LoadedModel | None = None,
) -> Report:
    """Write the page of a finished run, as edited: RUN/report.html if no other is given.

    The model of the run is loaded unless it is given. Without `model_pictures` it is not needed, and prompts and
    attention are left out.
    """
    folder = RunFolder(run)
    target = _target(folder, out)
    config, facts, metrics = folder.config(), folder.facts(), folder.metrics()
    edited = read_edited(run)
    before, edits, result = edited.before, edited.edits, edited.result
    counts = sorted(result.counts)
    chosen = [edit.n_categories for edit in edits if isinstance(edit, Count)]
    categories = describe_categories(result)
    expected, reason = read_expectation(facts)
    opening = expectation(result, expected, reason)
    sources = image_sources(result, config.data, tell)
    views = ModelViews()
    if model_pictures:
        tell("looking at the model")
        views = model_views(model or load_for_pictures(folder.path), result, categories, sources)
    tell("drawing the map")
    on_map = image_map(result)
    table = confusion(result)
    also = {*on_map.images.tolist(), *(table.images() if table else ()), *(entry["image"] for entry in views.attention)}
    images = pictured_images(result, categories, also.union(*listed_images(result)))
    number = {image: i for i, image in enumerate(images)}
    shares = expected_shares(result, before, None if chosen else expected)  # other clusters have no expectation
    place = {index: i for i, index in enumerate(display_order(categories))}
    truths = table.truths() if table else {}
    second = second_choices(folder, edited)
    columns = image_facts(result, images, place, *second, truths, file_times(sources))
    data = page_data(result, categories, images, on_map, shares, columns)
    chart = count_chart(folder.estimate_file)
    plausible = None if chart is None else chart.band
    content: dict[str, Any] = {
        "generator": GENERATOR,
        "name": facts.get("data", {}).get("name") or folder.path.absolute().name,
        "expectation": opening,
        "is_calibrated": expected is not None,
        "mark": page_mark(count_edits(folder.path), model_pictures),
        "summary": in_words(result, categories, plausible),
        "categories": [categories[index] for index in place if categories[index].size],
        "n_to_check": len(labels_to_check(result)),
        "reliability": reliability_chart(before, bool(edits)),
        "n_images": sum(category.size for category in categories),
        "n_pictured": len(images),
        "n_on_map": len(on_map.images),
        "empty": [category.name for category in categories if category.size == 0],
        "count_chart": chart,
        "plausible": plausible,
        "training": training_charts(metrics),
        "scores": facts.get("scores", {}).get("unlabelled"),
        "confusion": table,
        "number": number,
        "place": place,
        "truths": truths,
        "names": result.names,
        "n_edits": len(edits),
        "counts": counts,
        "count": chosen[-1] if chosen else result.counts.n_own if isinstance(result.counts, KeptCounts) else None,
        "commands": page_commands(folder.path),
        "prompts": views.prompts,
        "facts": run_facts(folder.path, config, facts),
        "data": data
        | {
            "attention": [entry | {"image": number[entry["image"]]} for entry in views.attention],
            "plausible": plausible,
            "run": _run_data(folder, target),
        },
    }
    bare = render(**content, pictures=[], n_missing=0)
    room = max(LEAST_FOR_PICTURES, BUDGET - len(bare.encode("utf-8", "surrogatepass")) - 1_000)
    with bar("pictures", len(images)) as update:
        pictures = thumbnails([sources[i] for i in images], room, update)
    n_missing = sum(picture is None for picture in pictures)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(target, render(**content, pictures=pictures, n_missing=n_missing))
    return Report(result, categories, opening, target)


def _run_data(folder: RunFolder, target: Path) -> dict[str, Any]:
    """Return what the script needs to know of the run: an id, the state of its edits, and its commands.

    The id stays the same when the page is written again, and does not depend on the place of the run.
    """
    started = str(folder.facts().get("started", ""))
    log = folder.path / EDITS
    return {
        "id": _digest(folder.predictions_file.read_bytes() + started.encode()),
        "state": _digest(log.read_bytes() if log.is_file() else b""),
        "edits": count_edits(folder.path),
        "name": folder.path.absolute().name,
        "here": target.resolve() == (folder.path / PAGE).resolve(),
        "commands": COMMANDS,
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _target(folder: RunFolder, out: str | Path | None) -> Path:
    """Path of the page; a file that is not such a page is never replaced."""
    if out is None:
        return folder.path / PAGE
    target = Path(out)
    if target.is_dir():
        raise Misuse(f"{target} is a folder. Give the file to write with `out`, such as {target / PAGE}.")
    if target.suffix.lower() not in (".html", ".htm"):
        raise Misuse(f"{target} is not the name of a page. Give a file that ends in .html with `out`.")
    if target.exists() and GENERATOR.encode() not in target.read_bytes()[:2_000]:
        raise Misuse(f"{target} exists and is no report of sptnet. Give another file with `out`.")
    return target
