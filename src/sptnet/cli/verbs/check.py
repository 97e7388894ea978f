"""`sptnet check`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sptnet.cli.options import (
    BACKBONE,
    CATEGORIES,
    DEVICE,
    EPOCHS,
    JSON,
    LABELS,
    METHOD,
    MINUTES,
    NO_FOLDER_LABELS,
    NO_REPORT,
    SEED,
    SETTING,
    SKIP_DUPLICATES,
    SKIP_UNREADABLE,
    UNLABELLED,
    WEIGHTS,
    discovery_settings,
)
from sptnet.cli.output import show_json, show_line
from sptnet.runtime.text import shell_line

if TYPE_CHECKING:
    from sptnet.data.check.findings import Finding
    from sptnet.data.check.folder_check import FolderCheck

MOST_ROWS = 50
MOST_EXAMPLES = 10
OWN_FLAGS = ("--no-time", "--json")


def check(
    folder: Annotated[Path, typer.Argument(help="Folder of images; sub-folders name known categories.")],
    labels: LABELS = None,
    unlabelled: UNLABELLED = None,
    no_folder_labels: NO_FOLDER_LABELS = False,
    skip_unreadable: SKIP_UNREADABLE = False,
    skip_duplicates: SKIP_DUPLICATES = False,
    categories: CATEGORIES = None,
    method: METHOD = None,
    minutes: MINUTES = None,
    epochs: EPOCHS = None,
    backbone: BACKBONE = None,
    weights: WEIGHTS = None,
    device: DEVICE = None,
    seed: SEED = None,
    settings: SETTING = None,
    no_report: NO_REPORT = False,
    no_time: Annotated[bool, typer.Option("--no-time", help="Skip the plan and its times.")] = False,
    as_json: JSON = False,
) -> None:
    """Check a folder before `discover`: unreadable images, duplicates, images too small or too few; and its plan.

    It takes the options of `discover` and says no to what `discover` would refuse. Exits with 0 if the folder is ready
    for training, else with 1. Your images are only read, and nothing is downloaded.
    """
    from dataclasses import asdict, replace

    from sptnet.cli.discover_output import print_plan
    from sptnet.cli.json_objects import plan_object
    from sptnet.discovery.discover import Wishes
    from sptnet.discovery.preview import preview_discovery
    from sptnet.runtime import progress

    changes = discovery_settings(
        folder=folder,
        labels=labels,
        unlabelled=unlabelled,
        no_folder_labels=no_folder_labels,
        skip_unreadable=skip_unreadable,
        skip_duplicates=skip_duplicates,
        categories=categories,
        epochs=epochs,
        backbone=backbone,
        weights=weights,
        device=device,
        seed=seed,
        settings=settings,
    )
    wishes = Wishes(None if method == "auto" else method, minutes, frozenset(changes), not no_report)
    preview = preview_discovery(changes, wishes, timed=not no_time)
    checked, discovery = replace(preview.checked, folder=str(folder)), preview.discovery
    findings = [replace(finding, sentence=progress.spell(finding.sentence)) for finding in preview.findings]
    if as_json:
        described = [{"about": f.about, "sentence": f.sentence, "stops": f.stops} for f in findings]
        time = None if discovery is None else plan_object(discovery.plan)
        show_json({**asdict(checked), "findings": described, "can_train": preview.possible, "time": time})
    else:
        _show(checked, findings)
        show_line("ready for training" if preview.possible else "not ready for training")
        if discovery is not None:
            print_plan(discovery.plan, discovery.images)
            words = [word for word in sys.argv[2:] if word not in OWN_FLAGS]
            show_line(f"begin with: {shell_line(['sptnet', 'discover', *words])}")
    if not preview.possible:
        raise typer.Exit(1)


def _show(checked: "FolderCheck", findings: "list[Finding]") -> None:
    from sptnet.cli.tables import print_table

    title = f"{checked.images:,} images" + (f", {len(checked.unreadable):,} unreadable" if checked.unreadable else "")
    print_table(title, ["category", "labelled", "unsorted", "test"], table_rows(checked))
    if checked.others or checked.hidden:
        files = "1 file that is no image" if checked.others == 1 else f"{checked.others:,} files that are no images"
        show_line(f"ignored: {files}, {checked.hidden:,} hidden {'name' if checked.hidden == 1 else 'names'}")
    show_line(f"device: {checked.device} ({checked.precision})")
    for finding in findings:
        show_line(f"- {finding.sentence}")
        for example in finding.examples[:MOST_EXAMPLES]:
            show_line(f"    {example}")
        if len(finding.examples) > MOST_EXAMPLES:
            show_line(f"    and {len(finding.examples) - MOST_EXAMPLES:,} more")
    if not findings:
        show_line("no problems found")


def table_rows(checked: "FolderCheck") -> list[list[str]]:
    """Rows per category with counts of labelled, unsorted and test images; sums at the end."""
    from sptnet.runtime.text import printable

    counts = [[printable(c.name), f"{c.labelled:,}", "", f"{c.test:,}"] for c in checked.categories[:MOST_ROWS]]
    rest = checked.categories[MOST_ROWS:]
    if rest:
        labelled, test = sum(c.labelled for c in rest), sum(c.test for c in rest)
        counts.append([f"({len(rest):,} more categories)", f"{labelled:,}", "", f"{test:,}"])
    labelled, test = sum(c.labelled for c in checked.categories), sum(c.test for c in checked.categories)
    return [
        *counts,
        ["(unsorted)", "", f"{checked.unsorted:,}", f"{checked.unsorted_test:,}"],
        ["(all)", f"{labelled:,}", f"{checked.unsorted:,}", f"{test + checked.unsorted_test:,}"],
    ]
