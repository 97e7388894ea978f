"""Print the tables of docs/results.md that `systems.py` measures, from its lines.

    python benchmarks/systems_tables.py benchmarks/results/systems.jsonl
    python benchmarks/systems_tables.py benchmarks/results/systems.jsonl --table a --difference simgcd sskmeans

A row has mean and standard deviation over its seeds. Means and differences over several sets use the pairs of set and
seed that all of the compared rows have; a difference has the standard error of the paired differences.
"""

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

NAMES = {
    "kmeans": "k-means",
    "sskmeans": "semi-supervised k-means",
    "gcd": "GCD",
    "simgcd": "SimGCD",
    "rankstats": "RankStats+",
    "uno": "UNO+",
    "orca": "ORCA",
    "dccl": "DCCL",
    "cipr": "CiPR",
    "gpc": "GPC",
    "mugcd": "muGCD",
    "discover": "SimGCD as `discover` trains it",
    "by-default": "`discover`, its own choice",
    "fine-tuned": "further fine-tuning",
    "sptnet-s": "SPTNet-S",
    "sptnet-p": "SPTNet-P",
    "sptnet": "SPTNet",
    "promptcal": "PromptCAL",
}
"""Names of the rows in the order of the tables."""
Line = dict[str, Any]
Pair = tuple[str, int]


def read_lines(file: Path) -> list[Line]:
    """Read one line per run."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def rows_of(lines: list[Line]) -> list[str]:
    """Rows that have lines, in the order of the tables."""
    return [row for row in NAMES if any(line["row"] == row for line in lines)]


def spread(values: list[float]) -> str:
    """Mean and standard deviation in per cent; the value alone if there is one."""
    deviation = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{deviation}"


def print_table(lines: list[Line], name: str) -> None:
    """Print the table of one set: All, Old, New, All of each seed, and median seconds."""
    seeds = sorted({line["seed"] for line in lines})
    print(f"\n| {name} | All | Old | New | All of seeds {', '.join(map(str, seeds))} | seconds |")
    print("|---|---|---|---|---|---|")
    for row in rows_of(lines):
        mine = {line["seed"]: line for line in lines if line["row"] == row}
        scores = [spread([line[key] for line in mine.values()]) for key in ("all", "old", "new")]
        each = ", ".join(f"{100 * mine[seed]['all']:.1f}" if seed in mine else "-" for seed in seeds)
        seconds = statistics.median(line["seconds"] for line in mine.values())
        print(f"| {NAMES[row]} | {' | '.join(scores)} | {each} | {seconds:.0f} |")


def all_of(lines: list[Line], row: str) -> dict[Pair, float]:
    """All of a row in per cent by set and seed."""
    return {(line["set"], line["seed"]): 100 * line["all"] for line in lines if line["row"] == row}


def print_means(lines: list[Line]) -> None:
    """Print the mean of All of each row over the pairs of set and seed that every row has, the highest first."""
    found = {row: all_of(lines, row) for row in rows_of(lines)}
    common = set.intersection(*(set(values) for values in found.values()))
    print(f"\nMeans of All over {len(common)} pairs of set and seed:")
    means = {row: statistics.mean(values[pair] for pair in common) for row, values in found.items()}
    for row in sorted(means, key=lambda row: -means[row]):
        print(f"  {NAMES[row]} {means[row]:.1f}")


def print_difference(lines: list[Line], row: str, other: str) -> None:
    """Print the mean difference of All between two rows with its standard error, overall and per set."""
    one, two = all_of(lines, row), all_of(lines, other)
    pairs = sorted(set(one) & set(two))
    print(f"\n{NAMES[row]} against {NAMES[other]}:")
    for name in ["all sets", *sorted({pair[0] for pair in pairs})]:
        values = [one[pair] - two[pair] for pair in pairs if name in ("all sets", pair[0])]
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        each = "" if name == "all sets" else f": {', '.join(f'{value:+.1f}' for value in values)}"
        print(f"  {name}: {statistics.mean(values):+.1f} ({error:.1f}) of {len(values)}{each}")


def main() -> None:
    """Print all tables, or what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="file of lines that systems.py wrote")
    parser.add_argument("--table", choices=("a", "b"), help="one table alone")
    parser.add_argument("--difference", nargs=2, choices=sorted(NAMES), metavar=("ROW", "ROW"), help="compare two rows")
    given = parser.parse_args()
    lines = read_lines(given.results)
    for table in (given.table,) if given.table else ("a", "b"):
        mine = [line for line in lines if line["table"] == table]
        if given.difference:
            print_difference(mine, *given.difference)
            continue
        for name in dict.fromkeys(line["set"] for line in mine):
            print_table([line for line in mine if line["set"] == name], name)
        print_means(mine)


if __name__ == "__main__":
    main()
