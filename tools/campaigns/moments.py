"""Kills at random moments: of forked commands, of the real command line, and of a run of two processes."""

import os
import random as standard_random
import shutil
import signal
import subprocess
import time
from functools import cached_property
from pathlib import Path

from .children import Child, Ended, descendants, kill_tree, start_real, wait_real
from .runner import Campaign, Verdict
from .scenarios import SCENARIOS, Scenario
from .workshop import Broken, differences

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
        random, case = self.random(number), self.shop.case(f"{self.name} {number}")
        words = scenario.set_up(self.shop, case)
        logs = case.parent / f"{case.name}-logs"
        self.shop.reference(scenario.reference)
        if real:
            ended = self._kill_real(words, case, logs, random)
        else:
            ended = self._kill_forked(words, logs, scenario, random)
        problem = ended.complaint if ended.code not in (0, -9) else scenario.judge(self.shop, case, ended)
        if not problem:
            shutil.rmtree(case, ignore_errors=True)
            shutil.rmtree(logs, ignore_errors=True)
        how = "real command line" if real else "forked"
        killed = ("killed",) if ended.code == -9 else ("ended before",)
        return Verdict(f"{scenario.name}, {how}", problem, (*killed, *(("real",) if real and ended.code else ())))

    def _kill_forked(
        self, words: list[str], logs: Path, scenario: Scenario, random: standard_random.Random
    ) -> Ended:
        longest = self.shop.seconds[scenario.reference] if scenario.name in SLOW else 0.4
        child = Child(words, logs)
        time.sleep(random.uniform(0, 1.05 * longest))
        child.kill()
        return child.wait()

    def _kill_real(
        self, words: list[str], case: Path, logs: Path, random: standard_random.Random, processes: int = 1
    ) -> Ended:
        """Kill the real command a random time after it has begun to write, or at once in one of ten cases."""
        before, process = _newest(case / "run"), start_real(words, logs, processes)
        end = time.monotonic() + START_UP
        if random.random() > 0.1:
            while process.poll() is None and time.monotonic() < end and _newest(case / "run") == before:
                time.sleep(0.002)
        try:
            process.wait(random.uniform(0, 1.5 * self.shop.seconds["choosy"]) if "choosy" in self.shop.seconds else 1.0)
        except subprocess.TimeoutExpired:
            _kill(process.pid, processes, random)
        return wait_real(process, logs, START_UP)

    def _run_two(self, number: int) -> Verdict:
        """Kill one of two processes, or all of them with the launcher; resume with two."""
        reference = self._two
        random, case = self.random(number), self.shop.case(f"{self.name} {number}")
        logs, words = case.parent / f"{case.name}-logs", self.shop.train(case / "run")
        ended = self._kill_real(words, case, logs, random, processes=2)
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
            shutil.rmtree(case, ignore_errors=True)
            shutil.rmtree(logs, ignore_errors=True)
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
