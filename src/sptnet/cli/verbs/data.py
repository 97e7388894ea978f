"""`sptnet data`."""

from pathlib import Path
from typing import Annotated, Any

import typer

OWN = ("folder", "domains", "digits")


def data(
    name: Annotated[
        str | None, typer.Argument(help="A benchmark, or folder, domains or digits; all benchmarks if not given.")
    ] = None,
    folder: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Where the data set is.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch it into --data first.")] = False,
    known_classes: Annotated[int | None, typer.Option(min=1, help="How many classes are known.")] = None,
    labelled_share: Annotated[float, typer.Option(help="Share of their images that have a label.")] = 0.5,
    split_seed: Annotated[int, typer.Option(min=0, help="Seed of the draw of labelled images.")] = 0,
    split_out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the split as JSON.")] = None,
    labelled_domain: Annotated[str | None, typer.Option(help="Of a folder of domains, the one with labels.")] = None,
    unlabelled_domain: Annotated[
        list[str] | None, typer.Option(help="A domain trained on without labels; may be repeated.")
    ] = None,
    check_images: Annotated[bool, typer.Option("--check-images", help="Decode every image.")] = False,
) -> None:
    """Count a data set, compare with what it should hold, and show or write its split."""
    from sptnet.cli.tables import print_table
    from sptnet.data.benchmarks import find_benchmark
    from sptnet.data.benchmarks.counts import count_rows, expectations, refuse_differences
    from sptnet.data.split import make_split
    from sptnet.data.split_file import write_split
    from sptnet.errors import Misuse
    from sptnet.runtime.files import check_new_file

    if name is None:
        list_benchmarks()
        return
    if split_out is not None:
        check_new_file(split_out, "split_out")
    benchmark = None if name in OWN else find_benchmark(name, others=OWN)
    if name != "domains" and (labelled_domain or unlabelled_domain):
        raise Misuse(f"{name} takes no domains. Leave --labelled-domain and --unlabelled-domain out.")
    if download:
        fetch(benchmark, name, folder)
    image_set = read(benchmark, name, folder, labelled_domain, unlabelled_domain or [])
    if check_images:
        refuse_unreadable(image_set)
    default = benchmark.n_known if benchmark is not None else 5 if name == "digits" else None
    if image_set.given is None and known_classes is None and default is None:
        raise Misuse("every image has a label, so any class could be known. Say how many are with --known-classes N.")
    domain = labelled_domain if benchmark is None else benchmark.labelled_domain
    split = make_split(image_set, known_classes or default, labelled_share, split_seed, labelled_domain=domain)
    published = known_classes in (None, default) and labelled_share == 0.5 and split_seed == 0
    rows = count_rows(image_set, split, expectations(benchmark, published) if benchmark is not None else {})
    columns = ["", "found", "expected"][: 3 if benchmark is not None else 2]
    table = [[row.what, f"{row.found:,}", "-" if row.expected is None else str(row.expected)] for row in rows]
    print_table(
        benchmark.title if benchmark is not None else image_set.name, columns, [row[: len(columns)] for row in table]
    )
    if benchmark is not None:
        refuse_differences(rows, benchmark)
    if split_out is not None:
        write_split(split, image_set, split_out)
        print(f"split: {split_out}")


def list_benchmarks() -> None:
    from sptnet.cli.tables import print_table
    from sptnet.data.benchmarks import BENCHMARKS

    rows = [
        [
            benchmark.name,
            benchmark.title,
            str(benchmark.n_known),
            str(benchmark.expected.classes - benchmark.n_known),
            "yes" if benchmark.download else "no",
        ]
        for benchmark in BENCHMARKS.values()
    ]
    print_table("data sets", ["name", "title", "known classes", "new classes", "--download"], rows, lefts=2)
    print("count one with: sptnet data NAME --data DIR")


def fetch(benchmark: Any, name: str, folder: Path | None) -> None:
    from sptnet.errors import Misuse

    if benchmark is None:
        raise Misuse(f"{name} is nothing to download. Leave --download out.")
    if benchmark.download is None:
        raise Misuse(f"{name} cannot be downloaded from here. {benchmark.where}")
    if folder is None:
        raise Misuse("where to? Give a folder with --data DIR.")
    benchmark.download(folder)


def read(benchmark: Any, name: str, folder: Path | None, labelled: str | None, unlabelled: list[str]) -> Any:
    """The pile by name, without decoding any image."""
    from sptnet.data.benchmarks.digits import digits
    from sptnet.data.benchmarks.domains import read_domains
    from sptnet.data.folder import read_folder
    from sptnet.errors import Misuse

    if name == "digits":
        if folder is not None:
            raise Misuse("the digits come with the package. Leave --data out.")
        return digits()
    if folder is None:
        raise Misuse(f"where is {name}? Give its folder with --data DIR.")
    if benchmark is not None:
        return benchmark.read(folder)
    if name == "folder":
        return read_folder(folder)
    if labelled is None:
        raise Misuse("which domain has the labels? Name it with --labelled-domain, others with --unlabelled-domain.")
    return read_domains(folder, labelled, unlabelled)


def refuse_unreadable(image_set: Any) -> None:
    """Names the images that cannot be decoded."""
    from sptnet.data.readable import drop_unreadable
    from sptnet.errors import Failure
    from sptnet.runtime.progress import tracker
    from sptnet.runtime.text import count, first_three, printable

    _, problems = drop_unreadable(image_set, 1.0, tracker("reading images"))
    if problems:
        named = first_three([f"{printable(problem.name)} ({problem.reason})" for problem in problems])
        raise Failure(
            f"{count(problems, 'image')} of {len(image_set):,} cannot be read: {named}. "
            "Fetch the data set again, or repair these images."
        )
