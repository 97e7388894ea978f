"""Finished runs for the tests of the report page: one with hostile names, one with labels, one to be reviewed."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from helpers.result_runs import make_run
from sptnet.config import PromptSettings
from sptnet.head import PrototypeHead
from sptnet.model.backbone import build_backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import ModelCard, save_model
from sptnet.results.expected_accuracy import ExpectedAccuracy
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult

HOSTILE = (
    "<script>window.hacked=1</script>.png",
    "</script>.png",
    "<img src=x onerror=window.hacked=1>.png",
    "unlabelled/\"quotes\" & 'more'.png",
    "unlabelled/two\nlines.png",
    "unlabelled/\U0001f9a6 né 漢字.png",
    "unlabelled/" + 251 * "n" + ".png",
    "unlabelled/not utf-8 \udcff\udcfe.png",
)
NAMES = ("cat", "<b>dog</b>", "constructor", "new-1", "new-2")
N = 40


def hostile_result() -> RunResult:
    """Forty images in five categories, three known; two of each category are doubtful, and every truth is known."""
    random = np.random.RandomState(0)
    ids = [*HOSTILE, *(f"unlabelled/{i:02d}.png" for i in range(len(HOSTILE), N))]
    category = np.sort(np.concatenate([np.arange(5).repeat(6), np.repeat([3, 3, 4, 4, 4], 2)]))
    features = 4 * np.eye(5, 16)[category] + random.standard_normal((N, 16)) * 0.3
    certainty = random.uniform(0.6, 1, N)
    certainty[[np.flatnonzero(category == c)[i] for c in range(5) for i in (1, 3)]] = (0.33, 0.3) * 5
    truth = [NAMES[c] if c < 3 else f"fish {c}" for c in category]
    truth[0], truth[-1] = "<b>dog</b>", "cat"
    return RunResult(
        ids=tuple(ids),
        sources=(None,) * N,
        part=("unlabelled",) * N,
        names=NAMES,
        n_known=3,
        category=category,
        certainty=certainty.round(4).astype(np.float32),
        features=(features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32),
        truth=tuple(truth),
    )


def assessed_result() -> RunResult:
    """The same images; five of them have labels, of which the model contradicts two, and three truths are unknown."""
    result = hostile_result()
    labelled = np.flatnonzero(result.category < 3)[[0, 2, 5, 8, 12]]
    part, truth = ["unlabelled"] * N, list(result.truth)
    guess, guess_certainty = result.category.copy(), result.certainty.copy()
    for i in labelled.tolist():
        part[i], truth[i] = "labelled", NAMES[result.category[i]]
    guess[labelled[:2]], guess_certainty[labelled[:2]] = (1, 3), (0.4, 0.875)
    truth[-3:] = [None] * 3
    certainty = np.where(np.array(part) == "labelled", 1, result.certainty).astype(np.float32)
    changes = {"part": tuple(part), "truth": tuple(truth), "guess": guess, "guess_certainty": guess_certainty}
    return replace(result, certainty=certainty, **changes)


def assessed_run(root: Path, expected: ExpectedAccuracy | None, reason: str = "") -> Path:
    """Write a run in `root`/run that knows its expected accuracy, or a reason for not knowing it; without a model."""
    result = assessed_result()
    run = make_run(root, result, files=False, guesses=True)
    for i, id_ in enumerate(result.ids):
        (root / "data" / id_).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20), (6 * i, 90, 250 - 6 * i)).save(root / "data" / id_)
    facts = {"expected_accuracy": None if expected is None else expected.as_dict(), "expected_accuracy_reason": reason}
    RunFolder(run).write_facts({"data": {"name": "pets"}, **facts})
    return run


def hostile_run(root: Path) -> Path:
    """Write a run in `root`/run with images, a model with prompts, curves, scores and an estimate."""
    result = hostile_result()
    run = make_run(root, result)
    random = np.random.RandomState(1)
    for i, id_ in enumerate(result.ids):
        noise = random.randint(0, 60, (20, 24)) + 30 * int(result.category[i]) + 20
        Image.fromarray(noise.astype(np.uint8)).save(root / "data" / id_)
    backbone = build_backbone("sptnet_digits_vit")
    model = GcdModel(backbone, PrototypeHead(backbone.dim, len(NAMES), hidden=16, bottleneck=8))
    prompt = PromptSettings(kind="spatial+global", border=8)
    model.attach_prompt(prompt)
    save_model(run / "model", model, ModelCard(NAMES, 3, prompt, 0.875))
    folder = RunFolder(run)
    for epoch in (1, 2, 3):
        scores = {"unlabelled": {"all": 0.5 + epoch / 10, "old": 0.9, "new": None}}
        folder.add_metrics(
            {"stage": "sptnet", "epoch": epoch, "losses": {"model": {"total": 4.0 / epoch}}, "scores": scores}
        )
    folder.write_facts(
        {
            "data": {"name": "<pets>", "unreadable": [{"image": "<script>.png", "reason": "truncated"}]},
            "scores": {"unlabelled": {"all": 0.715, "old": 0.9, "new": None}},
        }
    )
    trial = {"labelled_accuracy": 0.5, "silhouette": 0.1, "inertia": 1.0}
    curve = [{"n_categories": n, "score": score, **trial} for n, score in ((3, 0.1), (5, 0.8), (9, 0.3))]
    estimate = {"n_categories": 5, "interval": [4, 6], "method": "balance", "curve": curve}
    folder.estimate_file.write_text(json.dumps(estimate), encoding="utf-8")
    return run


LONG = 100 * "W"
REVIEW_NAMES = ("cat", LONG, "new-1", "new-2", "new-3", "new-4")
REVIEW_SIZES = (12, 9, 9, 6, 3, 1)
SOME_FOLDER = "/data/of/somebody"


def review_result() -> RunResult:
    """Forty images in six categories of 12 to 1 images, two known; three cats are labels, every fourth is doubtful."""
    random = np.random.RandomState(0)
    category = np.repeat(np.arange(6), REVIEW_SIZES)
    features = 4 * np.eye(6, 16)[category] + random.standard_normal((N, 16)) * 0.3
    certainty = np.linspace(0.99, 0.51, N)
    certainty[3::4] -= 0.35
    part = ["labelled"] * 3 + ["unlabelled"] * (N - 3)
    guess = category.copy()
    guess[1] = 2  # a label that looks like another category
    guess_certainty = certainty.astype(np.float32).round(4)
    return RunResult(
        ids=tuple(f"photos/{(7 * i) % N:02d}.png" for i in range(N)),
        sources=(None,) * N,
        part=tuple(part),
        names=REVIEW_NAMES,
        n_known=2,
        category=category,
        certainty=np.where(np.array(part) == "labelled", 1, guess_certainty).astype(np.float32),
        features=(features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32),
        truth=tuple(
            "dog" if i in (4, 5) else REVIEW_NAMES[c] if c < 2 else f"fish {c}" for i, c in enumerate(category)
        ),
        guess=guess,
        guess_certainty=guess_certainty,
    )


def review_run(root: Path) -> Path:
    """Write a run in `root`/run to be reviewed: labels, second choices, file times, a range of the count; no model.

    Its settings, its command and its unreadable images name folders of the machine.
    """
    result = review_result()
    run = make_run(root, result, files=False, guesses=True, seconds=True)
    for i, id_ in enumerate(result.ids):
        file = root / "data" / id_
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (6 * i, 90, 250 - 6 * i)).save(file)
        os.utime(file, (0, 1_600_000_000 + 86_400 * i))
    folder = RunFolder(run)
    config = folder.config()
    backbone = config.backbone.model_copy(update={"weights": f"{SOME_FOLDER}/vit.safetensors"})
    folder.write_config(config.model_copy(update={"backbone": backbone}))
    folder.write_facts(
        {
            "data": {"name": "pets", "unreadable": [{"image": "a.png", "reason": "truncated"}]},
            "command": ["sptnet", "discover", str(root / "data"), "--out", str(run), f"--weights={SOME_FOLDER}/vit.pt"],
            "expected_accuracy": ExpectedAccuracy(0.62, 0.55, 0.7, dict.fromkeys(REVIEW_NAMES, 0.6)).as_dict(),
        }
    )
    folder.write_estimate({"n_categories": 6, "interval": [3, 8], "method": "balance", "curve": []})
    return run
