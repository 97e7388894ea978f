"""Output of `sptnet discover`: the plan, and the result, as text or as JSON objects."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sptnet.cli.output import show_line
from sptnet.runtime.progress import Say
from sptnet.runtime.text import shell_line

if TYPE_CHECKING:
    from sptnet.data.load import SplitImages
    from sptnet.discovery.discover import Discovery
    from sptnet.discovery.plan import Plan
    from sptnet.report.page.write import Report


def print_plan(plan: "Plan", data: "SplitImages", show: Say = show_line) -> None:
    """Show the images, the plan with its reasons, and the expected time of each step."""
    from sptnet.runtime.compute import choose_compute
    from sptnet.runtime.progress import duration
    from sptnet.runtime.text import listed, printable

    config, split = plan.config, data.split
    aside = len(split.test) + len(split.holdout)
    noun = "category" if split.n_known == 1 else "categories"
    known = f" of {split.n_known} known {noun} ({listed(split.known_classes)})" if split.n_known else ""
    show(
        f"images: {len(data.image_set):,} in {printable(data.image_set.name)}; "
        f"{len(split.labelled):,} labelled{known}, {len(split.unlabelled):,} unsorted"
        + (f", {aside:,} kept aside" if aside else "")
        + (
            f"; {data.n_skipped:,} {'duplicate' if data.n_skipped == 1 else 'duplicates'} left out"
            if data.n_skipped
            else ""
        )
    )
    show(f"backbone: {config.backbone.name}; device: {choose_compute(config.device, config.precision).device}")
    show("plan:")
    for reason in plan.reasons:
        show(f"  {reason}")
    width = max(len(step.what) for step in plan.steps)
    for step in plan.steps:
        show(f"  {step.what:<{width}}  about {duration(step.seconds)}")
    show(f"  {'in all':<{width}}  about {duration(plan.seconds)}")


def plan_of_discovery(discovery: "Discovery", refusal: str | None) -> dict[str, Any]:
    """Return the object of `discover --dry-run --json`; `refusal` is the reason why the run cannot be written."""
    from sptnet.cli.json_objects import plan_object
    from sptnet.runtime.compute import choose_compute

    config, split = discovery.plan.config, discovery.images.split
    return {
        "run": discovery.run.path,
        "images": len(discovery.images.image_set),
        "labelled": len(split.labelled),
        "unsorted": len(split.unlabelled),
        "kept_aside": len(split.test) + len(split.holdout),
        "known_categories": list(split.known_classes),
        "backbone": config.backbone.name,
        "device": str(choose_compute(config.device, config.precision).device),
        "plan": plan_object(discovery.plan),
        "refusal": refusal,
    }


def result_of_discovery(run: Path, report: "Report") -> dict[str, Any]:
    """Return the object of `discover --json`."""
    from sptnet.cli.json_objects import categories_object, run_object

    found = categories_object(report.result, report.categories)
    return {**run_object(run), **found, "page": report.page, "next": next_commands(run, report)}


def next_commands(run: Path, report: "Report") -> list[str]:
    """Return the commands that may follow a discovery."""
    new = next((category.name for category in report.categories if category.is_new and category.size), None)
    words = (
        *([["edit", str(run), "rename", *(["--"] if new.startswith("-") else []), new, "NAME"]] if new else []),
        ["edit", str(run), "confirm", "NAME"],
        ["discover", "--continue", str(run), "--out", f"{run}-2"],
        ["export", str(run), "--as", "links", "--to", f"{run}-sorted"],
    )
    return [shell_line(["sptnet", *line]) for line in words]


def print_result(run: Path, report: "Report") -> None:
    """Print the categories and the commands that may follow."""
    from sptnet.cli.tables import print_categories, print_labels_to_check
    from sptnet.report.page.overview import least_sure, summary
    from sptnet.results.categories import labels_to_check

    result, described, page = report.result, report.categories, report.page
    print_categories(run, described)
    if report.expectation:
        unsure = len(least_sure(result)) if page is not None else 0
        show_line(f"{report.expectation}{f'; the report shows the {unsure} least sure' if unsure else ''}.")
    show_line(f"found: {summary(result, described)}")
    print_labels_to_check(len(labels_to_check(result)), page is not None)
    if page is not None:
        show_line(f"report: {page}")
    show_line("next:")
    for command in next_commands(run, report):
        show_line(f"  {command}")
