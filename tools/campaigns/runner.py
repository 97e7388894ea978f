"""Run campaigns: numbered cases, each repeatable by seed and number, within a time budget."""

import json
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar

from .workshop import Workshop


@dataclass(frozen=True)
class Verdict:
    """Result of one case: its kind, tags that are counted, and a problem, empty if there is none."""

    kind: str
    problem: str = ""
    tags: tuple[str, ...] = ()


class Campaign(ABC):
    """A numbered list of cases; a case depends on the seed and its number only."""

    name: ClassVar[str]
    share: ClassVar[float]
    """Share of the time budget; time that is left over goes to the campaigns after it."""

    def __init__(self, shop: Workshop, seed: int):
        self.shop, self.seed = shop, seed

    def size(self) -> int | None:
        """Return the number of cases; None if there is no end."""
        return None

    @abstractmethod
    def run(self, number: int) -> Verdict:
        """Run a case."""

    def close(self) -> None:  # noqa: B027
        """Release what the cases shared."""

    def random(self, number: int) -> random.Random:
        """Return the random numbers of a case."""
        return random.Random(f"{self.seed} {self.name} {number}")


@dataclass
class Summary:
    """Counts of a campaign."""

    name: str
    seed: int
    cases: int = 0
    seconds: float = 0.0
    tags: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, Verdict]] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The counts on one line."""
        tags = ", ".join(f"{count:,} {tag}" for tag, count in sorted(self.tags.items()))
        return (
            f"{self.name:<12} cases {self.cases:>6,}  failures {len(self.failures):>4,}  {self.seconds:>7.1f} s  "
            f"seed {self.seed}" + (f"  ({tags})" if tags else "")
        )

    @property
    def row(self) -> str:
        """The counts as a row of a Markdown table."""
        tags = ", ".join(f"{count:,} {tag}" for tag, count in sorted(self.tags.items()))
        return f"| {self.name} | {self.cases:,} | {tags} | {len(self.failures):,} | {self.seconds:,.0f} | {self.seed} |"


HEADER = "| campaign | cases | among them | failures | seconds | seed |\n|---|---|---|---|---|---|"
Write = Callable[[str], object]


def run_campaign(
    campaign: Campaign,
    seconds: float,
    cases: int | None = None,
    only: int | None = None,
    tell: Write = print,
    record: Write | None = None,
) -> Summary:
    """Run cases until the time is over, `cases` are done or there are no more; with `only`, run that case alone."""
    summary, began = Summary(campaign.name, campaign.seed), time.monotonic()
    numbers = iter((only,)) if only is not None else iter(range(_limit(cases, campaign.size())))
    try:
        for number in numbers:
            if summary.cases and time.monotonic() - began >= seconds:
                break
            start = time.monotonic()
            verdict = campaign.run(number)
            _count(summary, number, verdict)
            if verdict.problem:
                tell(f"{campaign.name} case {number} ({verdict.kind}): {verdict.problem}")
            if record is not None:
                took = round(time.monotonic() - start, 3)
                line = {"campaign": campaign.name, "seed": campaign.seed, "case": number, "seconds": took}
                record(json.dumps({**line, **asdict(verdict)}))
    finally:
        campaign.close()
        summary.seconds = time.monotonic() - began
    tell(summary.line)
    return summary


def _limit(cases: int | None, size: int | None) -> int:
    return min(10**9 if cases is None else cases, 10**9 if size is None else size)


def _count(summary: Summary, number: int, verdict: Verdict) -> None:
    summary.cases += 1
    summary.tags.update(verdict.tags)
    if verdict.problem:
        summary.failures.append((number, verdict))


def run_all(
    campaigns: Sequence[type[Campaign]],
    shop: Workshop,
    seed: int,
    seconds: float,
    cases: int | None = None,
    only: int | None = None,
    record: Write | None = None,
) -> list[Summary]:
    """Run campaigns one after the other; each gets its share of the time that is left."""
    end, summaries = time.monotonic() + seconds, []
    for position, kind in enumerate(campaigns):
        rest = sum(other.share for other in campaigns[position:])
        budget = max(0.0, end - time.monotonic()) * kind.share / rest
        summaries.append(run_campaign(kind(shop, seed), budget, cases, only, record=record))
    return summaries
