"""A run that was stopped, killed or spoilt goes on to the very result of one that was left alone."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import sptnet.training.checkpoint
from sptnet.data.load import SplitImages
from sptnet.errors import Failure, Misuse
from sptnet.losses import GcdLoss
from sptnet.results.run_folder import RunFolder
from sptnet.training.checkpoint import load_checkpoint, newest_checkpoint
from sptnet.training.experiment import Experiment
from sptnet.training.stage import Stage
from sptnet.training.trainer import StageTrainer

BATCHES = 5  # sixty images, twelve a batch
STAGE = 3 * BATCHES


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that was left alone, made once."""
    made = {}

    def get(run_it, config, data):
        if "folder" not in made:
            made["folder"] = run_it(tmp_path_factory.mktemp("whole") / "run", config, data)
        return made["folder"]

    return get


def stop_at_step(monkeypatch, number, error=KeyboardInterrupt):
    """The step of that number, counted from zero through all epochs and stages, raises."""
    inner, done = StageTrainer.train_step, []

    def step(self, batch, phase, at):
        done.append(at)
        if len(done) == number + 1:
            raise error
        return inner(self, batch, phase, at)

    monkeypatch.setattr(StageTrainer, "train_step", step)


@pytest.mark.parametrize(
    ("step", "newest"),
    [
        (3, None),
        (2 * BATCHES + 3, "stage0-epoch00002"),
        (STAGE + 3, "stage0-epoch00003"),
        (STAGE + 2 * BATCHES + 4, "stage1-epoch00002"),
    ],
    ids=["first epoch", "stage 0", "stage 1, first epoch", "stage 1"],
)
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(
    step, newest, tiny_config, few_digits, run_it, tmp_path, monkeypatch, whole, assert_same_result
):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at_step(patch, step)
        with pytest.raises(KeyboardInterrupt):
            run_it(folder, tiny_config, few_digits)
    found = newest_checkpoint(folder / "checkpoints")
    assert (found and found.stem) == newest
    assert not (folder / "predictions.csv").exists()
    run_it(folder, data=few_digits, resume=True)
    assert_same_result(folder, whole(run_it, tiny_config, few_digits))
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"


@pytest.mark.parametrize("step", [3, BATCHES + 3], ids=["first epoch", "second epoch"])
def test_a_run_with_every_departure_from_the_published_method_resumes(
    step, tiny_config, few_digits, run_it, tmp_path, monkeypatch, assert_same_result
):
    config = tiny_config.changed(
        head={"start": "clusters", "contrast": "features"},
        simgcd={"backbone_ratio": 0.1, "entropy_weight": 2.0, "epochs": 1, "min_steps": 2 * BATCHES},
    ).model_copy(update={"method": "simgcd"})
    alone = run_it(tmp_path / "alone", config, few_digits)
    with monkeypatch.context() as patch:
        stop_at_step(patch, step)
        with pytest.raises(KeyboardInterrupt):
            run_it(tmp_path / "run", config, few_digits)
    run_it(tmp_path / "run", data=few_digits, resume=True)
    assert_same_result(tmp_path / "run", alone)
    assert RunFolder(alone).config().simgcd.epochs == 2


def test_a_run_in_bfloat16_with_its_last_features_from_the_bank_resumes(
    tiny_config, few_digits, run_it, tmp_path, monkeypatch, assert_same_result
):
    config = tiny_config.changed(views={"bank": 2, "bank_at_end": True}).model_copy(update={"precision": "bf16"})
    alone = run_it(tmp_path / "alone", config, few_digits)
    with monkeypatch.context() as patch:
        stop_at_step(patch, STAGE + 3)
        with pytest.raises(KeyboardInterrupt):
            run_it(tmp_path / "run", config, few_digits)
    run_it(tmp_path / "run", data=few_digits, resume=True)
    assert_same_result(tmp_path / "run", alone)
    facts = json.loads((alone / "run.json").read_text())
    assert facts["precision"] == "bfloat16"


