"""Problems of a checked folder, each a sentence that says what to do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sptnet.data.check.folder_check import ELONGATED, SHORT_SIDE, Duplicates, FolderCheck
from sptnet.data.image_file import UnreadableImage
from sptnet.data.readable import too_many_unreadable
from sptnet.runtime.text import listed, printable

# With fewer images, a single odd or mislabelled one has too much weight, and a batch rarely holds two images of the
# category, which the supervised contrastive loss needs.
LEAST_LABELLED = 5
MOST_UNEVEN = 10


@dataclass(frozen=True)
class Finding:
    """One problem of a folder."""

    about: str
    sentence: str
    examples: tuple[str, ...] = ()
    stops: bool = False
    """True if training is not possible."""


def findings_of(check: FolderCheck) -> list[Finding]:
    """Return the problems of a folder, those that prevent training first; empty if there are none."""
    findings = [*_unreadable(check), *_labels(check), *_duplicates(check), *_categories(check), *_sizes(check)]
    return sorted(findings, key=lambda finding: not finding.stops)


def can_train(findings: Sequence[Finding]) -> bool:
    """Return whether no problem prevents training."""
    return not any(finding.stops for finding in findings)


def _unreadable(check: FolderCheck) -> Iterator[Finding]:
    if check.unreadable:
        problems = [UnreadableImage(image.name, image.reason) for image in check.unreadable]
        refusal = too_many_unreadable(problems, check.images, check.max_unreadable)
        skipped = f"{_images(problems)} cannot be read and will be skipped. Repair or remove what matters."
        examples = tuple(f"{printable(image.name)}: {image.reason}" for image in check.unreadable)
        yield Finding("unreadable", refusal or skipped, examples, stops=refusal is not None)
    if check.heic_left_out:
        files = f"{check.heic_left_out:,} HEIC {'file is' if check.heic_left_out == 1 else 'files are'}"
        yield Finding("heic", f"{files} left out. Install sptnet[heic] to read such files.")


def _labels(check: FolderCheck) -> Iterator[Finding]:
    labelled = [category for category in check.categories if category.labelled]
    if not labelled:
        yield Finding(
            "no labels",
            "no training image has a label, so the images can only be clustered. To have categories recognised, sort "
            "some images into one sub-folder per category, or give a labels file.",
        )
    if len(labelled) == 1:
        yield Finding(
            "one category",
            f"only the category {printable(labelled[0].name)} has labels, so they show neither how categories differ "
            "nor how fine they are: their number is a guess, and the images are clustered unless you choose a method. "
            "Label a second category, or give the number with `n_categories=N`.",
        )


def _duplicates(check: FolderCheck) -> Iterator[Finding]:
    skipped = _skipped(check)
    kinds = (("exact duplicates", check.same_bytes), ("near duplicates", check.same_look))
    # Ordered by severity: different labels, then leaks into the test images, then the others; exact before near.
    for about, groups in kinds:
        conflicting = [group for group in groups if len(group.labels) > 1]
        if conflicting:
            yield Finding(
                f"{about}: labels",
                f"{_groups(conflicting, about)} with different labels. "
                + (
                    "Keep one image of each, under its right label."
                    if groups is check.same_bytes
                    else "Look at them: one label may be wrong."
                ),
                tuple(_named(group, with_labels=True) for group in conflicting),
            )
    if check.skips_duplicates:
        yield from [skipped] if skipped is not None else []
        return
    for about, groups in kinds:
        leaked = [group for group in groups if group.in_labelled_and_test and len(group.labels) < 2]
        if leaked:
            yield Finding(
                f"{about}: test",
                f"{_groups(leaked, about)} in both the labelled and the test images, which flatters the scores. "
                "Remove them from one of the two.",
                tuple(_named(group) for group in leaked),
            )
    for about, groups in kinds:
        rest = [group for group in groups if len(group.labels) < 2 and not group.in_labelled_and_test]
        if rest:
            extra = [image for group in rest for image in group.images[1:]]
            yield Finding(
                about,
                f"{_groups(rest, about)} elsewhere, {_images(extra)} too many. "
                "They count more than others; remove them if that is not wanted.",
                tuple(_named(group) for group in rest),
            )
    yield from [skipped] if skipped is not None else []


def _skipped(check: FolderCheck) -> Finding | None:
    """Return how many duplicates training leaves out, or could leave out."""
    skipped = [duplicate for duplicate in check.duplicates if duplicate.skipped]
    images = f"{_images(skipped)} that {'duplicates' if len(skipped) == 1 else 'duplicate'} another"
    if not skipped:
        return None
    if check.skips_duplicates:
        pairs = tuple(f"{printable(d.image)} duplicates {printable(d.original)}" for d in skipped)
        return Finding("skipped duplicates", f"{images} will be left out of training, counts and scores.", pairs)
    return Finding(
        "duplicates",
        f"{images} can be left out of training, counts and scores with `data.skip_duplicates=true`: duplicates make "
        "results look better than they are.",
    )


def _categories(check: FolderCheck) -> Iterator[Finding]:
    labelled = [category for category in check.categories if category.labelled]
    few = [category for category in labelled if category.labelled < LEAST_LABELLED]
    if few:
        yield Finding(
            "small categories",
            f"{listed([category.name for category in few])} "
            f"{'has' if len(few) == 1 else 'have'} fewer than {LEAST_LABELLED} labelled images, too few to learn from. "
            "Label more of them, or leave them unsorted to be discovered.",
        )
    enough = [category for category in labelled if category.labelled >= LEAST_LABELLED]
    if enough:
        most, least = (choose(enough, key=lambda c: c.labelled) for choose in (max, min))
        if most.labelled > MOST_UNEVEN * least.labelled:
            yield Finding(
                "uneven categories",
                f"the labelled categories are very uneven: {printable(most.name)} has {most.labelled:,} images, "
                f"{printable(least.name)} {least.labelled:,}. Label more of the small ones, or unsort some of the "
                "large ones.",
            )


def _sizes(check: FolderCheck) -> Iterator[Finding]:
    if check.small:
        yield Finding(
            "small images",
            f"{_images(check.small)} with a side of less than {SHORT_SIDE} pixels. Enlarging shows no more detail; "
            "use larger versions if there are any.",
            tuple(map(printable, check.small)),
        )
    if check.elongated:
        yield Finding(
            "elongated images",
            f"{_images(check.elongated)} with one side over {ELONGATED} times the other. Only the middle is looked at; "
            "cut out what matters.",
            tuple(map(printable, check.elongated)),
        )


def _images(items: Sequence[object]) -> str:
    return f"{len(items):,} {'image' if len(items) == 1 else 'images'}"


def _groups(groups: Sequence[Duplicates], about: str) -> str:
    return f"{len(groups):,} {'group' if len(groups) == 1 else 'groups'} of {about}"


def _named(group: Duplicates, with_labels: bool = False) -> str:
    labels = f" ({listed(group.labels)})" if with_labels else ""
    return listed(group.images, most=4) + labels
