"""Clustering accuracy against an exhaustive search, worked examples and properties."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import sptnet
from helpers.rounding import DOUBLE
from sptnet.errors import Misuse
from sptnet.metrics import (
    CalibrationBin,
    best_matching,
    calibration_bins,
    calibration_error,
    contingency,
    match_clusters,
    matched_share,
    nmi_ari,
    rightly_sorted,
    split_accuracy,
)

FORMS = ("v2", "v2b", "v1")


# --- oracle: try every way of naming the clusters ---


def namings(y_true, y_pred):
    """All one-to-one matchings of clusters to classes; unmatched clusters get None."""
    classes, clusters = sorted(set(y_true)), sorted(set(y_pred))
    size = max(len(classes), len(clusters))
    padded = classes + [None] * (size - len(classes))
    for order in permutations(padded):
        yield dict(zip(clusters, order, strict=False))


def hits(y_true, y_pred, naming):
    return [naming[p] == t for t, p in zip(y_true, y_pred, strict=True)]


def best_hits(y_true, y_pred):
    """Hits of every matching with the largest number of hits."""
    candidates = [hits(y_true, y_pred, naming) for naming in namings(y_true, y_pred)]
    most = max(sum(candidate) for candidate in candidates)
    return [candidate for candidate in candidates if sum(candidate) == most]


def fraction(flags):
    return Fraction(sum(flags), len(flags)) if flags else None


def of_group(flags, y_true, classes):
    return [flag for flag, t in zip(flags, y_true, strict=True) if t in classes]


def balanced(flags, y_true, classes):
    accuracies = [fraction(of_group(flags, y_true, {c})) for c in sorted(classes)]
    return sum(accuracies) / len(accuracies) if accuracies else None


def possible_v2(y_true, y_pred, old):
    new = set(y_true) - set(old)
    return {
        (fraction(flags), fraction(of_group(flags, y_true, old)), fraction(of_group(flags, y_true, new)))
        for flags in best_hits(y_true, y_pred)
    }


def possible_v2b(y_true, y_pred, old):
    present = set(y_true)
    return {
        (
            balanced(flags, y_true, present),
            balanced(flags, y_true, present & set(old)),
            balanced(flags, y_true, present - set(old)),
        )
        for flags in best_hits(y_true, y_pred)
    }


def possible_v1(y_true, y_pred, old):
    matched, group_accuracy = 0, []
    for is_old in (True, False):
        pairs = [(t, p) for t, p in zip(y_true, y_pred, strict=True) if (t in old) == is_old]
        if not pairs:
            group_accuracy.append(None)
            continue
        best = sum(best_hits([t for t, _ in pairs], [p for _, p in pairs])[0])
        matched += best
        group_accuracy.append(Fraction(best, len(pairs)))
    return {(Fraction(matched, len(y_true)), *group_accuracy)}


POSSIBLE = {"v2": possible_v2, "v2b": possible_v2b, "v1": possible_v1}


def same(value, expected):
    return math.isnan(value) if expected is None else abs(value - float(expected)) < DOUBLE


def triple(result):
    return result.all, result.old, result.new


def is_one_of(result, expected_triples):
    return any(all(map(same, triple(result), expected)) for expected in expected_triples)


def labelled_instances(max_classes=5, max_size=14):
    pair = st.tuples(st.integers(0, max_classes - 1), st.integers(0, max_classes - 1))
    pairs = st.lists(pair, min_size=1, max_size=max_size)
    return pairs.map(lambda drawn: ([t for t, _ in drawn], [p for _, p in drawn]))


old_sets = st.frozensets(st.integers(0, 4))


# --- exhaustive search ---


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(instances=labelled_instances(), old=old_sets)
def test_split_accuracy_is_attained_by_a_best_naming(form, instances, old):
    y_true, y_pred = instances
    result = split_accuracy(y_true, y_pred, old, form=form)
    assert is_one_of(result, POSSIBLE[form](y_true, y_pred, old)), triple(result)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(instances=labelled_instances(), old=old_sets)
def test_v2_all_is_the_best_over_all_namings(instances, old):
    y_true, y_pred = instances
    best = max(fraction(hits(y_true, y_pred, naming)) for naming in namings(y_true, y_pred))
    assert split_accuracy(y_true, y_pred, old).all == pytest.approx(float(best), abs=DOUBLE)


# --- worked example ---

# class: clusters of its instances. Cluster 0 is the best home of a (3 of 4), 1 of b, 2 of c; d is left
# without one when all instances are matched together, but owns cluster 0 when the new classes are alone.
EXAMPLE = {"a": [0, 0, 0, 1], "b": [1, 1], "c": [2, 2, 0], "d": [0]}
EXAMPLE_TRUE = [name for name, clusters in EXAMPLE.items() for _ in clusters]
EXAMPLE_PRED = [cluster for clusters in EXAMPLE.values() for cluster in clusters]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("v2", (Fraction(7, 10), Fraction(5, 6), Fraction(2, 4))),
        ("v2b", (Fraction(29, 48), Fraction(7, 8), Fraction(1, 3))),
        ("v1", (Fraction(8, 10), Fraction(5, 6), Fraction(3, 4))),
    ],
)
def test_worked_example(form, expected):
    result = split_accuracy(EXAMPLE_TRUE, EXAMPLE_PRED, ["a", "b"], form=form)
    assert triple(result) == pytest.approx(tuple(float(x) for x in expected), abs=DOUBLE)
    assert all(isinstance(value, float) for value in triple(result))


def test_v2_is_the_default_form():
    default = split_accuracy(EXAMPLE_TRUE, EXAMPLE_PRED, ["a", "b"])
    assert triple(default) == triple(split_accuracy(EXAMPLE_TRUE, EXAMPLE_PRED, ["a", "b"], form="v2"))


def test_v2_matching_is_shared_by_old_and_new():
    # One cluster holds everything: it can be named after one class only.
    result = split_accuracy([0, 0, 0, 1, 1], [9, 9, 9, 9, 9], [0])
    assert triple(result) == pytest.approx((3 / 5, 1.0, 0.0))
    separate = split_accuracy([0, 0, 0, 1, 1], [9, 9, 9, 9, 9], [0], form="v1")
    assert triple(separate) == pytest.approx((1.0, 1.0, 1.0))


def test_the_best_naming_is_not_the_greedy_one():
    # Naming the largest overlap first (cluster 0 is a, 4 instances) matches 4; the best naming matches 3 + 3.
    y_true = ["a"] * 7 + ["b"] * 3
    y_pred = [0] * 4 + [1] * 3 + [0] * 3
    assert split_accuracy(y_true, y_pred, ["a"]).all == pytest.approx(6 / 10)


def test_more_clusters_than_classes():
    result = split_accuracy([0, 0, 0, 0, 1, 1], [5, 5, 6, 7, 8, 9], [0])
    assert triple(result) == pytest.approx((3 / 6, 2 / 4, 1 / 2))


def test_fewer_clusters_than_classes():
    result = split_accuracy([0, 0, 1, 2, 3], [0, 0, 0, 1, 1], [0, 1])
    assert triple(result) == pytest.approx((3 / 5, 2 / 3, 1 / 2))


# --- tables and matchings ---


def test_a_table_counts_pairs_of_ids():
    rows, columns = np.array([0, 0, 2, 0]), np.array([1, 1, 0, 3])
    assert contingency(rows, columns).tolist() == [[0, 2, 0, 1], [0] * 4, [1, 0, 0, 0], [0] * 4]
    assert contingency(rows, columns, (3, 5)).tolist() == [[0, 2, 0, 1, 0], [0] * 5, [1, 0, 0, 0, 0]]


def test_the_best_matching_has_the_most_images():
    counts = np.array([[4, 3, 0], [3, 0, 0]])
    rows, columns = best_matching(counts)
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [1, 0])
    assert matched_share(counts) == matched_share(counts.T) == 6 / 10
    assert matched_share(np.array([[3, 1, 0], [1, 2, 0]])) == 5 / 7


def test_ties_fall_by_the_numbers_of_clusters_and_classes():
    assert match_clusters(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])).tolist() == [0, 1]
    assert match_clusters(np.array([3, 3]), np.array([1, 1])).tolist() == [0, 3, 1, 2]


# --- properties ---


# Not the class-balanced form: among equally good namings it depends on which one is taken.
@pytest.mark.parametrize("form", ["v2", "v1"])
@settings(max_examples=30, deadline=None, derandomize=True)
@given(instances=labelled_instances(6, 30), old=old_sets, names=st.permutations(range(6)))
def test_renaming_the_clusters_does_not_change_all(form, instances, old, names):
    y_true, y_pred = instances
    before = split_accuracy(y_true, y_pred, old, form=form)
    after = split_accuracy(y_true, [100 + 7 * names[p] for p in y_pred], old, form=form)
    assert after.all == pytest.approx(before.all, abs=DOUBLE)


@pytest.mark.parametrize("form", ["v2", "v1"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(instances=labelled_instances(6, 30), old=old_sets)
def test_all_is_the_mix_of_old_and_new(form, instances, old):
    y_true, y_pred = instances
    weight = sum(t in old for t in y_true) / len(y_true)
    assume(0 < weight < 1)
    result = split_accuracy(y_true, y_pred, old, form=form)
    assert result.all == pytest.approx(weight * result.old + (1 - weight) * result.new, abs=DOUBLE)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(instances=labelled_instances(6, 30), old=old_sets)
def test_separate_matchings_are_never_worse(instances, old):
    y_true, y_pred = instances
    together = split_accuracy(y_true, y_pred, old, form="v2")
    separate = split_accuracy(y_true, y_pred, old, form="v1")
    assert separate.all >= together.all - DOUBLE


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(y_true=st.lists(st.integers(0, 5), min_size=1, max_size=20), names=st.permutations(range(6)))
def test_perfect_predictions_score_one(form, y_true, names):
    result = split_accuracy(y_true, [names[t] for t in y_true], [0, 1, 2], form=form)
    assert result.all == 1.0
    assert result.old == 1.0 or not any(t <= 2 for t in y_true)
    assert result.new == 1.0 or not any(t > 2 for t in y_true)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(instances=labelled_instances(6, 30), old=old_sets)
def test_scores_lie_between_zero_and_one(form, instances, old):
    for value in triple(split_accuracy(*instances, old, form=form)):
        assert math.isnan(value) or 0.0 <= value <= 1.0


# --- inputs ---


def test_labels_may_be_strings_on_either_side():
    y_true, y_pred = [0, 0, 1, 1, 2], [3, 3, 3, 4, 5]
    expected = triple(split_accuracy(y_true, y_pred, [0]))
    assert expected == pytest.approx((4 / 5, 1.0, 2 / 3))
    species = ["wren", "rook", "kite"]
    named_true = [species[t] for t in y_true]
    named_pred = [f"cluster {p}" for p in y_pred]
    assert triple(split_accuracy(named_true, y_pred, ["wren"])) == pytest.approx(expected)
    assert triple(split_accuracy(y_true, named_pred, [0])) == pytest.approx(expected)
    assert triple(split_accuracy(named_true, named_pred, ["wren"])) == pytest.approx(expected)


@pytest.mark.parametrize("make", [list, tuple, set, frozenset, iter, np.array, lambda names: (name for name in names)])
def test_old_classes_may_be_any_iterable(make):
    result = split_accuracy([0, 0, 1, 2, 2], [0, 0, 0, 1, 1], make([0, 1]))
    assert triple(result) == pytest.approx((4 / 5, 2 / 3, 1.0))


def test_arrays_are_accepted():
    result = split_accuracy(np.array([0, 0, 1, 2, 2]), np.array([0, 0, 0, 1, 1]), np.array([0, 1]))
    assert triple(result) == pytest.approx((4 / 5, 2 / 3, 1.0))
    result = split_accuracy(np.array(["a", "a", "b"]), np.array([1, 1, 1]), ["a"])
    assert triple(result) == pytest.approx((2 / 3, 1.0, 0.0))


def test_large_and_negative_numbers_are_only_names():
    result = split_accuracy([10**9, 10**9, -5], [-1, -1, 10**12], [-5])
    assert triple(result) == (1.0, 1.0, 1.0)


def test_old_classes_without_instances_do_not_count():
    for form in FORMS:
        result = split_accuracy([0, 0, 1], [0, 0, 0], [0, 7, 8, 9], form=form)
        assert result.old == 1.0


def test_an_old_class_is_not_taken_for_a_shorter_name():
    result = split_accuracy(["finch", "finch", "wren"], [0, 0, 1], ["finches", "wren"])
    assert triple(result) == (1.0, 1.0, 1.0)
    result = split_accuracy(["finch", "finch", "finch", "wren", "wren"], [0, 0, 1, 1, 1], ["finches", "wren"])
    assert triple(result) == pytest.approx((4 / 5, 1.0, 2 / 3))


@pytest.mark.parametrize("form", FORMS)
def test_a_group_without_instances_is_nan(form):
    only_new = split_accuracy([3, 3, 4], [0, 0, 0], [0, 1], form=form)
    assert math.isnan(only_new.old)
    assert only_new.new == only_new.all > 0
    only_old = split_accuracy([0, 0, 1], [0, 0, 0], [0, 1], form=form)
    assert math.isnan(only_old.new)
    assert only_old.old == only_old.all > 0
    no_old_classes = split_accuracy([0, 0, 1], [0, 0, 0], [], form=form)
    assert math.isnan(no_old_classes.old)


@pytest.mark.parametrize("form", FORMS)
def test_empty_input_is_refused(form):
    with pytest.raises(Misuse):
        split_accuracy([], [], [0], form=form)


@pytest.mark.parametrize("form", FORMS)
def test_different_lengths_are_refused(form):
    with pytest.raises(Misuse):
        split_accuracy([0, 1, 1], [0, 1], [0], form=form)
    with pytest.raises(Misuse):
        split_accuracy([0], [0, 1], [0], form=form)


@pytest.mark.parametrize("form", ["v3", "v2p", "", "V2"])
def test_unknown_form_is_refused(form):
    with pytest.raises(Misuse) as caught:
        split_accuracy([0, 1], [0, 1], [0], form=form)
    assert isinstance(caught.value, ValueError)


def test_split_accuracy_is_exported():
    assert sptnet.split_accuracy is split_accuracy


# --- nmi_ari ---


def naive_nmi(y_true, y_pred):
    """Mutual information over the mean of the two entropies."""
    n = len(y_true)
    joint = Counter(zip(y_true, y_pred, strict=True))
    true, pred = Counter(y_true), Counter(y_pred)
    information = sum(c / n * math.log(c * n / (true[t] * pred[p])) for (t, p), c in joint.items())
    entropies = [-sum(c / n * math.log(c / n) for c in counts.values()) for counts in (true, pred)]
    return information / (sum(entropies) / 2) if sum(entropies) > 0 else 1.0


def naive_ari(y_true, y_pred):
    """Adjusted for chance, from all pairs of instances that are together in both."""
    pairs = list(combinations(range(len(y_true)), 2))
    in_true = sum(y_true[i] == y_true[j] for i, j in pairs)
    in_pred = sum(y_pred[i] == y_pred[j] for i, j in pairs)
    in_both = sum(y_true[i] == y_true[j] and y_pred[i] == y_pred[j] for i, j in pairs)
    if in_true == in_pred and in_true in (0, len(pairs)):
        return 1.0
    chance = Fraction(in_true * in_pred, len(pairs))
    return float((in_both - chance) / (Fraction(in_true + in_pred, 2) - chance))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(instances=labelled_instances(5, 20))
def test_nmi_and_ari_equal_the_loops(instances):
    y_true, y_pred = instances
    nmi, ari = nmi_ari(y_true, y_pred)
    assert nmi == pytest.approx(naive_nmi(y_true, y_pred), abs=DOUBLE)
    assert ari == pytest.approx(naive_ari(y_true, y_pred), abs=DOUBLE)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(instances=labelled_instances(6, 30))
def test_nmi_and_ari_equal_those_of_scikit_learn(instances):
    y_true, y_pred = instances
    nmi, ari = nmi_ari(y_true, y_pred)
    expected = normalized_mutual_info_score(y_true, y_pred, average_method="arithmetic")
    assert nmi == pytest.approx(expected, abs=DOUBLE)
    assert ari == pytest.approx(adjusted_rand_score(y_true, y_pred), abs=DOUBLE)


@pytest.mark.parametrize(
    ("y_true", "y_pred", "expected"),
    [
        ([0, 0, 1, 1], [5, 5, 2, 2], (1.0, 1.0)),
        ([0, 0, 1, 1], [0, 1, 0, 1], (0.0, -0.5)),
        ([0, 0, 0, 0], [0, 0, 0, 0], (1.0, 1.0)),
        ([0, 0, 1, 1], [0, 0, 0, 0], (0.0, 0.0)),
        ([0, 1, 2, 3], [3, 2, 1, 0], (1.0, 1.0)),
        ([0], [0], (1.0, 1.0)),
    ],
)
def test_nmi_and_ari_at_the_corners(y_true, y_pred, expected):
    assert nmi_ari(y_true, y_pred) == pytest.approx(expected, abs=DOUBLE)


def test_nmi_and_ari_on_a_large_noisy_clustering():
    rng = np.random.default_rng(0)
    y_true = rng.integers(0, 20, size=5000)
    y_pred = np.where(rng.random(5000) < 0.6, y_true, rng.integers(0, 30, size=5000))
    nmi, ari = nmi_ari(y_true, y_pred)
    assert nmi == pytest.approx(normalized_mutual_info_score(y_true, y_pred), abs=DOUBLE)
    assert ari == pytest.approx(adjusted_rand_score(y_true, y_pred), abs=DOUBLE)


def test_nmi_and_ari_of_strings():
    y_true, y_pred = ["a", "a", "b", "b", "c"], ["x", "x", "x", "y", "y"]
    nmi, ari = nmi_ari(y_true, y_pred)
    assert nmi == pytest.approx(normalized_mutual_info_score(y_true, y_pred), abs=DOUBLE)
    assert ari == pytest.approx(adjusted_rand_score(y_true, y_pred), abs=DOUBLE)


# --- right categories, and calibration ---


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=12), st.integers(0, 4))
def test_right_categories_equal_an_exhaustive_search(pairs, n_known):
    truth, predicted = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
    right = rightly_sorted(truth, predicted, n_known)
    assert right.dtype == np.bool_
    both_new = [t >= n_known and p >= n_known for t, p in pairs]
    for (t, p), new, found in zip(pairs, both_new, right, strict=True):
        if not new:
            assert found == (t == p and t < n_known)
    rest = [pair for pair, new in zip(pairs, both_new, strict=True) if new]
    if rest:
        assert right[np.array(both_new)].tolist() in best_hits([t for t, _ in rest], [p for _, p in rest])


def test_a_new_category_is_never_right_for_a_known_class_and_matches_only_once():
    truth = np.array([0, 0, 1, 2, 2, 2, 3, 3])
    predicted = np.array([0, 5, 0, 5, 5, 6, 5, 1])
    assert rightly_sorted(truth, predicted, 2).tolist() == [True, False, False, True, True, False, False, False]
    assert rightly_sorted(truth, predicted, 0).sum() == 4, "everything is new: one matching of all"
    equal = np.array([7, 8])
    assert rightly_sorted(equal, equal, 3).all()
    assert rightly_sorted(np.array([2]), np.array([9]), 2).tolist() == [True]
    assert rightly_sorted(np.zeros(0, np.int64), np.zeros(0, np.int64), 1).shape == (0,)


def error_by_loops(certainty, right, bins):
    """Sum the gaps of all bins [i / bins, (i + 1) / bins), the last one closed."""
    total = 0.0
    for i in range(bins):
        inside = [j for j, c in enumerate(certainty) if min(int(c * bins), bins - 1) == i]
        total += abs(sum(certainty[j] for j in inside) - sum(right[j] for j in inside))
    return total / len(certainty)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40), st.integers(1, 12))
def test_the_calibration_error_equals_the_loops(pairs, bins):
    certainty, right = np.array([c for c, _ in pairs]), np.array([r for _, r in pairs])
    assert calibration_error(certainty, right, bins) == pytest.approx(
        error_by_loops(certainty, right, bins), abs=len(pairs) * DOUBLE
    )
    assert sum(one.images for one in calibration_bins(certainty, right, bins)) == len(pairs)


def test_the_bins_of_a_worked_example():
    certainty = np.array([0.05, 0.1, 0.15, 0.95, 1.0])
    right = np.array([False, True, False, True, True])
    first, second, last = calibration_bins(certainty, right)
    assert first == CalibrationBin(0.05, 0.0, 1)
    assert (second.certainty, second.right, second.images) == (pytest.approx(0.125), 0.5, 2)
    assert (last.certainty, last.right, last.images) == (pytest.approx(0.975), 1.0, 2)
    assert calibration_error(certainty, right) == pytest.approx((0.05 + 2 * 0.375 + 2 * 0.025) / 5)
    assert calibration_error(np.ones(4), np.ones(4, bool)) == 0
    assert calibration_error(np.ones(4), np.zeros(4, bool)) == 1
    assert math.isnan(calibration_error(np.zeros(0), np.zeros(0, bool)))
