"""SPTNet (Wang et al., ICLR 2024): prompts and model are trained alternately, starting from a SimGCD model."""

from sptnet.config import Config, SptNetSettings
from sptnet.errors import Misuse
from sptnet.methods import simgcd
from sptnet.methods.method import Method
from sptnet.methods.phases import JOINT, MODEL, PROMPT, RAW, Always, OneThenOther, TakeTurns, Turns
from sptnet.methods.stage_plan import Optimiser, StagePlan
from sptnet.schedules import warm_up_then_cosine


def turns(settings: SptNetSettings) -> Turns:
    """Return the order of phases of a strategy: those of the paper, and two controls, random and no prompts."""
    strategies: dict[str, Turns] = {
        "alternate": TakeTurns(PROMPT, MODEL, settings.k, restart=settings.counter == "epoch"),
        "end-to-end": Always(JOINT),
        "data-first": OneThenOther(PROMPT, MODEL),
        "model-first": OneThenOther(MODEL, PROMPT),
        "prompts-only": Always(PROMPT),
        "random-prompts": Always(MODEL),
        "fine-tune": Always(RAW),
    }
    return strategies[settings.strategy]


def prompt_optimiser(settings: SptNetSettings, momentum: float) -> Optimiser:
    """Return the optimiser of the prompts: warm-up, then cosine schedule per step; no weight decay."""

    def learning_rate(epoch: int, step: int, epochs: int, steps: int) -> float:
        return warm_up_then_cosine(settings.prompt_learning_rate, settings.prompt_warm_up, step, steps)

    return Optimiser(learning_rate, weight_decay=0.0, momentum=momentum)


def stages(config: Config) -> list[StagePlan]:
    """Return the stages of SPTNet: SimGCD, unless it starts from a run, then SPTNet."""
    settings, momentum = config.sptnet, config.training.momentum
    without_prompts = settings.strategy == "fine-tune"
    if config.prompt.kind == "none" and not without_prompts:
        raise Misuse(
            f"the strategy {settings.strategy} needs prompts, but `prompt.kind` is none. Choose a kind, or train "
            "without prompts by `sptnet.strategy=fine-tune`."
        )
    stage = StagePlan(
        name="sptnet",
        epochs=settings.epochs,
        turns=turns(settings),
        objective=simgcd.objective(settings),
        optimisers={
            "prompt": prompt_optimiser(settings, momentum),
            "model": simgcd.model_optimiser(settings, momentum),
        },
        prompt_kind="none" if without_prompts else config.prompt.kind,
        limit=simgcd.limit(settings),
    )
    return [stage] if settings.start_from else [*simgcd.stages(config), stage]


METHOD = Method(stages, simgcd.head, start="model", starts_from=("simgcd", "sptnet"))
