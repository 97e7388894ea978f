"""`sptnet check`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sptnet.cli.output import show_line
from sptnet.runtime.text import shell_line

if TYPE_CHECKING:
    from sptnet.data.check.findings import Finding
    from sptnet.data.check.folder_check import FolderCheck
    from sptnet.discovery.plan import Plan

MOST_ROWS = 50
MOST_EXAMPLES = 10
TRAINING_FLAGS = {"settings": "--set"}
"""Findings name settings of `sptnet train`."""


def check(
    folder: Annotated[Path, typer.Argument(help="Folder of images; sub-folders name known categories.")],
    labels: Annotated[Path | None, typer.Option(help="CSV of path,label instead of sub-folder names.")] = None,
    unlabelled: Annotated[str, typer.Option(help="Sub-folder that holds the unsorted images.")] = "unlabelled",
    backbone: Annotated[str, typer.Option(help="For the time: timm name, or auto for DINO ViT-B/16.")] = "auto",
    minutes: Annotated[float | None, typer.Option(help="For the time: 30 on a CPU, 240 on a GPU if not given.")] = None,
    no_time: Annotated[bool, typer.Option("--no-time", help="Skip the estimate of the time.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check a folder before training: unreadable images, duplicates, images too small or too few.

    Exits with 0 if the folder is ready for training, else with 1. Your images are only read.
    """
    from dataclasses import asdict, replace

    from sptnet.cli.flags import with_flags
    from sptnet.data.check.findings import can_train, findings_of
    from sptnet.data.check.folder_check import check_folder
    from sptnet.discovery.preview import preview_plan

    checked = check_folder(folder, labels, unlabelled)
    findings = [replace(f, sentence=with_flags(f.sentence, TRAINING_FLAGS)) for f in findings_of(checked)]
    good = can_train(findings)
    with_time = good and checked.unsorted > 0 and not no_time
    plan = preview_plan(folder, labels, unlabelled, backbone, minutes) if with_time else None
    if as_json:
        described = [{"about": f.about, "sentence": f.sentence, "stops": f.stops} for f in findings]
        time = None if plan is None else {"method": plan.config.method, "seconds": round(plan.seconds)}
        show_line(json.dumps({**asdict(checked), "findings": described, "can_train": good, "time": time}))
    else:
        _show(checked, findings)
        show_line("ready for training" if good else "not ready for training")
        if plan is not None:
            _show_time(plan, folder)
    if not good:
        raise typer.Exit(1)


def _show_time(plan: "Plan", folder: Path) -> None:
    from sptnet.methods import NAMES
    from sptnet.runtime.progress import duration

    show_line(
        f"time: {NAMES[plan.config.method]} with {plan.config.backbone.name} takes about {duration(plan.seconds)} here"
    )
    show_line(f"the whole plan: {shell_line(['sptnet', 'discover', str(folder), '--dry-run'])}")


def _show(checked: "FolderCheck", findings: "list[Finding]") -> None:
    from sptnet.cli.tables import print_table

    title = f"{checked.images:,} images" + (f", {len(checked.unreadable):,} unreadable" if checked.unreadable else "")
    print_table(title, ["category", "labelled", "unsorted", "test"], table_rows(checked))
    if checked.others or checked.hidden:
        show_line(f"ignored: {checked.others:,} files that are no images, {checked.hidden:,} hidden names")
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
