"""The short form of all campaigns: a few cases of each, always the same ones. `make campaign` runs the long form."""

import pytest
from tools.campaigns.faults import FAULTS, Faults
from tools.campaigns.inputs import INPUTS
from tools.campaigns.kills import KillsAtMoments, KillsAtOperations
from tools.campaigns.mutations import Mutations
from tools.campaigns.names import HostileNames
from tools.campaigns.runner import run_campaign
from tools.campaigns.scenarios import SCENARIOS

SEED = 1


def failures(campaign, cases):
    said = []
    summary = run_campaign(campaign, seconds=600, cases=cases, tell=said.append)
    assert summary.cases == cases
    return [line for line in said if " case " in line]


def test_kills_at_file_operations(shop):
    assert failures(KillsAtOperations(shop, SEED), len(SCENARIOS)) == []


def test_kills_at_random_moments(shop):
    """The third case is a real command."""
    assert failures(KillsAtMoments(shop, SEED), 3) == []


def test_damaged_inputs(shop):
    """Every input once; one case is a real command."""
    assert failures(Mutations(shop, SEED), len(INPUTS)) == []


def test_hostile_names(shop):
    assert failures(HostileNames(shop, SEED), 1) == []


@pytest.mark.parametrize("half", [0, 1])
def test_faults(shop, half):
    campaign = Faults(shop, SEED)
    numbers = range(half * len(FAULTS) // 2, (half + 1) * len(FAULTS) // 2)
    problems = {verdict.kind: verdict.problem for verdict in map(campaign.run, numbers)}
    assert {kind: problem for kind, problem in problems.items() if problem} == {}
