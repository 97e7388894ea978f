"""The command line under torchrun: one run directory, output of rank 0 only, results of a single process, resuming."""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from conftest import Call, Command
from helpers.digit_folders import fill
from helpers.torchrun import torchrun
from helpers.tracks import read_tensorboard
from helpers.trained_runs import assert_same_weights
from sptnet.model.backbone import EMBEDDED, build_backbone


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory, digit_folder: Path, tiny_weights: Path) -> list[str]:
    settings = [
        f'backbone.weights="{tiny_weights}"',
        *("backbone.name=sptnet_digits_vit", "head.hidden=16", "head.bottleneck=8", "data.source=folder"),
        *("training.batch_size=12", "training.evaluate_every=1", "simgcd.epochs=2", "sptnet.epochs=2", "sptnet.k=2"),
        *("prompt.border=5", "device=cpu", "n_categories=10", "data.known_classes=5", "views.workers=0"),
    ]
    return [
        "-m",
        "sptnet",
        "train",
        "digits",
        "--data",
        str(digit_folder),
        *(w for s in settings for w in ("--set", s)),
    ]


@pytest.fixture(scope="module")
def alone(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    in_one_process([*words, "--out", out], out.with_name("said.txt"))
    return out


def in_one_process(words: list[Any], said: Path) -> None:
    """Run the command after `-m sptnet` in a forked process, which need not import anything again."""
    command = Command([str(word) for word in words[2:]], said, lambda: None)
    assert command.wait() == 0, command.said


def categories(run: Path) -> list[list[str]]:
    with (run / "predictions.csv").open(newline="") as file:
        return [row[:2] for row in csv.reader(file)]


def assert_same_run(one: Path, other: Path, start: Path) -> None:
    assert_same_weights(one, other, load_file(start))
    assert categories(one) == categories(other)
    scores, theirs = (json.loads((run / "run.json").read_text())["scores"] for run in (one, other))
    assert scores["unlabelled"]["all"] == theirs["unlabelled"]["all"]


def assert_same_findings(one: Path, other: Path) -> None:
    assert categories(one) == categories(other)
    assert_same_weights(one, other, build_backbone(EMBEDDED).vit.state_dict())


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("discover") / "photos")


def test_two_processes_leave_the_run_of_one(words: list[str], alone: Path, tiny_weights: Path, tmp_path: Path) -> None:
    done = torchrun(*words, "--track", "tensorboard", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert_same_run(tmp_path / "run", alone, tiny_weights)
    track = read_tensorboard(tmp_path / "run")
    assert [step for step, _ in track.scalars["speed/images_per_second"]] == [1, 2, 3, 4], "only rank 0 tracks"
    assert len(list((tmp_path / "run" / "track" / "tensorboard").iterdir())) == len(track.reports) == 1
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["epoch"]) for line in lines] == [
        ("simgcd", 1),
        ("simgcd", 2),
        ("sptnet", 1),
        ("sptnet", 2),
    ]
    assert done.stderr.count("sptnet epoch 2/2") == 1, "only rank 0 prints"
    assert done.stdout.count("accuracy in per cent") == 1


