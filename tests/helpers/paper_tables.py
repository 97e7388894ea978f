"""Tables of the paper, typed from its text: every row with accuracies, and the recipe that repeats it."""

from collections.abc import Iterator
from typing import NamedTuple

GENERIC = ("cifar10", "cifar100", "imagenet100")
FINE_GRAINED = ("cub", "cars", "aircraft", "herbarium19")

# All, Old and New per data set; a dash where the paper prints one.
TABLE_2 = """
kmeans     83.6 85.7 82.5   52.0 52.2 50.8   72.7 75.5 71.3
rankstats  46.8 19.2 60.5   58.2 77.6 19.3   37.1 61.6 24.8
uno        68.6 98.3 53.8   69.5 80.6 47.2   70.3 95.0 57.9
gcd        91.5 97.9 88.2   73.0 76.2 66.5   74.1 89.8 66.3
orca       96.9 95.1 97.8   74.2 82.1 67.2   79.2 93.2 72.1
simgcd     97.1 95.1 98.1   80.1 81.2 77.8   83.0 93.1 77.9
dccl       96.3 96.5 96.9   75.3 76.8 70.2   80.5 90.5 76.2
promptcal  97.9 96.6 98.5   81.2 84.2 75.3   83.1 92.7 78.3
sptnet     97.3 95.0 98.6   81.3 84.3 75.6   85.4 93.2 81.4
"""
TABLE_3 = """
kmeans     34.3 38.9 32.1   12.8 10.6 13.8   12.9 12.9 12.8   13.0 12.2 13.4
rankstats  33.3 51.6 24.2   28.3 61.8 12.1   27.9 55.8 12.8   27.9 55.8 12.8
uno        35.1 49.0 28.1   35.5 70.5 18.6   28.3 53.7 14.7   28.3 53.7 14.7
gcd        51.3 56.6 48.7   39.0 57.6 29.9   45.0 41.1 46.9   35.4 51.0 27.0
orca       36.3 43.8 32.6   31.9 42.2 26.9   31.6 32.0 31.4   20.9 30.9 15.5
simgcd     60.3 65.6 57.7   53.8 71.9 45.0   54.2 59.1 51.8   43.0 58.0 35.1
dccl       63.5 60.8 64.9   43.1 55.7 36.2   -    -    -      -    -    -
promptcal  62.9 64.4 62.1   50.2 70.1 40.6   52.2 52.2 52.3   37.0 52.0 28.9
sptnet     65.8 68.8 65.1   59.0 79.2 49.3   59.3 61.8 58.1   43.4 58.7 35.2
"""
TABLE_5 = """
fine-tune    84.3 93.1 79.7
end-to-end   84.1 92.8 80.0
data-first   83.5 92.9 77.7
model-first  84.8 93.3 80.6
alternate    85.4 93.2 81.4
"""
TABLE_8 = """
simgcd     97.1 95.1 98.1   80.1 81.2 77.8   83.0 93.1 77.9
sptnet-p   97.5 95.2 98.5   82.0 85.5 75.0   85.5 93.9 81.2
sptnet-s   97.5 95.9 98.3   81.0 83.8 75.4   85.5 94.1 81.2
sptnet     97.3 95.0 98.6   81.3 84.3 75.6   85.4 93.2 81.4
"""
TABLE_9 = """
simgcd     60.3 65.6 57.7   53.8 71.9 45.0   54.2 59.1 51.8   43.0 58.0 35.1
sptnet-p   64.6 70.5 61.6   55.6 74.4 46.5   57.2 60.6 55.5   43.3 58.0 35.5
sptnet-s   65.0 69.1 62.9   60.1 75.3 52.8   56.3 61.4 53.8   43.4 58.6 35.2
sptnet     65.8 68.8 65.1   59.0 79.2 49.3   59.3 61.8 58.1   43.4 58.7 35.2
"""
TABLE_10 = """
simgcd           60.3 65.6 57.7   83.0 93.1 77.9
sptnet-p         64.6 70.5 61.6   85.5 93.9 81.2
sptnet-s         65.0 69.1 62.9   85.5 94.1 81.2
sptnet           65.8 68.8 65.1   85.4 93.2 81.4
simgcd-dinov2    74.9 78.5 73.1   88.5 96.2 84.6
sptnet-p-dinov2  75.5 79.0 74.3   90.5 96.3 87.5
sptnet-s-dinov2  75.0 78.3 73.4   90.6 96.4 87.6
sptnet-dinov2    76.3 79.5 74.6   90.1 96.1 87.1
"""
TABLE_11 = """
rankstats  34.1 61.9 19.7   29.7 49.7  9.6   14.3 25.5  5.5
uno        44.2 72.2 29.7   30.1 45.1 17.2   14.0 23.4  7.4
orca       31.9 49.8 23.5   28.7 38.5  7.1   10.4 19.5  8.1
gcd        47.3 53.6 44.1   32.9 41.8 23.0   15.2 22.0 11.1
simgcd     61.3 77.8 52.9   34.5 35.6 33.5   16.7 22.5 12.2
sptnet     63.1 75.9 56.4   39.2 43.1 35.2   17.4 22.2 13.6
"""
TABLE_12 = """
simgcd              60.3 65.6 57.7   83.0 93.1 77.9
sptnet-p            64.6 70.5 61.6   85.5 93.9 81.2
simgcd-estimated    61.0 66.0 58.6   81.1 90.9 76.1
sptnet-p-estimated  65.2 71.0 62.3   83.4 91.8 74.6
"""

