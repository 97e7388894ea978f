"""The training loop of a stage, epoch by epoch and step by step. The phase defines what a step does."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sptnet.methods.phases import Phase
from sptnet.methods.stage_plan import Clock, Memory, Rows, StagePlan, Step
from sptnet.model.gcd_model import GcdModel, Group
from sptnet.model.mean_teacher import MeanTeacher
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.compute import Compute
from sptnet.runtime.distributed import World
from sptnet.runtime.memory import memory_kept
from sptnet.runtime.seeds import seed_of
from sptnet.schedules import steps_per_epoch
from sptnet.training.accumulate import InParts
from sptnet.training.anchor import FeatureAnchor
from sptnet.training.batching.batches import Batch, StageBatches, TrainingData
from sptnet.training.batching.loader import EpochLoader
from sptnet.training.checkpoint import Checkpoint, check_tensors
from sptnet.training.deadline import Deadline, Ending
from sptnet.training.epoch_report import EpochReport, stop_at_bad_loss
from sptnet.training.memory import Look, epoch_start
from sptnet.training.parameter_groups import rated_groups
from sptnet.training.step import enter_last_block, leave_last_block, make_step, teacher_rows


class StageTrainer:
    """Trainer of one stage; its state can be saved as a checkpoint and restored."""

    def __init__(
        self,
        model: GcdModel,
        plan: StagePlan,
        data: TrainingData,
        compute: Compute,
        *,
        stage: int,
        batch_size: int,
        seed: int,
        workers: int = 0,
        bank: TokenBank | None = None,
        world: World = World(),  # noqa: B008
        accumulate: int = 1,
        n_known: int = 0,
        look: Look | None = None,
    ):
        """`look` computes the outputs of images by the present model, for stages that refresh their memory."""
        self.n_known, self.look = n_known, look
        self.bank, self.world, self.accumulate = bank, world, accumulate
        self.model, self.plan, self.data, self.compute = model, plan, data, compute
        self.stage, self.batch_size, self.seed, self.workers = stage, batch_size, seed, workers
        self.batches = steps_per_epoch(data.n_images, batch_size)
        self.optimisers: dict[Group, torch.optim.SGD] = {}
        for group, settings in plan.optimisers.items():
            if model.group(group):
                self.optimisers[group] = torch.optim.SGD(
                    rated_groups(model, group, settings),
                    lr=0.0,
                    momentum=settings.momentum,
                    fused=True,  # weights, gradients and momentum pass through memory once, not one by one
                )
        self.scalers = {group: compute.scaler() for group in self.optimisers}
        self.epoch = self.steps_done = 0
        self.memory: Memory = {}
        self.teacher = None if plan.teacher is None else MeanTeacher(model, self.trained_names())
        self.anchor = None
        if plan.anchor is not None:
            self.anchor = FeatureAnchor(plan.anchor, model, self.trained_names(), data, batch_size)
        limit = plan.limit
        self.ending = None if limit.steps is None else Ending(max(0, limit.steps - limit.anneal_steps), limit.steps)
        timed = limit.minutes is not None and self.ending is None
        self.deadline = Deadline(60 * limit.minutes) if limit.minutes is not None and timed else None
        self._loader: EpochLoader | None = None

    def stage_batches(self, extra: list[Tensor] | None = None) -> StageBatches:
        """All batches of the stage; `extra` are images to add to each of them."""
        return StageBatches(self.data, self.plan, self.batch_size, self.seed, self.stage, self.bank, self.world, extra)

    def phases_of(self, epoch: int) -> list[Phase]:
        """Phase of each step of an epoch."""
        return self.stage_batches().phases(epoch)

    @property
    def planned_steps(self) -> int:
        """Number of steps of the schedule."""
        return self.plan.epochs * self.batches

    @property
    def finished(self) -> bool:
        """True after the last epoch, or after the last step of a stage that ends early."""
        return self.epoch >= self.plan.epochs or (self.ending is not None and self.steps_done >= self.ending.steps)

    @memory_kept()
    def run_epoch(self, on_step: Callable[[int, int], None] = lambda done, total: None) -> EpochReport:
        """Train the next epoch, or what is left of the stage if it ends in it."""
        self.model.train()
        report = EpochReport(self.epoch + 1)
        start, waited = time.perf_counter(), 0.0
        self.refresh_memory()
        self._loader = self._loader_of_epoch()
        loaded = self._loader.epoch(self.epoch)
        asked = time.perf_counter()
        for number, (phase, batch) in enumerate(zip(self.phases_of(self.epoch), loaded, strict=True)):
            waited += time.perf_counter() - asked
            parts = self.train_step(batch, phase, number)
            report.add(phase, parts)
            on_step(number + 1, self.batches)
            asked = time.perf_counter()
            self._check_time()
            if self.ending is not None and self.steps_done >= self.ending.steps:
                self._loader.close()
                break
        report.learning_rates = {group: opt.param_groups[0]["lr"] for group, opt in self.optimisers.items()}
        report.memory = {name: float(self.memory[name]) for name in self.plan.tells if name in self.memory}
        report.seconds = time.perf_counter() - start
        report.images_per_second = sum(report.steps.values()) * self.batch_size / report.seconds
        report.waiting = waited / report.seconds
        self.epoch += 1
        return report

    def refresh_memory(self) -> None:
        """Compute the memory of the next epoch, if the stage has one; rank 0 computes it for all."""
        refresh = self.plan.refresh
        if refresh is None:
            return
        assert self.look is not None, "a stage that refreshes its memory needs `look`"
        count, seed = self.model.head.n_categories, self._epoch_seed("memory")
        sizes = {"n_known": self.n_known, "n_categories": count, "epoch": self.epoch, "epochs": self.plan.epochs}
        start = epoch_start(self.data, self.look, self.memory, seed, **sizes)
        made = self.world.from_first(lambda: refresh(start))
        self.memory = {name: value.to(self.compute.device) for name, value in made.items()}

    def _epoch_seed(self, purpose: str) -> int:
        return seed_of(self.seed, purpose, self.stage, self.epoch) % 2**32

    def _loader_of_epoch(self) -> EpochLoader:
        """The loader of all epochs, or a new one if the images of a batch depend on the memory."""
        if self.plan.extra is None:
            return self._loader or EpochLoader(self.stage_batches(), self.workers, self.compute.on_cuda)
        if self._loader is not None:
            self._loader.close()
        memory = {name: value.cpu() for name, value in self.memory.items()}
        extra = self.plan.extra(memory, self.batch_size, self.batches, self._epoch_seed("extra"))
        return EpochLoader(self.stage_batches(extra), self.workers, self.compute.on_cuda)

    def train_step(self, batch: Batch, phase: Phase, number: int) -> dict[str, float]:
        """Train one step of a phase; returns every part of the loss."""
        clock = Clock(self.epoch, self.plan.epochs, self.epoch * self.batches + number, self.planned_steps)
        self.set_learning_rates(clock.step)
        self.model.train_only(phase.trains)
        on_device = batch.to(self.compute.device, self.data.maker)
        step, go_back = self._forward(on_device, phase, clock)
        loss = self.plan.objective(step)
        parts = {name: float(value.detach()) for name, value in loss.parts().items()}
        where = f"stage {self.plan.name}, epoch {self.epoch + 1}, batch {number + 1}"
        stop_at_bad_loss(parts, where, (self.data.ids[int(i)] for i in batch.indices))
        for group in phase.trains:
            self.optimisers[group].zero_grad(set_to_none=True)
        # The groups that train share one backward pass, so they share its loss scale too.
        scaler = self.scalers[min(phase.trains)]
        scaler.scale(loss.total).backward()
        go_back()
        if self.anchor is not None:
            cost = self.anchor.add_gradient(clock, self.seed, scaler, self.compute, self.world, self.accumulate)
            parts |= {**cost, "total": parts["total"] + cost["total"]}
            stop_at_bad_loss(parts, where, (self.data.ids[int(i)] for i in batch.indices))
        self.world.sum_gradients(p for group in sorted(phase.trains) for p in self.model.group(group))
        for group in sorted(phase.trains):
            scaler.step(self.optimisers[group])
        scaler.update()
        if self.teacher is not None and self.plan.teacher is not None:
            self.teacher.follow(self.plan.teacher(clock.step, clock.steps))
        if self.plan.remember is not None:
            with torch.no_grad():
                self.memory = self.plan.remember(step)
        self.steps_done += 1
        return parts

    def _check_time(self) -> None:
        """With a time limit: decide after which step the stage ends, once the limit is near. Rank 0 decides."""
        if self.deadline is not None and self.ending is None:
            deadline, done = self.deadline, self.steps_done
            self.ending = self.world.from_first(lambda: deadline.after_step(done, self.planned_steps))

    def _forward(self, batch: Batch, phase: Phase, clock: Clock) -> tuple[Step, Callable[[], None]]:
        """Return what the objective sees of a batch, and a function to call after its backward pass."""
        model, compute, bank = self.model, self.compute, self.bank
        rows: Rows
        entering: list[Tensor] | None = None
        if self.accumulate == 1:
            entering, go_back = enter_last_block(model, batch, phase.views, compute, bank), lambda: None
            rows = leave_last_block(model, entering, phase.views, compute)
        else:
            parts = InParts(model, batch, phase, compute, bank, self.accumulate)
            rows, go_back = parts.outputs, parts.go_back
        taught = None
        if self.teacher is not None:
            taught = teacher_rows(self.teacher.model, batch, phase, compute, bank, entering)
        return make_step(rows, taught, batch, clock, self.memory, self.world), go_back

    def set_learning_rates(self, step: int) -> None:
        """Set the scheduled learning rates of a step, annealed if the stage ends early."""
        plan, annealed = self.plan, 1.0 if self.ending is None else self.ending.factor(step)
        for group, optimiser in self.optimisers.items():
            rate = plan.optimisers[group].learning_rate(self.epoch, step, plan.epochs, self.planned_steps) * annealed
            for parameters in optimiser.param_groups:
                parameters["lr"] = rate * parameters.get("ratio", 1.0)

    def trained_names(self) -> list[str]:
        """Names of the parameters that the stage trains, and of the prompts."""
        trained = {id(p) for group in self.optimisers for p in self.model.group(group)}
        prompts = {id(p) for p in self.model.group("prompt")}  # kept even if frozen: they are not in any other file
        return [n for n, p in self.model.named_parameters() if id(p) in trained | prompts]

    def checkpoint(self, **facts: Any) -> Checkpoint:
        """Return the state of the stage; `facts` are saved with it."""
        names = self.trained_names()
        parameters = dict(self.model.named_parameters())
        tensors: dict[str, Tensor] = {f"model.{name}": parameters[name] for name in names}
        for name in names:
            momentum = self._state_of(parameters[name]).get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum.{name}"] = momentum
        if self.teacher is not None:
            averages = dict(self.teacher.model.named_parameters())
            tensors |= {f"teacher.{name}": averages[name] for name in names}
        tensors |= {f"memory.{name}": value for name, value in self.memory.items()}
        facts["scalers"] = {group: scaler.state_dict() for group, scaler in self.scalers.items()}
        if self.ending is not None:
            facts["ending"] = [self.ending.anneal_from, self.ending.steps]
        if self.deadline is not None:
            facts["seconds"] = self.deadline.used
        return Checkpoint(self.stage, self.epoch, tensors, facts)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint."""
        self.epoch = checkpoint.epoch
        self.steps_done = self.epoch * self.batches
        if "ending" in checkpoint.facts:
            self.ending = Ending(*checkpoint.facts["ending"])
            self.steps_done = min(self.steps_done, self.ending.steps)
        elif self.deadline is not None:
            self.deadline = Deadline(self.deadline.seconds, checkpoint.facts.get("seconds", 0.0))
        names, parameters = self.trained_names(), dict(self.model.named_parameters())
        averages = {} if self.teacher is None else dict(self.teacher.model.named_parameters())
        wanted = {f"model.{name}": parameters[name] for name in names}
        wanted |= {f"teacher.{name}": averages[name] for name in (names if averages else ())}
        check_tensors(checkpoint, wanted, {f"momentum.{name}": parameters[name] for name in names})
        with torch.no_grad():
            for name, value in wanted.items():
                value.copy_(checkpoint.tensors[name])
            for name in names:
                momentum = checkpoint.tensors.get(f"momentum.{name}")
                if momentum is not None:
                    self._state_of(parameters[name])["momentum_buffer"] = momentum.to(parameters[name].device)
        self.memory = {
            name.removeprefix("memory."): value.to(self.compute.device)
            for name, value in checkpoint.tensors.items()
            if name.startswith("memory.")
        }
        for group, scaler in self.scalers.items():
            state = checkpoint.facts["scalers"].get(group)
            if state:  # empty in full precision
                scaler.load_state_dict(state)

    def _state_of(self, parameter: nn.Parameter) -> dict[str, Any]:
        for optimiser in self.optimisers.values():
            if any(parameter is p for p in _parameters(optimiser)):
                state: dict[str, Any] = optimiser.state[parameter]
                return state
        return {}


def _parameters(optimiser: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
    for group in optimiser.param_groups:
        yield from group["params"]
