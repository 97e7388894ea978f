"""All campaigns in order."""

from .kills import KillsAtOperations
from .moments import KillsAtMoments
from .mutations import Mutations
from .runner import Campaign

CAMPAIGNS: tuple[type[Campaign], ...] = (KillsAtOperations, KillsAtMoments, Mutations)