def test_stopped_again_and_again(tiny_config, few_digits, run_it, tmp_path, monkeypatch, whole, assert_same_result):
    """Every process gets a little further than an epoch."""
    folder, resume, stops = tmp_path / "run", False, 0
    while True:
        with monkeypatch.context() as patch:
            stop_at_step(patch, BATCHES + 2)
            try:
                run_it(folder, None if resume else tiny_config, few_digits, resume=resume)
                break
            except KeyboardInterrupt:
                resume, stops = True, stops + 1
    assert stops == 5
    assert_same_result(folder, whole(run_it, tiny_config, few_digits))


def test_resuming_a_finished_run_finishes_it_again(
    tiny_config, few_digits, run_it, tmp_path, whole, assert_same_result, monkeypatch
):
    folder = tmp_path / "run"
    shutil.copytree(whole(run_it, tiny_config, few_digits), folder)
    (folder / "predictions.csv").unlink()
    before = json.loads((folder / "run.json").read_text())
    monkeypatch.setattr(StageTrainer, "train_step", lambda *_: pytest.fail("there is nothing left to train"))
    run_it(folder, data=few_digits, resume=True)
    assert_same_result(folder, whole(run_it, tiny_config, few_digits))
    after = json.loads((folder / "run.json").read_text())
    assert (after["status"], after["scores"], after["started"]) == ("finished", before["scores"], before["started"])


def test_a_cut_line_of_metrics_and_leftover_parts_are_harmless(
    tiny_config, few_digits, run_it, tmp_path, monkeypatch, whole, assert_same_result
):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at_step(patch, STAGE + BATCHES + 2)
        with pytest.raises(KeyboardInterrupt):
            run_it(folder, tiny_config, few_digits)
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"stage": "sptnet", "stage_num')
    for name in ("checkpoints/stage1-epoch00002.safetensors.part", "config.toml.part", "metrics.jsonl.part"):
        (folder / name).write_bytes(b"half")
    (folder / "model.part").mkdir()
    (folder / "model.part" / "model.safetensors").write_bytes(b"half")
    run_it(folder, data=few_digits, resume=True)
    assert_same_result(folder, whole(run_it, tiny_config, few_digits))
    assert list(folder.rglob("model*.part")) == []


def test_what_the_metrics_of_a_whole_run_say(tiny_config, few_digits, run_it, whole):
    folder = whole(run_it, tiny_config, few_digits)
    lines = RunFolder(folder).metrics()
    assert [(line["stage"], line["stage_number"], line["epoch"]) for line in lines] == [
        *(("simgcd", 0, epoch) for epoch in (1, 2, 3)),
        *(("sptnet", 1, epoch) for epoch in (1, 2, 3)),
    ]
    assert ["scores" in line for line in lines] == [False, True, True] * 2, "every second epoch and the last"
    assert lines[3]["steps"] == {"prompt": 3, "model": 2}
    assert lines[-1]["scores"] == json.loads((folder / "run.json").read_text())["scores"]


def test_the_second_stage_begins_where_the_first_ended(tiny_config, few_digits, run_it, whole):
    folder = whole(run_it, tiny_config, few_digits)
    first, last = (load_file(folder / name / "model.safetensors") for name in ("model-simgcd", "model"))
    assert torch.equal(first["backbone.vit.patch_embed.proj.weight"], last["backbone.vit.patch_embed.proj.weight"])
    assert not torch.equal(first["head.prototypes"], last["head.prototypes"])
    assert not any(name.startswith("prompt") for name in first)
    checkpoint = load_checkpoint(newest_checkpoint(folder / "checkpoints"))
    for name, value in checkpoint.tensors.items():
        if name.startswith("model."):
            assert torch.equal(value, last[name.removeprefix("model.")])


