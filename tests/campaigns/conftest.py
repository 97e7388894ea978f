"""Campaigns are run from the root of the repository; a workshop is shared by all tests of a worker."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory):
    from tools.campaigns.workshop import Workshop

    return Workshop(tmp_path_factory.mktemp("workshop"))
