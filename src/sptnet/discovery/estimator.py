"""`CategoryDiscoverer`: category discovery with the interface of scikit-learn."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sptnet.config import Config
from sptnet.config.recipes import epoch_settings
from sptnet.data.load import SplitImages, split_image_set, with_known_classes
from sptnet.data.readable import drop_unreadable
from sptnet.discovery.discover import Wishes, plan_discovery
from sptnet.discovery.estimator_inputs import (
    as_image_set,
    as_images,
    has_names,
    label_names,
    label_per_category,
    plain_labels,
    seed_from,
)
from sptnet.discovery.settings import make_settings, read_images
from sptnet.errors import Misuse
from sptnet.inference.features import Outputs
from sptnet.inference.predictor import Predictor
from sptnet.metrics import split_accuracy
from sptnet.results.categories import describe_categories
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import read_result
from sptnet.runtime.distributed import world
from sptnet.runtime.progress import console, say

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[Any]


class CategoryDiscoverer(TransformerMixin, ClusterMixin, BaseEstimator):
    """Recognise known categories and discover new ones among images, some of which are labelled.

    `fit(X, y)` takes as X a folder, a list of paths, arrays (images x height x width x channels, or a list), Pillow
    images, tensors, or a torch Dataset of images or of (image, label). y holds a name or a whole number per image, and
    -1, None or NaN for unlabelled images. A folder needs no y: the names of its sub-folders are the labels.

    Labels come back in the form in which they were given. If y holds names, predictions are names, and new categories
    are called new-1, new-2 and so on. If y holds whole numbers, predictions are whole numbers, and new categories have
    the numbers after the largest label: 1, 2 and 4 are followed by 5. Without labels the categories are 0, 1 and so on.

    Parameters
    ----------
    method : "kmeans", "sskmeans", "gcd", "simgcd", "sptnet", "rankstats", "uno", "orca", "dccl", "promptcal", "cipr",
        "gpc", "mugcd", or "auto" to choose by the available time; only kmeans works without labels
    n_categories : number of known and new categories together, or "auto" to estimate it
    backbone : a timm name, "sptnet_digits_vit", or "auto" for DINO ViT-B/16
    device : "auto", "cpu", "cuda", "cuda:N" or "mps"
    random_state : whole number, RandomState or None
    weights : weights file of the backbone, instead of a download
    epochs : epochs of training, per stage if there are two; as many as fit into the time if not given
    minutes : available time; 30 on a CPU and 240 on a GPU if not given
    settings : other settings by key, such as {"training.batch_size": 64}
    out : run directory to write, for use with all commands of sptnet; if not given, nothing is left on disk.
        Processes of torchrun need one on a shared disk
    verbose : print the plan and show progress

    Attributes
    ----------
    labels_ : predicted label per image, one of `classes_`, in the order of X
    probabilities_ : images x categories in the order of `classes_`; the largest per image is the certainty of its
        category
    embedding_ : images x features, rows of unit length
    classes_ : label of every category, names or whole numbers as in y: the known ones first, in sorted order, then the
        new ones
    n_categories_, n_known_ : number of categories, and of known categories
    categories_ : name, size, certainty, representatives and more per category, in the order of `classes_`; the names
        are those in the run directory, where the number 7 is "7" and new categories are new-1, new-2 and so on
    images_ : name per image in the order of X; unreadable images of a folder are left out
    plan_ : the plan that was carried out, with its reasons
    run_ : the run directory, or None
    """

    def __init__(
        self,
        method: str = "sptnet",
        n_categories: int | str = "auto",
        backbone: str = "auto",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        *,
        weights: str | Path | None = None,
        epochs: int | None = None,
        minutes: float | None = None,
        settings: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.n_categories = n_categories
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.weights = weights
        self.epochs = epochs
        self.minutes = minutes
        self.settings = settings
        self.out = out
        self.verbose = verbose

    def fit(self, X: Any, y: Iterable[Any] | None = None) -> Self:  # noqa: N803
        """Discover the categories of X; y holds a label per image, -1, None or NaN for unlabelled images."""
        if world().size > 1 and self.out is None:
            raise Misuse("several processes need a run directory on a shared disk. Give `out=DIR`.")
        changes = self._changes()
        config = make_settings(self.backbone, changes)
        with self._messages():
            config, images, named = self._read(config, X, y)
            if self.out is not None:
                self._fit_into(Path(self.out), config, images, named, frozenset(changes))
            else:
                with TemporaryDirectory(prefix="sptnet-") as folder:
                    self._fit_into(Path(folder) / "run", config, images, named, frozenset(changes))
        self.run_ = None if self.out is None else Path(self.out)
        return self

    def fit_predict(self, X: Any, y: Iterable[Any] | None = None, **kwargs: Any) -> Labels:  # noqa: N803
        """Fit to X and return the label per image, one of `classes_`."""
        return self.fit(X, y, **kwargs).labels_

    def fit_transform(self, X: Any, y: Iterable[Any] | None = None, **fit_params: Any) -> Floats:  # noqa: N803
        """Fit to X and return the features, images x dim, with rows of unit length."""
        return self.fit(X, y, **fit_params).embedding_

    def predict(self, X: Any) -> Labels:  # noqa: N803
        """Predict the label per image, one of `classes_`: a name if `fit` was given names, else a whole number.

        With the method cipr, images of `fit` may get another label than in `labels_`: there the clustering decides,
        here the nearest centroid.
        """
        outputs = self._outputs(X)  # raises if this is not fitted
        return self.classes_[outputs.categories]

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Predict probabilities, images x categories in the order of `classes_`; the largest is the certainty."""
        outputs = self._outputs(X)  # raises if this is not fitted
        return self._predictor.probabilities(outputs)

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Compute features, images x dim, with rows of unit length."""
        return self._outputs(X).unit_features

    def score(self, X: Any, y: Iterable[Any]) -> float:  # noqa: N803
        """Return the accuracy on the labelled images under the best one-to-one matching of categories and classes."""
        names = label_names(y, len(as_images(X).sources))
        predicted = self._outputs(X).categories
        labelled = np.array([name is not None for name in names])
        if not labelled.any():
            raise Misuse("y has no label to compare with. Give the class of at least one image.")
        found = [category.name for category in self.categories_]
        order = {name: i for i, name in enumerate([*found, *sorted({*filter(None, names)} - {*found})])}
        truth = np.array([order[name] for name in names if name is not None])
        return split_accuracy(truth, predicted[labelled], range(self.n_known_)).all

    def _changes(self) -> dict[str, Any]:
        if self.epochs is not None and (isinstance(self.epochs, bool) or not self.epochs >= 1):
            raise Misuse(f"`epochs` is {self.epochs!r}. Give a whole number of at least 1, or None.")
        weights = {} if self.weights is None else {"backbone.weights": str(Path(self.weights).absolute())}
        epochs = {} if self.epochs is None else epoch_settings(self.epochs)
        own = {"n_categories": self.n_categories, "device": self.device, "seed": seed_from(self.random_state)}
        changes = own | weights | epochs | dict(self.settings or {})
        return {key: _plain(value) for key, value in changes.items()}

    def _read(
        self,
        config: Config,
        X: Any,  # noqa: N803
        y: Iterable[Any] | None,
    ) -> tuple[Config, SplitImages, bool]:
        """Return the settings, the images, and True if the labels are names."""
        if isinstance(X, str | Path):
            if y is not None:
                raise Misuse(
                    "the labels of a folder are the names of its sub-folders. Leave y out, or give paths as X."
                )
            config, split_images = read_images(config.changed(data={"folder": str(Path(X).resolve())}))
            return config, split_images, split_images.split.n_known > 0
        if config.data.skip_duplicates:
            raise Misuse("`data.skip_duplicates` is for folders. Give a folder as X, or leave it out.")
        images = as_images(X)
        given = images.labels if y is None else y
        n = len(images.sources)
        labels = [None] * n if given is None else plain_labels(given)
        names = label_names(labels, n)
        if None not in names:
            raise Misuse(
                "every image is labelled, so there is nothing to discover. Give -1, None or NaN in y for images whose "
                "category is not known."
            )
        image_set = as_image_set(images, names)
        unreadable = drop_unreadable(image_set, max_share=1.0)[1]
        if unreadable:
            raise unreadable[0]
        data = with_known_classes(config.data, image_set)
        split = split_image_set(data, image_set)
        return config.model_copy(update={"data": data}), SplitImages(image_set, split, []), has_names(labels)

    def _fit_into(self, folder: Path, config: Config, images: SplitImages, named: bool, given: frozenset[str]) -> None:
        wishes = Wishes(None if self.method == "auto" else self.method, self.minutes, given, report=False)
        discovery = plan_discovery(config, images, RunFolder(folder), wishes)
        for reason in discovery.plan.reasons:
            say(reason)
        experiment = discovery.train(overwrite=False, command=["CategoryDiscoverer.fit"])
        experiment.end_track()
        outputs, result, state = experiment.outputs_of_all, read_result(folder), experiment.state
        state.drop_projection()
        self._predictor = Predictor(state.model, state.card, state.compute)
        self.classes_ = label_per_category(result.names, result.n_known, named)
        self.labels_, self.probabilities_ = self.classes_[outputs.categories], self._predictor.probabilities(outputs)
        self.embedding_ = outputs.unit_features
        self.n_categories_, self.n_known_ = len(result.names), result.n_known
        self.categories_ = describe_categories(replace(result, features=self.embedding_))
        self.images_, self.plan_ = result.ids, discovery.plan

    def _outputs(self, X: Any) -> Outputs:  # noqa: N803
        check_is_fitted(self)
        with self._messages():
            return self._predictor.outputs(list(as_images(X).sources))

    @contextmanager
    def _messages(self) -> Iterator[None]:
        """Show messages and progress if verbose."""
        before = console.quiet
        console.quiet = before or not self.verbose
        try:
            yield
        finally:
            console.quiet = before


def _plain(value: Any) -> Any:
    """Convert numpy numbers to Python numbers and tuples to lists."""
    plain = value.item() if isinstance(value, np.generic) else value
    return list(plain) if isinstance(plain, tuple) else plain
