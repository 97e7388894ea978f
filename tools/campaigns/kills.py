"""Kills: at every file operation, and at random moments of forked, real and distributed commands.

At an operation, a command is killed before it, in the middle of a write, or with the loss of what was not synced.
"""

import os
import random as standard_random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from .children import Child, Ended, descendants, kill_tree, start_real, wait_real
from .operations import Handler, Watch, cut_power_at, kill_at, log_to, tear_at
from .runner import Campaign, Verdict
from .scenarios import SCENARIOS, Scenario
from .workshop import Broken, Workshop, differences

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


REAL_EVERY, TWO_EVERY = 3, 24
"""Every third case goes through the real command line, every 24th of them through torchrun with two processes."""
SLOW = ("train", "train with bank", "overwrite", "discover")
START_UP = 120.0
"""Longest wait for a new process to write something, in seconds."""


class KillsAtMoments(Campaign):
    """Every scenario, killed from outside after a random time."""

    name, share = "moments", 3.0

    def run(self, number: int) -> Verdict:
        """Kill a command at a random moment and recover."""
        if number % TWO_EVERY == TWO_EVERY - 1:
            return self._run_two(number)
        real = number % REAL_EVERY == REAL_EVERY - 1
        scenarios = [s for s in SCENARIOS if s.name in SLOW] if real else SCENARIOS
        scenario = scenarios[number % len(scenarios)] if not real else scenarios[number // REAL_EVERY % len(scenarios)]
        random, kill = self.random(number), self._kill_real if real else self._kill_forked
        self.shop.reference(scenario.reference)
        longest = 0.8 * self.shop.seconds[scenario.reference] if scenario.name in SLOW else 0.3
        for _ in range(4):  # earlier and earlier, until the kill comes before the end
            case = self.shop.case(f"{self.name} {number}")
            shutil.rmtree(_logs(case), ignore_errors=True)  # a kill may come before the output is opened anew
            ended = kill(scenario.set_up(self.shop, case), case, random.uniform(0, longest), random)
            longest /= 2
            if ended.code != 0:
                break
        problem = ended.complaint if ended.code not in (0, -9) else scenario.judge(self.shop, case, ended)
        if not problem:
            _clear(case)
        how = "real command line" if real else "forked"
        killed = ("killed",) if ended.code == -9 else ("ended before",)
        return Verdict(f"{scenario.name}, {how}", problem, (*killed, *(("real",) if real and ended.code else ())))

    def _kill_forked(self, words: list[str], case: Path, after: float, random: standard_random.Random) -> Ended:
        child = Child(words, _logs(case))
        time.sleep(after)
        child.kill()
        return child.wait()

    def _kill_real(
        self, words: list[str], case: Path, after: float, random: standard_random.Random, processes: int = 1
    ) -> Ended:
        """Kill the real command `after` it has begun to write, or at once in one of ten cases."""
        before, process = _newest(case / "run"), start_real(words, _logs(case), processes)
        end = time.monotonic() + START_UP
        if random.random() > 0.1:
            while process.poll() is None and time.monotonic() < end and _newest(case / "run") == before:
                time.sleep(0.002)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            _kill(process.pid, processes, random)
        return wait_real(process, _logs(case), START_UP)

    def _run_two(self, number: int) -> Verdict:
        """Kill one of two processes, or all of them with the launcher; resume with two."""
        reference = self._two
        random, case = self.random(number), self.shop.case(f"{self.name} {number}")
        logs, words = _logs(case), self.shop.train(case / "run")
        longest = 1.5 * self.shop.seconds["choosy"]
        ended = self._kill_real(words, case, random.uniform(0, longest), random, processes=2)
        attempts = [["train", "--resume", "--out", str(case / "run")], words, [*words, "--overwrite"]]
        problem = ""
        if any((case / "run" / "checkpoints").glob("stage*.safetensors")):
            attempts = attempts[:1]
        for attempt in attempts:
            again = wait_real(start_real(attempt, logs / "again", 2), logs / "again", 3 * START_UP)
            problem = "" if again.code == 0 else f"lost: {_said(again)}"
            if not problem:
                break
        problem = problem or differences(case / "run", reference)
        if not problem:
            _clear(case)
        killed = ("killed", "real", "two processes") if ended.code else ("ended before",)
        return Verdict("train, two processes", problem, killed)

    @cached_property
    def _two(self) -> Path:
        """Run of two processes that nothing disturbed."""
        folder, logs = self.shop.root / "references" / "two", self.shop.root / "logs" / "two"
        self.shop.reference("choosy")  # for its time
        ended = wait_real(start_real(self.shop.train(folder), logs, 2), logs, 3 * START_UP)
        if ended.code != 0:
            raise Broken(f"training in two processes: {_said(ended)}")
        return folder


def _said(ended: Ended) -> str:
    """Return the first line of an error in the output of torchrun."""
    lines = ended.err.decode(errors="replace").splitlines()
    return next((line for line in lines if "error:" in line or "Error" in line), ended.last_line)[:300]


def _newest(folder: Path) -> int:
    """Return the time of the last change of names in a folder; 0 if there is none."""
    return folder.stat().st_mtime_ns if folder.is_dir() else 0


def _kill(pid: int, processes: int, random: standard_random.Random) -> None:
    workers = descendants(pid) if processes > 1 else []
    if workers and random.random() < 0.5:
        try:
            os.kill(random.choice(workers), signal.SIGKILL)
        except ProcessLookupError:
            kill_tree(pid)
    else:
        kill_tree(pid)
