"""t-SNE of the features of runs: one panel per run, with the same images in each."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sptnet.errors import SptnetError
from sptnet.report.figures.canvas import Drawn
from sptnet.report.figures.chosen_runs import ChosenRun
from sptnet.report.figures.panels import Panel, plot
from sptnet.report.tsne import embed_2d
from sptnet.results.edits.log import current
from sptnet.results.run_result import DROPPED, RunResult
from sptnet.runtime.progress import tracker
from sptnet.runtime.seeds import seed_of

MOST_POINTS, MOST_CLASSES, LEAST_POINTS = 2000, 20, 10
MARKS = "● known classes   ▲ new classes"


@dataclass(frozen=True, eq=False)
class Coloured:
    """The result of a run, and the class by which each of its images is coloured."""

    label: str
    result: RunResult
    names: dict[str, str]
    """Class by id: the truth if known, else the category; without dropped images."""
    known: frozenset[str]

    def panel(self, ids: Sequence[str]) -> Panel:
        """Compute the panel of these images."""
        row = {id_: i for i, id_ in enumerate(self.result.ids)}
        rows = [row[id_] for id_ in ids]
        by_truth = all(self.result.truth[i] is not None for i in rows)
        return Panel(
            self.label, [self.names[i] for i in ids], self.known, by_truth, embed_2d(self.result.features[rows])
        )


def draw_tsne(runs: Sequence[ChosenRun]) -> Drawn:
    """Draw the t-SNE of all runs for the images that they have in common."""
    coloured, left_out = [], []
    for run in runs:
        try:
            coloured.append(_colour(run))
        except SptnetError as error:
            left_out.append(f"tsne of {run.label}: {error}")
    if not coloured:
        return Drawn(left_out=left_out)
    first = coloured[0]
    shared = {id_: name for id_, name in first.names.items() if all(id_ in each.names for each in coloured)}
    if len(shared) < LEAST_POINTS:
        reason = (
            f"the runs have {len(shared)} images in common, but it takes {LEAST_POINTS}. Give runs of the same data."
        )
        return Drawn(left_out=[*left_out, f"tsne: {reason}"])
    ids = choose_images(shared, first.known)
    n_shown, n_classes = len({shared[id_] for id_ in ids}), len(set(shared.values()))
    note = MARKS if n_shown == n_classes else f"{MARKS} ({n_shown} of {n_classes} classes)"
    track: Callable[..., Iterable[Coloured]] = tracker("t-SNE")
    panels = [each.panel(ids) for each in track(coloured, total=len(coloured))]
    return Drawn({"tsne": plot(panels, note)}, left_out)


def _colour(run: ChosenRun) -> Coloured:
    result = current(run.path)
    names = {
        id_: truth or result.names[category]
        for id_, truth, category in zip(result.ids, result.truth, result.category.tolist(), strict=True)
        if category != DROPPED
    }
    return Coloured(run.label, result, names, frozenset({*run.known_classes(), *result.names[: result.n_known]}))


def choose_images(names: dict[str, str], known: frozenset[str]) -> list[str]:
    """Choose at most 2000 images, by a fixed random draw, of the 20 largest classes: as many known as new ones."""
    sizes = Counter(names.values())
    by_size = sorted(sizes, key=lambda name: (-sizes[name], name))
    old, new = [name for name in by_size if name in known], [name for name in by_size if name not in known]
    n_old = min(len(old), max(MOST_CLASSES // 2, MOST_CLASSES - len(new)))
    shown = {*old[:n_old], *new[: MOST_CLASSES - n_old]}
    inside = [id_ for id_, name in names.items() if name in shown]
    drawn = set(sorted(inside, key=lambda id_: seed_of("t-sne", ascii(id_)))[:MOST_POINTS])
    return [id_ for id_ in inside if id_ in drawn]
