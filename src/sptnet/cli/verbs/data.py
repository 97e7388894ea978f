"""`sptnet data`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sptnet.cli import completion
from sptnet.cli.options import JSON
from sptnet.cli.output import show_json, show_line

if TYPE_CHECKING:
    from sptnet.data.benchmarks.counts import CountRow

OTHER_SOURCES = ("folder", "domains", "digits")
"""Sources that are no benchmarks."""


def data(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A benchmark, or folder, domains or digits; all benchmarks if not given.",
            autocompletion=completion.benchmarks,
        ),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Folder of the data set.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch it into --data first.")] = False,
    known_classes: Annotated[int | None, typer.Option(min=1, help="Number of known classes.")] = None,
    labelled_share: Annotated[float, typer.Option(help="Share of their images that have a label.")] = 0.5,
    split_seed: Annotated[int, typer.Option(min=0, help="Seed of the draw of labelled images.")] = 0,
    split_out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the split as JSON.")] = None,
    labelled_domain: Annotated[str | None, typer.Option(help="The labelled domain of a folder of domains.")] = None,
    unlabelled_domain: Annotated[
        list[str] | None, typer.Option(help="A domain trained on without labels; may be repeated.")
    ] = None,
    check_images: Annotated[bool, typer.Option("--check-images", help="Decode every image.")] = False,
    as_json: JSON = False,
) -> None:
    """Count a data set, compare with the published numbers, and show or write its split."""
    from sptnet.cli.tables import print_table
    from sptnet.config import DataSettings
    from sptnet.data.benchmarks import find_benchmark, find_download
    from sptnet.data.benchmarks.counts import count_rows, expectations, refuse_differences
    from sptnet.data.load import read_image_set
    from sptnet.data.readable import refuse_unreadable
    from sptnet.data.split import make_split
    from sptnet.data.split_file import write_split
    from sptnet.errors import Misuse
    from sptnet.runtime.files import check_new_file
    from sptnet.runtime.progress import tracker

    if name is None:
        _list_benchmarks(as_json)
        return
    if split_out is not None:
        check_new_file(split_out, "split_out")
    benchmark = None if name in OTHER_SOURCES else find_benchmark(name, others=OTHER_SOURCES)
    _check_options(name, folder, download, labelled_domain, unlabelled_domain)
    if download:
        fetch = find_download(name)
        if folder is None:
            raise Misuse("where to? Give a folder with --data DIR.")
        fetch(folder)
    source: Any = name
    image_set = read_image_set(
        DataSettings(
            source=source,
            folder=folder and str(folder),
            labelled_domain=labelled_domain,
            unlabelled_domains=unlabelled_domain or [],
            check_counts=False,
        )
    )
    if check_images:
        refuse_unreadable(image_set, tracker("reading images"))
    default = benchmark.n_known if benchmark is not None else 5 if name == "digits" else None
    if image_set.given is None and known_classes is None and default is None:
        raise Misuse("every image has a label, so any class could be known. Say how many are with --known-classes N.")
    domain = labelled_domain if benchmark is None else benchmark.labelled_domain
    split = make_split(image_set, known_classes or default, labelled_share, split_seed, labelled_domain=domain)
    published = known_classes in (None, default) and labelled_share == 0.5 and split_seed == 0
    rows = count_rows(image_set, split, expectations(benchmark, published) if benchmark is not None else {})
    title = benchmark.title if benchmark is not None else image_set.name
    if not as_json:
        columns = ["", "found", "expected"][: 3 if benchmark is not None else 2]
        table = [[row.what, f"{row.found:,}", "-" if row.expected is None else str(row.expected)] for row in rows]
        print_table(title, columns, [row[: len(columns)] for row in table])
    if benchmark is not None:
        refuse_differences(rows, benchmark)
    if split_out is not None:
        write_split(split, image_set, split_out)
    if as_json:
        show_json({"name": name, "title": title, "counts": list(map(_count_object, rows)), "split": split_out})
    elif split_out is not None:
        show_line(f"split: {split_out}")


def _count_object(row: "CountRow") -> dict[str, Any]:
    expected = None if row.expected is None else {"value": row.expected.value, "rounded_to": row.expected.step or 1}
    return {"what": row.what.strip(), "found": row.found, "expected": expected}


def _list_benchmarks(as_json: bool) -> None:
    from sptnet.cli.tables import print_table
    from sptnet.data.benchmarks import BENCHMARKS

    listed = [
        {
            "name": benchmark.name,
            "title": benchmark.title,
            "known_classes": benchmark.n_known,
            "new_classes": benchmark.expected.classes - benchmark.n_known,
            "download": benchmark.download is not None,
        }
        for benchmark in BENCHMARKS.values()
    ]
    if as_json:
        show_json({"benchmarks": listed})
        return
    rows = [[*map(str, list(entry.values())[:-1]), "yes" if entry["download"] else "no"] for entry in listed]
    print_table("data sets", ["name", "title", "known classes", "new classes", "--download"], rows, lefts=2)
    show_line("count one with: sptnet data NAME --data DIR")


def _check_options(
    name: str, folder: Path | None, download: bool, labelled_domain: str | None, unlabelled_domain: list[str] | None
) -> None:
    """Refuse options that do not go with the source."""
    from sptnet.errors import Misuse

    if name != "domains" and (labelled_domain or unlabelled_domain):
        raise Misuse(f"{name} takes no domains. Leave --labelled-domain and --unlabelled-domain out.")
    if download and name in OTHER_SOURCES:
        raise Misuse(f"{name} cannot be downloaded. Leave --download out.")
    if name == "digits":
        if folder is not None:
            raise Misuse("the digits come with the package. Leave --data out.")
    elif folder is None and not download:
        raise Misuse(f"where is {name}? Give its folder with --data DIR.")
    if name == "domains" and labelled_domain is None:
        raise Misuse("which domain has the labels? Name it with --labelled-domain, others with --unlabelled-domain.")
