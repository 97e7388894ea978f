"""The order of phases, the parameters that they train, and their views."""

import pytest

from sptnet.config import Config
from sptnet.errors import Misuse
from sptnet.methods import stages_of
from sptnet.methods.phases import JOINT, MODEL, PROMPT, RAW, Always, OneThenOther, Phase, TakeTurns, View
from sptnet.methods.sptnet import turns
from sptnet.results.run_folder import RunFolder
from sptnet.training.experiment import Experiment
from sptnet.training.trainer import StageTrainer

RAW_PAIR = (View(0, False), View(1, False))
PROMPTED_PAIR = (View(0, True), View(1, True))
RAW_AND_PROMPTED = (View(0, False), View(0, True))


def names(turns, epochs, batches):
    return [[turns.at(e, b, epochs, batches).name for b in range(batches)] for e in range(epochs)]


def published_toggle(batches, k):
    """Run one epoch of the published loop: a flag is flipped before it is read."""
    training_prompts, sequence = True, []
    for batch in range(batches):
        if (batch + 1) % k == 0:
            training_prompts = not training_prompts
        sequence.append("prompt" if training_prompts else "model")
    return sequence


def test_the_published_toggle_on_46_batches():
    first, second, third = names(TakeTurns(PROMPT, MODEL, 20), 3, 46)
    assert [i for i, name in enumerate(first) if name == "prompt"] == [*range(0, 19), *range(39, 46)]
    assert [i for i, name in enumerate(first) if name == "model"] == [*range(19, 39)]
    assert (first.count("prompt"), first.count("model")) == (26, 20)
    assert first == second == third, "every epoch begins anew"


@pytest.mark.parametrize(
    ("images", "prompt", "model"), [(5994, 26, 20), (6667, 32, 20), (8144, 39, 24)], ids=["CUB", "Aircraft", "Cars"]
)
def test_the_published_counts(images, prompt, model):
    (epoch,) = names(TakeTurns(PROMPT, MODEL, 20), 1, images // 128)
    assert (epoch.count("prompt"), epoch.count("model")) == (prompt, model)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 20, 100])
@pytest.mark.parametrize("batches", [1, 2, 19, 20, 21, 46])
def test_the_restarting_turns_are_the_published_loop(k, batches):
    assert names(TakeTurns(PROMPT, MODEL, k), 1, batches) == [published_toggle(batches, k)]


def test_the_continuous_count_runs_through_the_epochs():
    epochs = names(TakeTurns(PROMPT, MODEL, 20, restart=False), 20, 46)
    steps = [name for epoch in epochs for name in epoch]
    turns_taken = [steps[i : i + 20] for i in range(0, len(steps), 20)]
    assert [set(turn) for turn in turns_taken] == [{"prompt"}, {"model"}] * 23
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("k", [11, 20, 29])
def test_steps_are_counted_through_epochs_shorter_than_a_turn(k):
    assert names(TakeTurns(PROMPT, MODEL, k), 9, 10) == names(TakeTurns(PROMPT, MODEL, k, restart=False), 9, 10)
    assert names(TakeTurns(PROMPT, MODEL, 10), 9, 10) != names(TakeTurns(PROMPT, MODEL, 10, restart=False), 9, 10)


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("k", [1, 2, 3, 9, 10, 11, 29, 30, 31])
@pytest.mark.parametrize("epochs", [1, 3])
def test_turns_that_never_come_are_refused(epochs, k, restart):
    """Refused are exactly those without a step of the model phase in any epoch."""
    turns = TakeTurns(PROMPT, MODEL, k, restart)
    assert any("prompt" in epoch for epoch in names(turns, epochs, 10))
    if any("model" in epoch for epoch in names(turns, epochs, 10)):
        turns.check(epochs, 10)
        return
    assert k >= 10 * epochs
    message = f"a turn has {k} batches .*, but the whole training only {10 * epochs}: the model's turn would never come"
    with pytest.raises(Misuse, match=message):
        turns.check(epochs, 10)


def test_a_run_says_when_its_turns_go_on_through_the_epochs(tiny_config, few_digits, tmp_path):
    for k, said in ((5, []), (6, ["an epoch has 5 batches, fewer than a turn's 6: turns go on through the epochs"])):
        messages = []
        config = tiny_config.changed(sptnet={"k": k}, simgcd={"epochs": 1})
        experiment = Experiment(config, RunFolder(tmp_path / str(k)), few_digits, tell=messages.append)
        experiment.run()
        steps = [line["steps"] for line in experiment.run_folder.metrics() if line["stage"] == "sptnet"]
        assert [line for line in messages if "turns go on" in line] == said
        assert sum(step.get("model", 0) for step in steps) == (3 if k == 5 else 6)


def test_a_run_whose_model_would_never_train_is_not_begun(tiny_config, few_digits, run_it, tmp_path):
    """Three epochs of sixty images are fifteen batches, fewer than the published twenty of a turn."""
    with pytest.raises(Misuse, match=r"the whole training only 15: .* such as `sptnet.k=3`, or more `sptnet.epochs`"):
        run_it(tmp_path / "run", tiny_config.changed(sptnet={"k": 20}), few_digits)
    assert not (tmp_path / "run").exists()


