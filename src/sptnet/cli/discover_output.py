"""Texts that `sptnet discover` prints: the plan, and the result."""

from pathlib import Path
from typing import TYPE_CHECKING

from sptnet.cli.output import show_line
from sptnet.runtime.text import shell_line

if TYPE_CHECKING:
    from sptnet.data.load import SplitImages
    from sptnet.discovery.plan import Plan
    from sptnet.report.page.write import Report


def print_plan(plan: "Plan", data: "SplitImages") -> None:
    """Print the images, the plan with its reasons, and the expected time of each step."""
    from sptnet.runtime.compute import choose_compute
    from sptnet.runtime.progress import duration
    from sptnet.runtime.text import listed, printable

    config, split = plan.config, data.split
    aside = len(split.test) + len(split.holdout)
    known = f" of {split.n_known} known categories ({listed(split.known_classes)})" if split.n_known else ""
    show_line(
        f"images: {len(data.image_set):,} in {printable(data.image_set.name)}; "
        f"{len(split.labelled):,} labelled{known}, {len(split.unlabelled):,} unsorted"
        + (f", {aside:,} kept aside" if aside else "")
        + (
            f"; {data.n_skipped:,} {'duplicate' if data.n_skipped == 1 else 'duplicates'} left out"
            if data.n_skipped
            else ""
        )
    )
    show_line(f"backbone: {config.backbone.name}; device: {choose_compute(config.device, config.precision).device}")
    show_line("plan:")
    for reason in plan.reasons:
        show_line(f"  {reason}")
    width = max(len(step.what) for step in plan.steps)
    for step in plan.steps:
        show_line(f"  {step.what:<{width}}  about {duration(step.seconds)}")
    show_line(f"  {'in all':<{width}}  about {duration(plan.seconds)}", flush=True)


def print_result(run: Path, report: "Report", open_it: bool) -> None:
    """Print the categories and the commands that may follow."""
    import webbrowser

    from sptnet.cli.tables import print_categories, print_labels_to_check
    from sptnet.report.page.overview import least_sure, summary
    from sptnet.results.categories import labels_to_check

    result, described, page = report.result, report.categories, report.page
    print_categories(run, described)
    if report.expectation:
        unsure = len(least_sure(result)) if page is not None else 0
        show_line(f"{report.expectation}{f'; the report shows the {unsure} least sure' if unsure else ''}.")
    show_line(f"found: {summary(result, described)}")
    print_labels_to_check(len(labels_to_check(result)))
    if page is not None:
        show_line(f"report: {page}")
    show_line("next:")
    new = next((category.name for category in described if category.is_new and category.size), result.names[0])
    for words in (
        ["edit", str(run), "rename", *(["--"] if new.startswith("-") else []), new, "NAME"],
        ["edit", str(run), "confirm", "NAME"],
        ["discover", "--continue", str(run), "--out", f"{run}-2"],
        ["export", str(run), "--as", "links", "--to", f"{run}-sorted"],
    ):
        show_line(f"  {shell_line(['sptnet', *words])}")
    if page is not None and open_it and not webbrowser.open(page.absolute().as_uri()):
        show_line("no browser was found. Open the report by hand.")
