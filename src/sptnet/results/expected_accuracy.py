"""Share of the unsorted images that should be in the right category, with a range."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class ExpectedAccuracy:
    """Expected share of right images from 0 to 1, and the 90 % range around it."""

    value: float
    low: float
    high: float
    categories: Mapping[str, float] = field(default_factory=dict)
    """Expected share per category that has unsorted images."""

    def as_dict(self) -> dict[str, Any]:
        """Return the form in `run.json`."""
        return asdict(self)

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> "ExpectedAccuracy":
        """Read what `as_dict` returns."""
        shares = {str(name): float(share) for name, share in facts.get("categories", {}).items()}
        return ExpectedAccuracy(float(facts["value"]), float(facts["low"]), float(facts["high"]), shares)
