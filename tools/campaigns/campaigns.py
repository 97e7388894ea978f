"""All campaigns in order."""

from .faults import Faults
from .kills import KillsAtOperations
from .moments import KillsAtMoments
from .mutations import Mutations
from .names import HostileNames
from .runner import Campaign

CAMPAIGNS: tuple[type[Campaign], ...] = (KillsAtOperations, KillsAtMoments, Mutations, HostileNames, Faults)