# Table 13: All and seconds per epoch of training, on ImageNet-100 and on the Semantic Shift Benchmark.
TABLE_13 = {
    "gcd": (74.1, 803, 51.3, 58),
    "simgcd": (83.0, 847, 56.1, 64),
    "promptcal": (83.1, 1817, 55.1, 492),
    "sptnet": (85.4, 483, 61.4, 32),
}

# Numbers of other papers, for systems without a row: GPC's own paper, and SEAL for muGCD.
ELSEWHERE = {
    "cub/gpc": (52.0, 55.5, 47.5),
    "cars/gpc": (38.2, 58.9, 27.4),
    "aircraft/gpc": (43.3, 40.7, 44.8),
    "cifar10/gpc": (90.6, 97.6, 87.0),
    "cifar100/gpc": (75.4, 84.6, 60.1),
    "imagenet100/gpc": (75.3, 93.4, 66.7),
    "cub/mugcd": (65.7, 68.0, 64.6),
    "cars/mugcd": (56.5, 68.1, 50.9),
    "aircraft/mugcd": (53.8, 55.4, 53.0),
    "herbarium19/mugcd": (45.8, 61.9, 37.2),
}


class Cell(NamedTuple):
    """Numbers that a table prints for a method on a data set; None for a dash."""

    table: int
    recipe: str
    numbers: tuple[float, ...] | None


def parse(text: str) -> dict[str, list[tuple[float, ...] | None]]:
    """Triples of numbers by row."""
    rows = {}
    for name, *cells in map(str.split, text.strip().splitlines()):
        triples = [cells[i : i + 3] for i in range(0, len(cells), 3)]
        rows[name] = [None if "-" in triple else tuple(map(float, triple)) for triple in triples]
    return rows


def printed_cells() -> Iterator[Cell]:
    """Every cell of the tables that has a data set of its own; Table 11 with the domain real only."""
    both = ("cub", "imagenet100")
    of_sets = ((2, TABLE_2, GENERIC), (3, TABLE_3, FINE_GRAINED), (8, TABLE_8, GENERIC), (9, TABLE_9, FINE_GRAINED),
               (10, TABLE_10, both), (12, TABLE_12, both))  # fmt: skip
    for number, text, sources in of_sets:
        for method, triples in parse(text).items():
            for source, numbers in zip(sources, triples, strict=True):
                yield Cell(number, f"{source}/{method}", numbers)
    for strategy, (numbers,) in parse(TABLE_5).items():
        yield Cell(5, f"ablation/strategy-{strategy}-imagenet100", numbers)
    for method, (real, _, _) in parse(TABLE_11).items():
        yield Cell(11, f"domainnet/{method}", real)
