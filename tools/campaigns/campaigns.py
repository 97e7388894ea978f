"""All campaigns in order."""

from .faults import Faults
from .kills import KillsAtMoments, KillsAtOperations
from .mutations import Mutations
from .names import HostileNames
from .runner import Campaign

CAMPAIGNS: tuple[type[Campaign], ...] = (KillsAtOperations, KillsAtMoments, Mutations, HostileNames, Faults)
