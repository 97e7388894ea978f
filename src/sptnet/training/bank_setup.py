"""Choose and open the token bank of a run."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sptnet.config import Config, ViewSettings
from sptnet.data.readable import BY_ENDS, WHOLE_FILES
from sptnet.errors import Misuse
from sptnet.methods import stages_of
from sptnet.methods.stage_plan import StagePlan
from sptnet.model.backbone import Backbone
from sptnet.model.bank_header import is_marked, read_header
from sptnet.model.token_bank import (
    BANKS,
    TokenBank,
    banks_with_room,
    free_disk,
    room_for_bank,
    rows_per_image,
    size,
    view_bytes,
    views_of_bank,
)
from sptnet.runtime.digest import digest
from sptnet.runtime.progress import Say


def with_bank(
    config: Config, run: Path, backbone: Backbone, n_images: int, tell: Say, machine: int | None = None
) -> Config:
    """Replace `views.bank = "auto"` by a number; refuse a bank that cannot be used."""
    views = config.views
    if views.bank and views.bank_folder:
        read_header(bank_folder(views, run, machine))  # refuses files of others before anything is written
    if views.bank == "auto":
        uses = reads_raw_views(stages_of(config))
        bank = choose_bank(config, run, backbone, n_images, tell, machine) if uses else 0
        return config.changed(views={"bank": bank})
    if views.bank and config.backbone.trainable_blocks > 1:
        raise Misuse(
            "a token bank holds what enters the last block, so only that block may train. Leave one of "
            "views.bank and backbone.trainable_blocks out."
        )
    return config


def choose_bank(
    config: Config, run: Path, backbone: Backbone, n_images: int, tell: Say, machine: int | None = None
) -> int:
    """Return the largest number of views that the disk has room for, or that of an existing bank."""
    views, folder = config.views, bank_folder(config.views, run, machine)
    if config.backbone.trainable_blocks > 1:
        tell("no token bank, since it would hold what enters the last block, and more than that block trains")
        return 0
    there = views_of_bank(folder) if views.bank_folder else None
    strong = trains_on_strong_views(stages_of(config))
    bank = there or next(iter(banks_with_room(views, folder, n_images, backbone, strong)), 0)
    per_view = n_images * view_bytes(backbone) * (2 if strong else 1)
    if bank:
        tell(f"token bank of {bank} views per image, up to {size(rows_per_image(bank) * per_view)} in {folder}")
    else:
        least, room = size(rows_per_image(BANKS[-1]) * per_view), room_for_bank(views, free_disk(folder))
        tell(
            f"no token bank: {BANKS[-1]} views per image take {least}, and it may have {size(room)}. "
            "Every step makes fresh views instead. More room: `views.bank_budget_gb=N`, or another disk with "
            "`views.bank_folder=DIR`."
        )
    return bank


def reads_raw_views(stages: Sequence[StagePlan]) -> bool:
    """True if a stage has views without prompts: all others change with the prompts and cannot be stored."""
    views = (view for plan in stages for phase in plan.turns.phases for view in phase.all_views)
    return any(not view.prompted for view in views)


def trains_on_strong_views(stages: Sequence[StagePlan]) -> bool:
    """True if a stage trains on strong views, which have a bank of their own."""
    return any(phase.strong_draws for plan in stages for phase in plan.turns.phases)


def open_bank(
    views: ViewSettings,
    run: Path,
    backbone: Backbone,
    n_images: int,
    fingerprint: Callable[[int], str],
    machine: int | None = None,
    with_strong: bool = False,
) -> TokenBank | None:
    """Open the bank of the settings, if any; stages of a run share it.

    `fingerprint` returns the fingerprint of the images by version; a bank keeps the version that it was made with.
    """
    assert views.bank != "auto", "a run begins with a number"
    if views.bank == 0:
        return None
    last_block = f"vit.blocks.{backbone.depth - 1}."
    weights = {name: value for name, value in backbone.state_dict().items() if not name.startswith(last_block)}
    folder, length = bank_folder(views, run, machine), backbone.tokens_per_view
    header = read_header(folder)
    by_ends = header is not None and not is_marked(header)  # a bank of 0.1.0
    images = fingerprint(BY_ENDS) if by_ends else f"images-{WHOLE_FILES}:{fingerprint(WHOLE_FILES)}"
    key = f"{digest(weights)} {images} {backbone.pixels} {views.crop_ratio} {views.flip}"
    return TokenBank(folder, n_images, views.bank, length, backbone.dim, key, with_strong)


def bank_folder(views: ViewSettings, run: Path, machine: int | None = None) -> Path:
    """Path of the bank; one per machine, since machines may see each other's writes late on a shared disk."""
    folder = Path(views.bank_folder) if views.bank_folder else run / "tokens"
    return folder if machine is None else folder / f"machine-{machine}"
