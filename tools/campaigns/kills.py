"""Kills at file operations: before an operation, in the middle of a write, and with the loss of what is not synced."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from .operations import Handler, Watch, cut_power_at, kill_at, log_to, tear_at
from .runner import Campaign, Verdict
from .scenarios import SCENARIOS, Scenario
from .workshop import Broken, Workshop

MANNERS = ("kill", "torn write", "power cut")


class KillsAtOperations(Campaign):
    """Every scenario, killed at every file operation in up to three manners."""

    name, share = "operations", 3.0

    def __init__(self, shop: Workshop, seed: int, scenarios: Sequence[Scenario] = SCENARIOS):
        super().__init__(shop, seed)
        self.scenarios = scenarios
        self._plans: list[list[tuple[int, str]]] = [self._plan(scenario) for scenario in scenarios]

    def _plan(self, scenario: Scenario) -> list[tuple[int, str]]:
        """Count the operations of a scenario; returns all numbers and manners in random order."""
        case = self.shop.case(f"count {scenario.name}")
        words, log = scenario.set_up(self.shop, case), self.shop.root / "operations.txt"
        ended = self.shop.call(words, _logs(case), lambda: Watch(case, log_to(log)).install())
        if ended.code != 0:
            raise Broken(f"{scenario.name} while counting its operations: {ended.complaint or ended.last_line}")
        kinds = [line.split()[0] for line in log.read_text().splitlines()]
        plan = [(n, m) for n, kind in enumerate(kinds, 1) for m in MANNERS if m != "torn write" or kind == "write"]
        self.random(len(plan)).shuffle(plan)
        _clear(case)
        return plan

    def size(self) -> int:
        """Return the number of operations in all manners."""
        return sum(map(len, self._plans))

    def _choose(self, number: int) -> tuple[Scenario, int, str]:
        """Return a case: one scenario after the other, as long as they have cases left."""
        left, position = list(zip(self.scenarios, self._plans, strict=True)), 0
        while left:
            if number < len(left):
                scenario, plan = left[number]
                return scenario, *plan[position]
            number, position = number - len(left), position + 1
            left = [(scenario, plan) for scenario, plan in left if len(plan) > position]
        raise IndexError("there are fewer cases")

    def run(self, number: int) -> Verdict:
        """Kill a command at an operation and recover."""
        scenario, at, manner = self._choose(number)
        random, case = self.random(number), self.shop.case(f"{self.name} {number}")
        words = scenario.set_up(self.shop, case)
        handler: Handler = kill_at(at)
        if manner == "torn write":
            handler = tear_at(at, random.choice((0.0, 0.3, 0.9)))
        elif manner == "power cut":
            handler = cut_power_at(at, lambda: random.random() < 0.5)
        ended = self.shop.call(words, _logs(case), lambda: Watch(case, handler).install())
        problem = scenario.judge(self.shop, case, ended) if ended.code in (0, -9) else ended.complaint
        if not problem:
            _clear(case)
        return Verdict(f"{scenario.name}, {manner} at operation {at}", problem, (manner,))


def _logs(case: Path) -> Path:
    return case.parent / f"{case.name}-logs"


def _clear(case: Path) -> None:
    for folder in (case, _logs(case)):
        shutil.rmtree(folder, ignore_errors=True)
