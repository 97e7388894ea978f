"""Damaged inputs: every file that is read, mutated, and the commands that read it."""

import os
import shutil
from pathlib import Path

from .children import MOST_MB, Child, Ended, limit_memory, start_real, wait_real
from .inputs import INPUTS, Input, make_bench
from .mutators import mutate
from .runner import Campaign, Verdict
from .workshop import differences

REAL_EVERY = 19
"""Every 19th case goes through the real command line; no divisor of the number of inputs, so that all have a turn."""
MOST_PROCESSES, MOST_STEPS, TOO_MANY = 16, 3, 97


class Mutations(Campaign):
    """Input after input, mutated; a failure is a traceback, a signal, a hang, or too much memory."""

    name, share = "mutations", 5.0

    def run(self, number: int) -> Verdict:
        """Damage a file and run a command that reads it."""
        random, real = self.random(number), number % REAL_EVERY == REAL_EVERY - 1
        chosen = INPUTS[number % len(INPUTS)]
        if real and not chosen.reads:
            chosen = next(other for other in INPUTS[number % len(INPUTS) :] + INPUTS if other.reads)
        case = self.shop.case(f"{self.name} {number}")
        bench = case / "bench"
        shutil.copytree(make_bench(self.shop, chosen.bench), bench, symlinks=True)
        file = random.choice(sorted(bench.glob(chosen.file)))
        if chosen.special is not None:
            chosen.special(random, file)
        else:
            file.write_bytes(mutate(random, file.read_bytes(), chosen.form))
        command = random.choice(chosen.reads if real else (*chosen.reads, *chosen.trains))
        words = self._words(command, bench, chosen.file)
        cwd = case / "a" / "b" / "c" / "d"  # a damaged relative path stays in the case
        cwd.mkdir(parents=True)
        ended = self._call(words, case, cwd, real, chosen)
        problem = ended.complaint or self._compare(chosen, bench, ended)
        problem = problem or ("images were changed" if self.shop.images_changed() else "")
        if not problem:
            shutil.rmtree(case)
        return Verdict(f"{chosen.name}: sptnet {command}", problem, ("real",) if real else ())

    def _words(self, command: str, bench: Path, file: str) -> list[str]:
        writes = "{run} apply" in command
        run = self._scratch(bench) if writes else self.shop.reference("discovered")
        places = {"bench": bench, "run": run, "file": file, "data": self.shop.data, "images": self.shop.data / "0"}
        return [word.format(**places) for word in command.split()]

    def _scratch(self, bench: Path) -> Path:
        """Copy the finished run for a command that changes it."""
        return self.shop.copy_run("discovered", bench.parent / "run")

    def _call(self, words: list[str], case: Path, cwd: Path, real: bool, chosen: Input) -> Ended:
        logs = case / "logs"
        if real:
            return wait_real(start_real(words, logs), logs, address_mb=2 * MOST_MB)
        steps = 10**9 if chosen.exact else MOST_STEPS
        return Child(words, logs, lambda: _limit(steps), cwd).wait()

    def _compare(self, chosen: Input, bench: Path, ended: Ended) -> str:
        """Return a problem if a damaged file was accepted and led to other results."""
        if not chosen.exact or ended.code != 0:
            return ""
        problem = differences(bench, self.shop.reference("banked"))
        return f"accepted, with {problem}" if problem else ""


def _limit(steps: int) -> None:
    """Limit memory and processes, and stop a training after some steps, as Ctrl-C does."""
    from sptnet.training.trainer import StageTrainer

    limit_memory()
    fork, step, done = os.fork, StageTrainer.train_step, [0, 0]

    def few_forks() -> int:
        done[0] += 1
        if done[0] > MOST_PROCESSES:
            os._exit(TOO_MANY)
        return fork()

    def few_steps(*words: object) -> object:
        done[1] += 1
        if done[1] > steps:
            raise KeyboardInterrupt
        return step(*words)  # type: ignore[arg-type]

    os.fork = few_forks
    StageTrainer.train_step = few_steps  # type: ignore[assignment,method-assign]
