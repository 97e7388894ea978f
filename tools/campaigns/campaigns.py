"""All campaigns in order."""

from .kills import KillsAtOperations
from .runner import Campaign

CAMPAIGNS: tuple[type[Campaign], ...] = (KillsAtOperations,)
