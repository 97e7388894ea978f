"""One run from settings to a finished run directory: read, train stage by stage, score, write."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.auto_count import count_categories, features_of
from sptnet.backbone import Backbone, build_backbone
from sptnet.categories import category_names, write_category_pictures, write_predictions
from sptnet.checkpoint import Checkpoint, frozen_digest, load_checkpoint, newest_checkpoint, save_checkpoint
from sptnet.cluster_head import CentroidHead, ContrastiveHead
from sptnet.clustering import find_centroids
from sptnet.compiling import check_compiler
from sptnet.config import Clustering, Config, PromptSettings
from sptnet.data import LoadedData, load_data, resolve_n_categories
from sptnet.device import choose_compute
from sptnet.distributed import world
from sptnet.errors import Misuse
from sptnet.estimate import CountEstimate
from sptnet.found import FEATURES, write_features
from sptnet.interrupt import noted_interrupts
from sptnet.loader import n_workers
from sptnet.looking import Looker
from sptnet.methods import method_of
from sptnet.model import GcdModel
from sptnet.model_folder import ModelCard, load_model, save_model
from sptnet.phases import StagePlan, TakeTurns
from sptnet.progress import Say, bar, duration, say
from sptnet.readable import fingerprint
from sptnet.run_bank import open_bank, with_bank
from sptnet.run_facts import now, starting_facts
from sptnet.run_folder import RunFolder, refuse_among_images
from sptnet.sampler import check_batch_size, n_batches
from sptnet.scoring import Outputs, format_scores, score_sets
from sptnet.seeds import seed_of, seeded
from sptnet.split import write_split
from sptnet.stage_batches import TrainingData
from sptnet.starting_model import starting_model
from sptnet.token_bank import TokenBank
from sptnet.training import EpochReport, StageTrainer, check_frozen, epochs_with_bar
from sptnet.views import ImageStore, ViewMaker


class Experiment:
    """A run in the making. `run()` does it all; the smaller methods are the steps, in order."""

    outputs_of_all: Outputs
    """Features and logits of all images by the finished model, once it is run."""

    def __init__(
        self,
        config: Config,
        run: RunFolder,
        data: LoadedData | None = None,
        tell: Say = say,
        tell_epoch: Say | None = None,
    ):
        self.config, self.run_folder, self.tell, self.tell_epoch = config, run, tell, tell_epoch or tell
        self.world, self.began = world(), time.perf_counter()
        refuse_among_images(run.path, config.data.folder)
        self.method = method_of(config)
        self.stages = self.method.stages(config)
        self.compute = choose_compute(config.device, config.precision, self.world.local_rank)
        self.data = data or self.world.from_first(lambda: load_data(config.data, tell))
        split = self.data.split
        if split.n_known == 0 and self.method.clusters != "plain":
            raise Misuse(f"no image has a label, but {config.method} learns from them. Label some, or use kmeans.")
        self.estimate: CountEstimate | None = None
        if config.n_categories is not None and config.category_factor != 1:
            raise Misuse("n_categories and category_factor exclude each other. Give one of them.")
        asked = self._count_categories(config) if config.n_categories == "auto" else config.n_categories
        n_categories = resolve_n_categories(asked, config.category_factor, split)
        self.config = config.model_copy(update={"n_categories": n_categories, "category_factor": 1.0})
        if config.training.select == "best-old-holdout" and len(split.holdout) == 0:
            raise Misuse(
                "training.select=best-old-holdout needs labelled images kept aside. Give a share of them, "
                "such as --set data.holdout_share=0.2."
            )
        self.names = category_names(split.known_classes, n_categories)
        self.model = self._build_model()
        views, pixels = config.views, self.model.backbone.pixels
        self.workers = n_workers(views.workers, len(self.data.pile))
        cache_mb = views.cache_mb // max(1, self.workers)  # every worker has one of its own
        self.store = ImageStore(self.data.pile.sources, pixels, views.crop_ratio, cache_mb)
        self.maker = ViewMaker(pixels, views.flip)
        size = max(64, config.training.batch_size)
        self.looker = Looker(self.store, self.maker, self.compute, self.workers, size, self.world)
        self.bank: TokenBank | None = None
        self.best: tuple[float, int] | None = None
        self.trained_parameters = 0

    def _count_categories(self, config: Config) -> int:
        """How many there seem to be; or as many as the run has that SPTNet starts from."""
        if config.method == "sptnet" and config.sptnet.start_from is not None:
            return len(load_model(config.sptnet.start_from)[1].categories)
        images = np.concatenate([self.data.split.labelled, self.data.split.unlabelled])
        if self.stages:
            backbone = self._build_backbone(config)
            features = features_of(config, self.data, images, backbone, self.compute, self.world)
        else:
            features = self.untrained_features[images]
        self.estimate = count_categories(self.data, features, images, seed_of(config.seed, "count") % 2**32, self.world)
        low, high = self.estimate.interval
        self.tell(f"there seem to be {self.estimate.n_categories} categories ({low} to {high} are plausible)")
        return self.estimate.n_categories

    @cached_property
    def untrained_features(self) -> Float[Tensor, "n dim"]:
        """Of all images, where nothing is trained: one pass serves counting, clustering and sorting."""
        everything, backbone = np.arange(len(self.data.pile)), self._build_backbone(self.config)
        return features_of(self.config, self.data, everything, backbone, self.compute, self.world)

    def _build_model(self) -> GcdModel:
        """A fresh model, or the finished SimGCD model that SPTNet is to start from."""
        config = self.config
        if config.method == "sptnet" and config.sptnet.start_from is not None:
            model, self.config = starting_model(config.sptnet.start_from, config, self.data.split.known_classes)
            return model.to(self.compute.device)
        backbone = self._build_backbone(config)
        with seeded(seed_of(config.seed, "head")):
            head = self.method.head(config, backbone.dim, len(self.names))
        return GcdModel(backbone, head, config.backbone.trainable_blocks).to(self.compute.device)

    def _build_backbone(self, config: Config) -> Backbone:
        settings, reading = config.backbone, config.reading
        return self.world.one_by_one_on_a_machine(
            lambda: build_backbone(settings.name, settings.weights, settings.image_size, reading=reading)
        )

    def run(
        self,
        resume: bool = False,
        overwrite: bool = False,
        command: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Trains what is left to train; returns the scores of the finished model. `files` lie in a fresh run."""
        self._check_settings()
        folder = self.run_folder
        self.world.do_first(lambda: self._begin(resume, overwrite, command, files))
        checkpoint = self._resume_point() if resume else None
        with noted_interrupts() as check_interrupt:
            for number, plan in enumerate(self.stages):
                if checkpoint is None or checkpoint.stage <= number:
                    self._train_stage(number, plan, checkpoint, check_interrupt)
                    checkpoint = None
        if not self.stages:
            self.looker.seen = self.untrained_features
            self._cluster()
            self._save(folder.model, PromptSettings(kind="none"))
        return self._finish(time.perf_counter() - self.began)

    def _begin(self, resume: bool, overwrite: bool, command: Sequence[str], files: Mapping[str, str] | None) -> None:
        """The first files of a run; of a resumed one, those that it lacks, and what it still has to learn forgotten."""
        folder = self.run_folder
        earlier = folder.facts() if resume else {}
        facts = starting_facts(earlier, command, self.config, self.compute, self.data, self.fingerprint)
        if resume:
            path = newest_checkpoint(folder.checkpoints)
            folder.forget_metrics_after(*((-1, 0) if path is None else load_checkpoint(path).reached))
        else:
            folder.create(self.config, overwrite, files)
            if self.estimate is not None:
                folder.write_estimate(asdict(self.estimate))
        if not folder.split_file.is_file():  # the rule that draws it is in the settings, so a resume can write it too
            write_split(self.data.split, self.data.pile, folder.split_file)
        folder.write_facts(facts)

    def _check_settings(self) -> None:
        """What cannot be trained is refused before anything is written or replaced; the last `auto` is resolved."""
        split = self.data.split
        n_training, size = len(split.labelled) + len(split.unlabelled), self.config.training.batch_size
        if self.stages:
            check_batch_size(n_training, size)
        self.model.group("model")
        for plan in self.stages:
            self._attach_prompt(plan)
            if isinstance(plan.turns, TakeTurns):
                self._check_turns(plan.turns, plan.epochs, n_batches(n_training, size))
        if self.stages and self.config.training.compile:
            check_compiler(self.compute.device)
        config, backbone, n_images = self.config, self.model.backbone, len(self.data.pile)
        self.config = self.world.from_first(
            lambda: with_bank(config, self.run_folder.path, backbone, n_images, self.tell, self.world.machine)
        )

    def _check_turns(self, turns: TakeTurns, epochs: int, batches: int) -> None:
        turns.check(epochs, batches)
        if turns.restart and not turns.restarts(batches):
            self.tell(f"an epoch has {batches} batches, fewer than a turn's {turns.k}: turns go on through the epochs")

    def _resume_point(self) -> Checkpoint | None:
        path = newest_checkpoint(self.run_folder.checkpoints)
        if path is None:
            self.tell(f"{self.run_folder.path} has no checkpoint yet: starting from the beginning")
            return None
        self.tell(f"going on from {path.name}")
        return load_checkpoint(path)

    def _attach_prompt(self, plan: StagePlan) -> PromptSettings:
        settings = self.config.prompt.model_copy(update={"kind": plan.prompt_kind})
        generator = torch.Generator().manual_seed(seed_of(self.config.seed, "prompt"))
        self.model.attach_prompt(settings, generator)
        return settings

    def _token_bank(self) -> TokenBank | None:
        views, path, n_images = self.config.views, self.run_folder.path, len(self.data.pile)
        backbone, machine = self.model.backbone, self.world.machine
        return self.world.one_by_one_on_a_machine(
            lambda: open_bank(views, path, backbone, n_images, self.fingerprint, machine)
        )

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.data.pile)

    def _train_stage(
        self, number: int, plan: StagePlan, checkpoint: Checkpoint | None, check_interrupt: Callable[[], None]
    ) -> None:
        folder, training = self.run_folder, self.config.training
        if number > 0 and checkpoint is not None:
            self.model = load_model(folder.model_of_stage(self.stages[number - 1].name))[0].to(self.compute.device)
        prompt = self._attach_prompt(plan)
        self.bank = self._token_bank()
        self.model.backbone.checkpointing = training.checkpointing
        self.model.backbone.compiled = training.compile
        trainer = StageTrainer(
            self.model,
            plan,
            TrainingData.of(self.data, self.store, self.maker),
            self.compute,
            stage=number,
            batch_size=training.batch_size,
            seed=self.config.seed,
            workers=self.workers,
            bank=self.bank,
            world=self.world,
            accumulate=training.accumulate,
        )
        self.trained_parameters = sum(p.numel() for group in trainer.optimisers for p in self.model.group(group))
        frozen = frozen_digest(self.model, set(trainer.trained_names()))
        self.best = None
        self.looker.forget()
        if checkpoint is not None:
            check_frozen(checkpoint, frozen)
            trainer.restore(checkpoint)
            self.best = tuple(checkpoint.facts["best"]) if checkpoint.facts["best"] else None  # type: ignore[assignment]
        for report in epochs_with_bar(trainer, check_interrupt):
            self.looker.forget()
            line = self._epoch_line(number, plan, report)
            self._keep_best(line, plan, prompt)
            self.world.do_first(partial(self._keep_epoch, line, trainer.checkpoint(frozen=frozen, best=self.best)))
            self._tell_epoch(line, plan)
        if training.select == "best-old-holdout":
            self.model = load_model(folder.path / f"best-{plan.name}")[0].to(self.compute.device)
            self.looker.forget()
        else:
            if self._is_last(number):
                self._look_at_all()
            self._cluster()  # once more, for a run that was stopped just here
        self._save(folder.model if self._is_last(number) else folder.model_of_stage(plan.name), prompt)

    def _keep_epoch(self, line: dict[str, Any], checkpoint: Checkpoint) -> None:
        self.run_folder.add_metrics(line)
        save_checkpoint(self.run_folder.checkpoints, checkpoint)

    def _save(self, folder: Path, prompt: PromptSettings) -> None:
        """The model as it will be used: a projection that only trained is left out."""
        head = self.model.head
        self.model.head = head.classifier if isinstance(head, ContrastiveHead) else head
        self.world.do_first(lambda: save_model(folder, self.model, self._card(prompt)))
        self.model.head = head

    def _cluster(self) -> None:
        """Of a method that clusters, the centroids for the features as they are now."""
        if self.method.clusters == "no":
            return
        head, split = self.model.head, self.data.split
        centroid_head = head.classifier if isinstance(head, ContrastiveHead) else head
        assert isinstance(centroid_head, CentroidHead)
        trained_on = np.concatenate([split.labelled, split.unlabelled])
        settings: Clustering = getattr(self.config, self.config.method)
        features = self.outputs(trained_on).features
        found = self.world.from_first(
            lambda: find_centroids(
                features,
                np.where(np.isin(trained_on, split.labelled), split.target[trained_on], -1),
                len(self.names),
                settings,
                seed_of(self.config.seed, "clustering"),
                self.method.clusters == "semi-supervised",
                str(self.compute.device),
            ).cpu()
        )
        centroid_head.centroids.copy_(found)

    def _card(self, prompt: PromptSettings) -> ModelCard:
        config, n_known = self.config, self.data.split.n_known
        return ModelCard(self.names, n_known, prompt, config.views.crop_ratio, config.backbone.trainable_blocks)

    def _epoch_line(self, number: int, plan: StagePlan, report: EpochReport) -> dict[str, Any]:
        line: dict[str, Any] = {"stage": plan.name, "stage_number": number, **vars(report)}
        training, split, last = self.config.training, self.data.split, report.epoch == plan.epochs
        scores_now = last or report.epoch % training.evaluate_every == 0
        if last and self._is_last(number) and training.select == "last":
            self._look_at_all()  # everything after the training goes by this one look
        elif scores_now and self.method.clusters != "no":
            self.looker.look_at_all(self.model, self.bank)  # for clustering and scores alike
        if scores_now or len(split.holdout):
            self._cluster()
        if scores_now:
            scored = np.concatenate([split.unlabelled, split.test])
            truth = bool((split.target[scored] >= 0).any())
            line["scores"] = self._scores(self.outputs(scored), scored) if truth else {}
        if len(split.holdout):
            predicted = self.outputs(split.holdout).categories
            line["old_holdout"] = float((predicted == split.target[split.holdout]).mean())
        return line

    def _scores(self, outputs: Outputs, indices: npt.NDArray[np.int64]) -> dict[str, Any]:
        """The scores of every set of images, from the outputs of the images at these indices."""
        predicted = np.full(len(self.data.pile), -1, dtype=np.int64)
        predicted[indices] = outputs.categories
        return score_sets(self.data.pile, self.data.split, predicted)

    def outputs(self, indices: npt.NDArray[np.int64]) -> Outputs:
        """Features and logits of these images by the model as it is now."""
        return self.looker.outputs(self.model, indices, self.bank)

    def _keep_best(self, line: dict[str, Any], plan: StagePlan, prompt: PromptSettings) -> None:
        """Selection reads only labels the learner was given: accuracy on held-out images of known classes."""
        if self.config.training.select == "best-old-holdout" and (
            self.best is None or line["old_holdout"] > self.best[0]
        ):
            self.best = (line["old_holdout"], line["epoch"])
            self._save(self.run_folder.path / f"best-{plan.name}", prompt)

    def _tell_epoch(self, line: dict[str, Any], plan: StagePlan) -> None:
        losses = ", ".join(f"{phase} {parts['total']:.3f}" for phase, parts in line["losses"].items())
        scores = line.get("scores", {}).get("unlabelled")
        result = f"  {format_scores(scores)}" if scores else ""
        self.tell_epoch(
            f"{plan.name} epoch {line['epoch']}/{plan.epochs}  loss {losses}  "
            f"{line['images_per_second']:.0f} images/s{result}"
        )

    def _is_last(self, stage: int) -> bool:
        return stage == len(self.stages) - 1

    def _look_at_all(self) -> None:
        """With the finished model, unless it has just done so."""
        if self.looker.seen is None:
            with bar("sorting all images", len(self.data.pile)) as update:
                self.looker.look_at_all(self.model, told=update)

    def _finish(self, seconds: float) -> dict[str, Any]:
        """Predictions and pictures of everything, and the final scores."""
        self.model = load_model(self.run_folder.model)[0].to(self.compute.device)
        everything = np.arange(len(self.data.pile))
        self._look_at_all()
        self.outputs_of_all = self.outputs(everything)
        scores = self._scores(self.outputs_of_all, everything)
        self.world.do_first(lambda: self._write_results(scores, seconds))
        self.tell(f"finished in {duration(seconds)}: {self.run_folder.path}")
        return scores

    def _write_results(self, scores: dict[str, Any], seconds: float) -> None:
        folder, pile, outputs = self.run_folder, self.data.pile, self.outputs_of_all
        write_predictions(folder.predictions_file, pile, self.data.split, self.names, outputs)
        write_features(folder.path / FEATURES, outputs.features)
        write_category_pictures(folder.path / "categories", pile, self.names, outputs)
        facts = folder.facts()
        facts.update(status="finished", finished=now(), scores=scores)
        facts["seconds"] = facts.get("seconds", 0.0) + seconds
        if self.best is not None:
            facts["selected_epoch"] = self.best[1]
        folder.write_facts(facts)


def train(
    config: Config, out: str | Path, *, resume: bool = False, overwrite: bool = False, command: Sequence[str] = ()
) -> dict[str, Any]:
    """Trains as configured into `out`; returns the scores by set of images."""
    experiment = Experiment(config, RunFolder(out))
    return experiment.run(resume, overwrite, command or sys.argv)
