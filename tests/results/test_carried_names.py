"""New categories keep their names by the images they share."""

import numpy as np

from sptnet.results.edits.carried_names import carried_names


def test_names_follow_the_images() -> None:
    before = np.array([0, 0, 1, 1, 1, 2, 2, 2])
    after = np.array([0, 0, 2, 2, 2, 1, 1, 2])
    names = carried_names(("cat", "whale", "new-2"), before, ("cat", "new-1", "new-2"), after, 1)
    assert names == ("cat", "new-2", "whale")


def test_categories_without_a_predecessor_get_free_names() -> None:
    before = np.array([0, 0, 1, 1])
    after = np.array([0, 1, 2, 2])
    assert carried_names(("cat", "new-1"), before, ("cat", "new-1", "new-2"), after, 1) == ("cat", "new-2", "new-1")


def test_few_shared_images_carry_no_name() -> None:
    before, after = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([1, 0, 0, 0, 0, 0, 1, 1])
    names = carried_names(("whale", "seal"), before, ("new-1", "new-2"), after, 0)
    assert names == ("whale", "seal")
    spread = carried_names(
        ("whale",), np.array([0] * 9 + [-1] * 9), ("new-1",), np.array([0] * 3 + [-1] * 8 + [0] * 7), 0
    )
    assert spread == ("new-1",)


def test_the_name_of_a_category_that_has_gone_is_given_to_no_other() -> None:
    before, after = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 0])
    before = np.concatenate([before, np.full(4, -1)])
    after = np.concatenate([after, np.full(4, 1)])
    assert carried_names(("new-2", "new-1"), before, ("new-1", "new-2"), after, 0) == ("new-2", "new-3")


def test_a_known_name_is_given_to_no_other() -> None:
    before, after = np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])
    assert carried_names(("seal", "whale"), before, ("seal", "new-1"), after, 1) == ("seal", "new-1")


def test_dropped_images_do_not_count() -> None:
    before, after = np.array([-1, -1, 0, 0]), np.array([0, 0, 0, -1])
    assert carried_names(("whale",), before, ("new-1",), after, 0) == ("whale",)