def test_the_seed_decides_and_simgcd_alone_is_the_first_stage(tiny_config, few_digits, run_it, tmp_path, whole):
    simgcd = tiny_config.model_copy(update={"method": "simgcd"})
    first = load_file(whole(run_it, tiny_config, few_digits) / "model-simgcd" / "model.safetensors")
    for seed in (0, 1):
        folder = run_it(tmp_path / str(seed), simgcd.model_copy(update={"seed": seed}), few_digits)
        model = load_file(folder / "model" / "model.safetensors")
        assert torch.equal(model["head.prototypes"], first["head.prototypes"]) == (seed == 0)


# --- the loss is not finite ---


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_images(
    tiny_config, few_digits, run_it, tmp_path, monkeypatch, whole, assert_same_result
):
    folder, calls, batches = tmp_path / "run", [], []
    import sptnet.methods.simgcd as method

    inner, step = method.gcd_loss, StageTrainer.train_step

    def spoilt(*args):
        loss = inner(*args)
        calls.append(1)
        if len(calls) == BATCHES + 3:
            loss = replace(loss, info_nce=loss.info_nce * float("nan"), total=loss.total * float("inf"))
        return loss

    def watched(self, batch, phase, number):
        batches.append(batch)
        return step(self, batch, phase, number)

    with monkeypatch.context() as patch:
        patch.setattr(method, "gcd_loss", spoilt)
        patch.setattr(StageTrainer, "train_step", watched)
        with pytest.raises(Failure) as failure:
            run_it(folder, tiny_config, few_digits)
    message = str(failure.value)
    assert "stage simgcd, epoch 2, batch 3" in message
    assert "info_nce = nan" in message
    assert "total = inf" in message
    assert "cross_entropy" not in message
    ids = re.findall(r"digit-\d{4}", message)
    assert ids == [few_digits.image_set.ids[int(i)] for i in batches[-1].indices]
    assert newest_checkpoint(folder / "checkpoints").stem == "stage0-epoch00001"
    run_it(folder, data=few_digits, resume=True)
    assert_same_result(folder, whole(run_it, tiny_config, few_digits))


def test_a_bad_loss_changes_no_weight(tiny_config, few_digits, run_it, tmp_path, monkeypatch):
    import sptnet.methods.simgcd as method

    def spoilt(projections, logits, *_):
        return GcdLoss(*[projections.sum() * float("nan")] * 6)

    monkeypatch.setattr(method, "gcd_loss", spoilt)
    experiment = Experiment(tiny_config, RunFolder(tmp_path / "run"), few_digits, tell=lambda message: None)
    before = {name: value.clone() for name, value in experiment.state.model.state_dict().items()}
    with pytest.raises(Failure, match=r"epoch 1, batch 1: .*learning rate"):
        experiment.run()
    after = experiment.state.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


# --- choosing an epoch ---


@pytest.fixture
def choosy(tiny_config):
    return tiny_config.changed(training={"select": "best-old-holdout"}, sptnet={"epochs": 4})


@pytest.mark.parametrize("stopped_at", [None, 12, 32], ids=["never", "stage 0", "stage 1"])
def test_the_epoch_with_the_best_holdout_is_kept(choosy, held_out_digits, run_it, tmp_path, monkeypatch, stopped_at):
    """The first of the best where several are as good; also when the run was stopped after it."""
    folder = tmp_path / "run"
    accuracies = {("simgcd", e): a for e, a in enumerate([0.2, 0.7, 0.7], start=1)}
    accuracies |= {("sptnet", e): a for e, a in enumerate([0.9, 0.3, 0.95, 0.4], start=1)}
    inner = Stage._line

    def line(self, report, last):
        return inner(self, report, last) | {"old_holdout": accuracies[self.plan.name, report.epoch]}

    monkeypatch.setattr(Stage, "_line", line)
    monkeypatch.setattr(sptnet.training.checkpoint, "KEEP", 100)
    if stopped_at is not None:
        with monkeypatch.context() as patch:
            stop_at_step(patch, stopped_at)
            with pytest.raises(KeyboardInterrupt):
                run_it(folder, choosy, held_out_digits)
    resume = stopped_at is not None
    run_it(folder, None if resume else choosy, held_out_digits, resume=resume)
    for kept, chosen in (("model-simgcd", "stage0-epoch00002"), ("model", "stage1-epoch00003")):
        model = load_file(folder / kept / "model.safetensors")
        checkpoint = load_checkpoint(folder / "checkpoints" / f"{chosen}.safetensors")
        weights = {n.removeprefix("model."): v for n, v in checkpoint.tensors.items() if n.startswith("model.")}
        assert [name for name, value in weights.items() if not torch.equal(model[name], value)] == []
    assert json.loads((folder / "run.json").read_text())["selected_epoch"] == 3


