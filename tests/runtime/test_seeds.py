"""Seeds by name, and draws that leave the global generator unchanged."""

import pytest
import torch

from sptnet.runtime.seeds import seed_of, seeded


def test_seeded_repeats_a_draw_and_restores_the_generator():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with seeded(7):
        first = torch.rand(2)
    with pytest.raises(ZeroDivisionError), seeded(7):
        assert torch.equal(torch.rand(2), first)
        _ = 1 / 0
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(torch.rand(2, generator=torch.Generator().manual_seed(7)), first)


def test_seeds_are_fixed_numbers_and_differ_in_every_part():
    assert seed_of(0, 1, 2, 0) == seed_of(0, 1, 2, 0)
    parts = [(0, 1, 2, 0), (1, 1, 2, 0), (0, 2, 2, 0), (0, 1, 3, 0), (0, 1, 2, 1), (0, 12, 0), (0, 1, 20)]
    seeds = [seed_of(*part) for part in parts]
    assert len(set(seeds)) == len(parts)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of("epoch", 0) == 2827920073193447671, "seeds must not change between versions"