def test_the_phase_changes_after_half_of_the_epochs():
    assert names(OneThenOther(PROMPT, MODEL), 4, 2) == [["prompt"] * 2] * 2 + [["model"] * 2] * 2
    assert names(OneThenOther(MODEL, PROMPT), 5, 1) == [["model"]] * 3 + [["prompt"]] * 2


def test_parameters_and_views_of_each_phase():
    assert Phase("prompt", frozenset({"prompt"}), PROMPTED_PAIR) == PROMPT
    assert Phase("model", frozenset({"model"}), RAW_AND_PROMPTED) == MODEL
    assert Phase("raw", frozenset({"model"}), RAW_PAIR) == RAW
    assert Phase("joint", frozenset({"prompt", "model"}), PROMPTED_PAIR) == JOINT


def test_stage_two_needs_one_draw_and_all_else_two():
    assert MODEL.draws == 1
    assert [phase.draws for phase in (PROMPT, RAW, JOINT)] == [2, 2, 2]


def config_with(strategy="alternate", kind="spatial+global", **sptnet):
    return Config(method="sptnet", prompt={"kind": kind}, sptnet={"strategy": strategy, **sptnet})


@pytest.mark.parametrize(
    ("strategy", "sequence"),
    [
        ("alternate", [["prompt", "model", "model", "prompt"]] * 4),
        ("end-to-end", [["joint"] * 4] * 4),
        ("data-first", [["prompt"] * 4] * 2 + [["model"] * 4] * 2),
        ("model-first", [["model"] * 4] * 2 + [["prompt"] * 4] * 2),
        ("prompts-only", [["prompt"] * 4] * 4),
        ("random-prompts", [["model"] * 4] * 4),
        ("fine-tune", [["raw"] * 4] * 4),
    ],
)
def test_every_strategy(strategy, sequence):
    assert names(turns(config_with(strategy, k=2).sptnet), 4, 4) == sequence


def test_every_strategy_of_the_settings_has_turns():
    from typing import get_args

    from sptnet.config import SptNetSettings

    for strategy in get_args(SptNetSettings.model_fields["strategy"].annotation):
        assert turns(config_with(strategy).sptnet).at(0, 0, 1, 1).trains


def test_the_counter_setting():
    assert turns(config_with(k=3, counter="epoch").sptnet) == TakeTurns(PROMPT, MODEL, 3, restart=True)
    assert turns(config_with(k=3, counter="continuous").sptnet) == TakeTurns(PROMPT, MODEL, 3, restart=False)
    assert turns(config_with().sptnet) == TakeTurns(PROMPT, MODEL, 20, restart=True)


def test_sptnet_is_two_stages():
    simgcd, sptnet = stages_of(config_with(kind="spatial"))
    assert (simgcd.name, simgcd.epochs, simgcd.prompt_kind, simgcd.turns) == ("simgcd", 200, "none", Always(RAW))
    assert set(simgcd.optimisers) == {"model"}
    assert (sptnet.name, sptnet.epochs, sptnet.prompt_kind) == ("sptnet", 1000, "spatial")
    assert set(sptnet.optimisers) == {"prompt", "model"}


def test_simgcd_is_the_first_stage_of_sptnet():
    (only,) = stages_of(Config(method="simgcd"))
    assert (only.name, only.turns, only.prompt_kind) == ("simgcd", Always(RAW), "none")


def test_a_finished_simgcd_run_saves_the_first_stage():
    assert [plan.name for plan in stages_of(config_with(start_from="runs/simgcd"))] == ["sptnet"]


def test_a_strategy_with_prompts_needs_prompts():
    with pytest.raises(Misuse, match="fine-tune"):
        stages_of(config_with("alternate", kind="none"))
    assert stages_of(config_with("fine-tune", kind="none"))[-1].prompt_kind == "none"
    assert stages_of(config_with("fine-tune", kind="spatial"))[-1].prompt_kind == "none"


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(Misuse, match="simgcd, sptnet"):
        stages_of(Config(method="simgdc"))


def test_the_trainer_counts_batches_for_the_turns(make_model, make_training_data, few_digits, cpu):
    model = make_model()
    plan = stages_of(config_with(k=2, counter="continuous"))[-1]
    data = make_training_data(few_digits.image_set, model.backbone)
    trainer = StageTrainer(model, plan, data, cpu, stage=1, batch_size=8, seed=0)  # sixty images: seven batches
    p, m = "prompt", "model"
    assert [phase.name for phase in trainer.phases_of(0)] == [p, p, m, m, p, p, m]
    assert [phase.name for phase in trainer.phases_of(1)] == [m, p, p, m, m, p, p]


def test_epochs_of_one_batch_that_are_always_the_turn_of_the_model_are_refused():
    turns = TakeTurns(PROMPT, MODEL, 1)
    assert names(turns, 3, 1) == [["model"]] * 3
    with pytest.raises(Misuse, match=r"always the model's turn\. .* `sptnet\.counter=continuous`"):
        turns.check(3, 1)
    turns.check(3, 2)
    TakeTurns(PROMPT, MODEL, 1, restart=False).check(3, 1)