def test_the_holdout_is_kept_out_and_scored_by_plain_predictions(
    choosy, held_out_digits, run_it, tmp_path, monkeypatch
):
    """No matching: a known class has its own place in the head."""
    trained_on, inner = set(), StageTrainer.train_step

    def step(self, batch, phase, number):
        trained_on.update(batch.indices.tolist())
        return inner(self, batch, phase, number)

    monkeypatch.setattr(StageTrainer, "train_step", step)
    folder = run_it(tmp_path / "run", choosy, held_out_digits)
    split = held_out_digits.split
    assert len(trained_on) > 30
    assert not trained_on & set(split.holdout.tolist())
    assert len(split.holdout) >= 5
    lines = [line for line in RunFolder(folder).metrics() if line["stage"] == "sptnet"]
    facts = json.loads((folder / "run.json").read_text())
    best = max(line["old_holdout"] for line in lines)
    assert facts["selected_epoch"] == next(line["epoch"] for line in lines if line["old_holdout"] == best)
    rows = [row.split(",") for row in (folder / "predictions.csv").read_text().splitlines()[1:]]
    held_out = [(category, truth) for _, category, _, _, part, truth, *_ in rows if part == "holdout"]
    assert len(held_out) == len(split.holdout)
    assert np.mean([category == truth for category, truth in held_out]) == pytest.approx(best)


def test_the_truth_of_unlabelled_images_changes_nothing(choosy, held_out_digits, run_it, tmp_path):
    split = held_out_digits.split
    target = split.target.copy()
    target[split.unlabelled] = np.random.RandomState(0).permutation(target[split.unlabelled])
    assert not np.array_equal(target, split.target)
    lied_to = SplitImages(held_out_digits.image_set, replace(split, target=target), [])
    honest = run_it(tmp_path / "honest", choosy, held_out_digits)
    other = run_it(tmp_path / "other", choosy, lied_to)
    kept = ("model-simgcd/model", "model/model", "checkpoints/best-stage0", "checkpoints/best-stage1")
    for name in kept:
        one, two = (load_file(folder / f"{name}.safetensors") for folder in (honest, other))
        assert [key for key in one if not torch.equal(one[key], two[key])] == []
    chosen = [json.loads((folder / "run.json").read_text())["selected_epoch"] for folder in (honest, other)]
    assert chosen[0] == chosen[1]
    one, two = (RunFolder(folder).metrics() for folder in (honest, other))
    for key in ("losses", "old_holdout"):
        assert [line[key] for line in one] == [line[key] for line in two]
    assert one[-1]["scores"] != two[-1]["scores"], "the scores do read the truth, so the truth did change"


def test_choosing_needs_a_holdout(choosy, few_digits, run_it, tmp_path):
    with pytest.raises(Misuse, match=r"best-old-holdout needs labelled .*data\.holdout_share=0\.2"):
        run_it(tmp_path / "run", choosy, few_digits)
    assert not (tmp_path / "run").exists()


# --- a process killed for good ---


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The command line's run that was left alone, made once, by a process of its own."""
    made = {}

    def get(command, words):
        if "folder" not in made:
            folder = tmp_path_factory.mktemp("undisturbed") / "run"
            assert command([*words, "--out", str(folder)]).wait() == 0
            made["folder"] = folder
        return made["folder"]

    return get