def test_two_machines_leave_the_run_of_one_and_each_has_its_own_bank(
    words: list[str], tiny_weights: Path, tmp_path: Path
) -> None:
    """Two launchers with a rendezvous over the network, as on two machines with a shared disk."""
    bank = ["--set", "views.bank=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    in_one_process([*words, *bank, "--out", tmp_path / "alone"], tmp_path / "said.txt")
    rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}", "--rdzv-id=job"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", *rendezvous]
    machines = [
        subprocess.Popen([*launcher, *words, *bank, "--out", tmp_path / "run"], env=environment) for _ in range(2)
    ]
    assert [machine.wait(timeout=300) for machine in machines] == [0, 0]
    assert_same_run(tmp_path / "run", tmp_path / "alone", tiny_weights)
    banks = [(tmp_path / "run" / "tokens" / f"machine-{n}" / "sums.bin").read_bytes() for n in (0, 1)]
    assert all(any(bank) for bank in banks) and banks[0] != banks[1]
    assert not (tmp_path / "run" / "tokens" / "sums.bin").exists()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def test_two_processes_estimate_the_same_count(words: list[str], call: Call, tmp_path: Path) -> None:
    settings = words[words.index("--data") :]
    estimate = ["-m", "sptnet", "estimate", "digits", *settings, "--json"]
    done = torchrun(*estimate, "--plot", tmp_path / "curve.png")
    assert done.returncode == 0, done.stderr
    found, expected = json.loads(done.stdout), json.loads(call(*estimate[2:]).out)  # output of both would be no JSON
    assert (found["n_categories"], found["interval"]) == (expected["n_categories"], expected["interval"])
    assert [trial["n_categories"] for trial in found["curve"]] == [t["n_categories"] for t in expected["curve"]]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_two_processes_discover_what_one_discovers(photos: Path, tmp_path: Path) -> None:
    discover = ["-m", "sptnet", "discover", photos, "--method", "simgcd", "--epochs", "3", "--set", "views.bank=2"]
    discover += ["--backbone", "sptnet_digits_vit", "--set", "backbone.image_size=32", "--device", "cpu"]
    done = torchrun(*discover, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert (done.stdout.count("plan:"), done.stdout.count("report: ")) == (1, 1)
    assert (tmp_path / "run" / "report.html").is_file()
    assert not (tmp_path / "run" / "tokens").exists()
    in_one_process([*discover, "--no-report", "--out", tmp_path / "alone"], tmp_path / "said.txt")
    assert_same_findings(tmp_path / "run", tmp_path / "alone")


FIT = """
import json, os, sys
from pathlib import Path
from sptnet import CategoryDiscoverer
images, out = map(Path, sys.argv[1:])
settings = {"backbone.image_size": 32}
fitted = CategoryDiscoverer(
    "simgcd", 6, "sptnet_digits_vit", "cpu", None, epochs=2, settings=settings, out=out
).fit(images)
result = [fitted.plan_.seconds, fitted.plan_.config.seed, fitted.labels_.tolist()]
(out.parent / os.environ["RANK"]).write_text(json.dumps(result))
"""


def test_all_ranks_follow_one_plan(photos: Path, tmp_path: Path) -> None:
    """Each rank alone would measure another time and draw another seed."""
    (tmp_path / "fit.py").write_text(FIT)
    done = torchrun(tmp_path / "fit.py", photos, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / rank).read_text()) for rank in "01")
    assert first == second
    assert len(first[2]) == 48


def test_rank_0_runs_a_command_of_one_process(call: Call) -> None:
    done = torchrun("-m", "sptnet", "recipes", "list")
    assert (done.returncode, done.stdout) == (0, call("recipes", "list").out), done.stderr


def test_misuse_that_all_ranks_raise_is_printed_once(tmp_path: Path) -> None:
    done = torchrun("-m", "sptnet", "train", "nonsense", "--out", tmp_path / "run")
    assert done.returncode != 0
    assert done.stderr.count("there is no recipe 'nonsense'") == 1


def test_misuse_is_printed_once(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("not a run")
    done = torchrun(*words, "--out", tmp_path)
    assert done.returncode != 0
    assert done.stderr.count("holds other files than a run") == 1
    assert (tmp_path / "mine.txt").read_text() == "not a run"


def test_a_killed_process_ends_the_job_and_another_number_of_processes_resumes_it(
    words: list[str], alone: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    module = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    job = subprocess.Popen(
        [*module, *words, "--out", run], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    )
    deadline = time.monotonic() + 200
    while not list((run / "checkpoints").glob("stage0-*")) and time.monotonic() < deadline:
        assert job.poll() is None, job.stderr and job.stderr.read()
        time.sleep(0.02)
    workers = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(workers[-1]), signal.SIGKILL)
    _, said = job.communicate(timeout=200)
    assert job.returncode != 0
    assert "SIGKILL" in said or "is lost" in said
    assert list((run / "checkpoints").glob("stage*.safetensors"))
    assert not (run / "predictions.csv").exists()
    again = Command(["train", "--resume", "--out", str(run)], tmp_path / "said.txt", lambda: None)
    assert again.wait() == 0, again.said
    assert "going on from stage" in again.said
    assert_same_run(run, alone, tiny_weights)


def test_the_stop_of_a_batch_system_ends_all_processes_with_one_line(words: list[str], tmp_path: Path) -> None:
    """It signals torchrun and all processes, and torchrun signals its processes once more."""
    run = tmp_path / "run"
    module = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    job = subprocess.Popen(
        [*module, *words, "--out", run, "--set", "simgcd.epochs=1000"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 200
        while not list((run / "checkpoints").glob("stage0-*")) and time.monotonic() < deadline:
            assert job.poll() is None, job.stderr and job.stderr.read()
            time.sleep(0.02)
        os.killpg(job.pid, signal.SIGTERM)
        _, said = job.communicate(timeout=200)
        assert job.returncode != 0
        assert said.count("stopped by SIGTERM; whole epochs are kept. Resume with: sptnet train --resume") == 1
        assert json.loads((run / "run.json").read_text())["status"] == "stopped"
        with pytest.raises(ProcessLookupError):
            os.killpg(job.pid, 0)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