def go_on(command, folder):
    resumed = command(["train", "--resume", "--out", str(folder)])
    assert resumed.wait() == 0, resumed.said
    return resumed.said


def test_a_process_killed_again_and_again(command, train_words, undisturbed, tmp_path, assert_same_result):
    folder, words, kills = tmp_path / "run", train_words, 0
    reference = undisturbed(command, train_words)
    for delay in (0.1, 0.2, 0.3, 0.15):
        process = command([*words, "--out", str(folder)])
        wait_until(lambda: (folder / "split.json").exists() and (folder / "run.json").exists())
        time.sleep(delay)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        words = ["train", "--resume"]
    assert kills >= 1
    go_on(command, folder)
    assert_same_result(folder, reference)


def wait_until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)


def die_in_save(number):
    """The process dies when half of the checkpoint of that number is written."""

    def prepare():
        inner, saved = sptnet.training.checkpoint.save_file, []

        def save_half(tensors, path, metadata=None):
            inner(tensors, path, metadata)
            saved.append(path)
            if len(saved) == number:
                content = Path(path).read_bytes()
                Path(path).write_bytes(content[: len(content) // 2])
                os.kill(os.getpid(), signal.SIGKILL)

        sptnet.training.checkpoint.save_file = save_half

    return prepare


@pytest.mark.parametrize(("number", "newest"), [(1, None), (5, "stage1-epoch00001")])
def test_killed_while_a_checkpoint_is_being_written(
    number, newest, command, train_words, undisturbed, tmp_path, assert_same_result
):
    folder = tmp_path / "run"
    process = command([*train_words, "--out", str(folder)], die_in_save(number))
    assert process.wait() == -signal.SIGKILL, process.said
    assert [path.name for path in (folder / "checkpoints").glob("*.part")] != []
    found = newest_checkpoint(folder / "checkpoints")
    assert (found and found.stem) == newest
    said = go_on(command, folder)
    assert (f"going on from {newest}" if newest else "no checkpoint yet") in said
    assert_same_result(folder, undisturbed(command, train_words))


def count_writes(die_at=None, log=None):
    """The process dies just before its n-th change of a name on the disk (replace, rename, delete)."""

    def prepare():
        done = []

        def before(inner):
            def wrapped(*args, **more):
                done.append(args)
                if log is not None:
                    with open(log, "a") as stream:
                        stream.write("x\n")
                if len(done) == die_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return inner(*args, **more)

            return wrapped

        for name in ("replace", "rename", "unlink", "fsync"):
            setattr(os, name, before(getattr(os, name)))
        shutil.rmtree = before(shutil.rmtree)
        Path.write_text = before(Path.write_text)

    return prepare


def test_killed_at_any_write(command, train_words, undisturbed, tmp_path, assert_same_result):
    """From the first write of a run to its last; one that has no settings yet is begun again."""
    reference = undisturbed(command, train_words)
    log = tmp_path / "log"
    assert command([*train_words, "--out", str(tmp_path / "all")], count_writes(log=log)).wait() == 0
    total = len(log.read_text().splitlines())
    assert total > 30
    early = 6  # the marker is there, the settings are not
    for point in [early, *np.linspace(total // 2, total, 2).astype(int).tolist()]:
        folder = tmp_path / f"run{point}"
        process = command([*train_words, "--out", str(folder)], count_writes(die_at=point))
        assert process.wait() == -signal.SIGKILL, process.said
        assert (folder / "config.toml").exists() == (point > early)
        if point == early:
            assert (folder / ".sptnet-run").exists()
            again = command([*train_words, "--overwrite", "--out", str(folder)])
            assert again.wait() == 0, again.said
        else:
            go_on(command, folder)
        assert_same_result(folder, reference)


def test_a_run_killed_in_its_first_moment_still_gets_its_split(command, train_words, undisturbed, tmp_path):
    """`sptnet evaluate` needs split.json, so a resumed run must have it too."""

    def prepare():
        import sptnet.training.experiment

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        sptnet.training.experiment.write_split = die

    folder = tmp_path / "run"
    assert command([*train_words, "--out", str(folder)], prepare).wait() == -signal.SIGKILL
    go_on(command, folder)
    reference = undisturbed(command, train_words)
    assert (folder / "split.json").exists()
    assert (folder / "split.json").read_text() == (reference / "split.json").read_text()


# --- Ctrl-C ---


SLOWLY = """
import signal
import time
from sptnet.cli import main
from sptnet.training.trainer import StageTrainer

step = StageTrainer.train_step
StageTrainer.train_step = lambda self, *words: (time.sleep(0.5 * (self.epoch > 0)), step(self, *words))[1]
# Tests may run in the background or under nohup, where signals are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
main()
"""


def real_command(*words):
    """The command in a process of its own, slow after its first epoch, so that there is time to interrupt it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-W", "ignore", "-c", SLOWLY, *words]
    return subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize(
    ("number", "said_first"), [(signal.SIGINT, "stopped; "), (signal.SIGTERM, "stopped by SIGTERM; ")]
)
def test_a_signal_says_how_to_go_on_and_that_works(
    command, train_words, undisturbed, tmp_path, assert_same_result, number, said_first
):
    folder = tmp_path / "a run"
    process = real_command(*train_words, "--out", str(folder))
    try:
        wait_until(lambda: (folder / "checkpoints").is_dir() and newest_checkpoint(folder / "checkpoints"))
        process.send_signal(number)
        out, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    assert json.loads((folder / "run.json").read_text())["status"] == "stopped"
    assert out == ""
    (line,) = [line for line in said.splitlines() if "Resume with: " in line]
    assert line.startswith(f"{said_first}whole epochs are kept. Resume with: ")
    program, *words = shlex.split(line.split("Resume with: ")[1])
    assert (program, words) == ("sptnet", ["train", "--resume", "--out", str(folder)])
    resumed = command(words)
    assert resumed.wait() == 0, resumed.said
    assert "going on from stage" in resumed.said
    assert_same_result(folder, undisturbed(command, train_words))


def ending_workers_first(pid, number):
    """Signal the children of a process, and the process when they have got it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), number)
    os.kill(pid, number)


@pytest.mark.parametrize(
    ("number", "send"),
    [
        (signal.SIGINT, os.killpg),
        (signal.SIGTERM, os.killpg),
        (signal.SIGHUP, os.killpg),
        (signal.SIGTERM, os.kill),
        (signal.SIGTERM, ending_workers_first),
    ],
)
def test_a_signal_ends_the_workers_too(command, train_words, tmp_path, number, send):
    """Ctrl-C and batch systems signal all processes of a group, in any order, or only the first one."""
    folder = tmp_path / "run"
    settings = ["--set", "views.workers=2", "--set", "simgcd.epochs=1000"]
    process = command([*train_words, *settings, "--out", str(folder)])
    wait_until(lambda: (folder / "checkpoints").is_dir() and newest_checkpoint(folder / "checkpoints"))
    send(process.pid, number)
    assert process.wait() == 128 + number, process.said
    assert "Traceback" not in process.said
    assert process.said.count("Resume with: sptnet train --resume") == 1
    assert json.loads((folder / "run.json").read_text())["status"] == "stopped"
    wait_until(lambda: not group_exists(process.pid))


@pytest.mark.parametrize("first", ["signal", "worker"])
def test_workers_that_end_while_a_stop_is_written_change_nothing(command, train_words, tmp_path, first):
    """Torch raises an error for a worker that has ended wherever the program is: before the signal, or in its wake."""
    folder = tmp_path / "run"

    def prepare():
        from sptnet.results.run_folder import RunFolder
        from sptnet.training.experiment import Experiment

        def worker_ends(number=None, frame=None):
            raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated.")

        def interrupted(self, resume):
            if first == "worker":
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
                worker_ends()
            os.kill(os.getpid(), signal.SIGTERM)

        def write_end(self, *words):
            os.kill(os.getpid(), signal.SIGCHLD)
            time.sleep(0.01)  # the handler runs here
            return inner(self, *words)

        signal.signal(signal.SIGCHLD, worker_ends)
        inner, RunFolder.write_end = RunFolder.write_end, write_end
        Experiment._complete = interrupted

    process = command([*train_words, "--out", str(folder)], prepare)
    assert process.wait() == 143, process.said
    assert "stopped by SIGTERM; whole epochs are kept. Resume with: sptnet train --resume" in process.said
    assert json.loads((folder / "run.json").read_text())["status"] == "stopped"


def group_exists(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_run_that_fails_says_so(run_it, tiny_config, few_digits, tmp_path, monkeypatch):
    stop_at_step(monkeypatch, 1, Failure("spoilt"))
    with pytest.raises(Failure, match="spoilt"):
        run_it(tmp_path / "run", tiny_config, few_digits)
    assert RunFolder(tmp_path / "run").facts()["status"] == "failed"
    monkeypatch.undo()
    run_it(tmp_path / "run", resume=True, data=few_digits)
    assert RunFolder(tmp_path / "run").facts()["status"] == "finished"


def test_a_full_disk_does_not_hide_why_a_run_failed(run_it, tiny_config, few_digits, tmp_path, monkeypatch, capfd):
    def full(self, facts):
        raise OSError(28, "No space left on device")

    def spoilt(self, batch, phase, at):
        monkeypatch.setattr(RunFolder, "write_facts", full)
        raise Failure("spoilt")

    monkeypatch.setattr(StageTrainer, "train_step", spoilt)
    with pytest.raises(Failure, match="spoilt"):
        run_it(tmp_path / "run", tiny_config, few_digits)
    assert "run.json does not say that the run has ended ([Errno 28] No space left on device)" in capfd.readouterr().err


def test_ctrl_c_during_a_destructor_is_not_lost(command, train_words, tmp_path):
    """Python drops what a signal handler raises there; the next step must stop all the same."""

    def prepare():
        import sptnet.training.batching.batches

        class Leaving:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)  # the handler runs here

        made = sptnet.training.batching.batches.EpochBatches

        def interrupted(*words):
            Leaving()
            return made(*words)

        sys.unraisablehook = lambda _: None
        sptnet.training.batching.batches.EpochBatches = interrupted

    process = command([*train_words, "--set", "simgcd.epochs=1000", "--out", str(tmp_path / "run")], prepare)
    assert process.wait() == 130, process.said
    assert process.said.count("Resume with: sptnet train --resume") == 1
    assert "epoch 1/" not in process.said


def test_ctrl_c_before_there_is_a_run_promises_nothing(command, train_words, tmp_path):
    """What is printed must work: there is nothing to resume while the images are still being read."""

    def prepare():
        import sptnet.training.prepare

        def interrupted(*_):
            raise KeyboardInterrupt

        sptnet.training.prepare.load_data = interrupted

    folder = tmp_path / "run"
    process = command([*train_words, "--out", str(folder)], prepare)
    assert process.wait() == 130
    assert not folder.exists()
    assert process.said.splitlines()[-1] == "stopped"


def test_resume_takes_no_other_settings(command, train_words, undisturbed):
    folder = undisturbed(command, train_words)
    process = command(["train", "--resume", "--out", str(folder), "--set", "training.batch_size=16"])
    assert process.wait() == 2
    assert "error: --resume goes on with the settings of the run." in process.said


def test_a_run_is_not_written_over_unasked(command, train_words, undisturbed):
    folder = undisturbed(command, train_words)
    before = (folder / "predictions.csv").stat().st_mtime_ns
    process = command([*train_words, "--out", str(folder)])
    assert process.wait() == 2
    assert "--resume" in process.said
    assert "--overwrite" in process.said
    assert (folder / "predictions.csv").stat().st_mtime_ns == before
