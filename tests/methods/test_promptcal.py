"""PromptCAL: the affinity graph against exact fractions, the losses against naive loops, the bank against a deque."""

import math
from collections import deque
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.rounding import DOUBLE, SINGLE, rounding
from sptnet.clustering.graph import affinity
from sptnet.losses import info_nce, supervised_contrastive
from sptnet.methods.promptcal import (
    affinity_graph,
    calibrated_loss,
    push,
    ramp,
)

SEEDS = st.integers(0, 10_000)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def mask(*shape, share, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < share


def number(scalar):
    return scalar.detach().item()


def unit(vector):
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector] if length > 0 else [0.0 for _ in vector]


def cosine(u, v):
    return sum(x * y for x, y in zip(unit(u), unit(v), strict=True))


# --- the affinity graph: cosines in float64, all that follows in fractions ---


def neighbour_sets(points, k):
    lists = []
    for a, point in enumerate(points):
        others = sorted((b for b in range(len(points)) if b != a), key=lambda b: -cosine(point, points[b]))
        lists.append(set(others[:k]))
    return lists


def exact_quantile(values, quantile):
    """Linear interpolation between the two nearest values in order."""
    ordered = sorted(values)
    position = Fraction(str(quantile)) * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def naive_affinities(points, k):
    """Return Q as rows of fractions."""
    n = len(points)
    lists = neighbour_sets(points, k)
    p = [[Fraction(0)] * n for _ in range(n)]
    for a in range(n):
        for b in range(n):
            if a != b:
                p[a][b] += sum(a in listed and b in listed for listed in lists)
                p[a][b] += (b in lists[a]) + (a in lists[b])
        total = sum(p[a])
        p[a] = [entry / total for entry in p[a]] if total else p[a]
    linked = [[c for c in range(n) if row[c]] for row in p]
    pp = [[sum(p[a][c] * p[c][b] for c in linked[a] if p[c][b]) for b in range(n)] for a in range(n)]
    return [[sum(pp[a][c] * p[b][c] for c in linked[b] if pp[a][c]) + (a == b) for b in range(n)] for a in range(n)]


def naive_graph(affinities, quantile, labels=None):
    n = len(affinities)
    nonzeros = [entry for row in affinities for entry in row if entry > 0]
    mean = sum(nonzeros) / len(nonzeros)
    high = [entry for entry in nonzeros if entry > mean]
    threshold = exact_quantile(high, quantile) if high else math.inf
    graph = [[entry > threshold for entry in row] for row in affinities]
    for a in range(n):
        for b in range(n):
            if labels is not None and labels[a] >= 0 and labels[b] >= 0:
                graph[a][b] = labels[a] == labels[b]
            if a == b:
                graph[a][b] = False
    return torch.tensor(graph, dtype=torch.bool)


def some_labels(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.where(mask(n, share=0.5, seed=seed), torch.randint(0, 3, (n,), generator=generator), -1)


@pytest.mark.parametrize(("n", "k", "dim"), [(5, 1, 3), (16, 2, 3), (24, 2, 8), (40, 3, 8)])
def test_the_graph_equals_that_of_fractions(monkeypatch, n, k, dim):
    points, labels = normal(n, dim, seed=n), some_labels(n, seed=n)
    affinities = naive_affinities(points.tolist(), k)
    for filled in (0, 2):  # always by a dense product, always by a sparse one
        monkeypatch.setattr(affinity, "FILLED", filled)
        for quantile in (0.0, 0.3, 0.5, 0.8, 1.0):
            assert torch.equal(affinity_graph(points, k, quantile), naive_graph(affinities, quantile))
            expected = naive_graph(affinities, quantile, labels.tolist())
            assert torch.equal(affinity_graph(points, k, quantile, labels), expected)


def test_the_largest_compared_graph_is_neither_empty_nor_full_nor_symmetric():
    graph = affinity_graph(normal(40, 8, seed=40), 3, 0.3)
    assert 2 * 40 < graph.sum() < 40 * 39 / 2
    assert not torch.equal(graph, graph.T)


def test_positives_are_of_the_same_cluster():
    classes = torch.arange(400) % 20
    points = normal(20, 384, seed=1)[classes] + 2.0 * normal(400, 384, seed=2)
    graph = affinity_graph(points, 10, 0.5)
    correct = graph & (classes[:, None] == classes[None, :])
    assert graph.sum() > 5 * len(points)
    assert correct.sum() > 0.95 * graph.sum()


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=SEEDS, n=st.integers(2, 50), k=st.integers(1, 4), quantile=st.sampled_from([0.0, 0.5, 0.8]))
def test_a_permutation_of_the_points_permutes_the_graph(seed, n, k, quantile):
    points, labels = normal(n, 8, seed=seed), some_labels(n, seed=seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    graph = affinity_graph(points, k, quantile, labels)
    permuted = affinity_graph(points[order], k, quantile, labels[order])
    assert torch.equal(permuted, graph[order][:, order])


def test_labels_link_and_separate_pairs_of_two_labels_alone():
    points = normal(30, 3, seed=3)
    free = affinity_graph(points, 4, 0.3)
    labels = some_labels(30, seed=3)
    graph = affinity_graph(points, 4, 0.3, labels)
    known = labels >= 0
    both = known[:, None] & known[None, :]
    same = (labels[:, None] == labels[None, :]).fill_diagonal_(False)
    assert (both & same & ~free).any()  # links that labels add
    assert (both & ~same & free).any()  # links that labels remove
    assert (~both & free).any()
    assert torch.equal(graph[both], same[both])
    assert torch.equal(graph[~both], free[~both])


def test_labels_that_are_all_missing_change_nothing():
    points = normal(25, 3, seed=4)
    assert torch.equal(affinity_graph(points, 4, 0.3, torch.full((25,), -1)), affinity_graph(points, 4, 0.3))


def test_labels_that_are_all_alike_or_all_different():
    points = normal(7, 3, seed=5)
    assert torch.equal(affinity_graph(points, 2, 0.5, torch.zeros(7, dtype=torch.long)), ~torch.eye(7).bool())
    assert not affinity_graph(points, 2, 0.5, torch.arange(7)).any()


@pytest.mark.parametrize("n", [0, 1])
def test_no_pair_has_an_empty_graph(n):
    graph = affinity_graph(normal(n, 3), 5, 0.8, torch.zeros(n, dtype=torch.long))
    assert graph.dtype == torch.bool
    assert graph.tolist() == [[False]] * n


@pytest.mark.parametrize("k", [5, 6, 100])
def test_points_that_all_list_each_other_are_all_alike(k):
    # All entries off the diagonal are equal and below the mean, which the diagonal raises.
    assert not affinity_graph(normal(6, 3), k, 0.5).any()


def test_no_neighbours_make_no_links():
    assert not affinity_graph(normal(6, 3), 0, 0.5).any()


def test_two_points_have_equal_affinities_and_no_link():
    assert not affinity_graph(normal(2, 3), 1, 0.0).any()


def test_duplicates_are_neighbours_of_each_other_and_not_of_themselves():
    points = torch.eye(3).repeat_interleave(4, dim=0)
    graph = affinity_graph(points, 3, 0.0, torch.arange(12) % 4 - 1)
    labels = torch.arange(12) % 4 - 1
    unlabelled = (labels < 0)[:, None] | (labels < 0)[None, :]
    other_group = torch.arange(12)[:, None] // 4 != torch.arange(12)[None, :] // 4
    assert not graph.diagonal().any()
    assert not (graph & unlabelled & other_group).any()
    assert not affinity_graph(torch.ones(8, 3), 2, 0.5).diagonal().any()
    assert not affinity_graph(torch.zeros(8, 3), 2, 0.5).diagonal().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_graph_is_computed_in_float32_at_least(dtype):
    points = normal(40, 8, seed=6, dtype=dtype).requires_grad_()
    expected = affinity_graph(points.detach().double(), 4, 0.5)
    assert expected.any()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(affinity_graph(points, 4, 0.5), expected)


def test_the_graph_ignores_the_lengths_of_the_features():
    points = normal(40, 8, seed=7)
    scales = torch.rand(40, 1, generator=torch.Generator().manual_seed(8)).double() + 0.1
    assert torch.equal(affinity_graph(points * scales, 4, 0.5), affinity_graph(points, 4, 0.5))


# --- calibrated loss ---


def mean_log_share(similarities, positives, candidates):
    top = max(similarities[c] for c in candidates)
    log_sum = top + math.log(sum(math.exp(similarities[c] - top) for c in candidates))
    return sum(similarities[p] - log_sum for p in positives) / len(positives)


def naive_calibrated(student, own, bank, positives, negatives, temperature):
    total = 0.0
    for i, row in enumerate(student):
        similarities = {"own": cosine(row, own[i]) / temperature}
        similarities |= {j: cosine(row, entry) / temperature for j, entry in enumerate(bank)}
        chosen = {"own"} | {j for j in range(len(bank)) if positives[i][j]}
        candidates = chosen | {j for j in range(len(bank)) if negatives[i][j]}
        total -= mean_log_share(similarities, sorted(chosen, key=str), candidates)
    return total / len(student)


def calibrated_batch(m=5, n=9, dim=4, seed=0, dtype=torch.float64):
    student, own, bank = (3 * normal(rows, dim, seed=seed + i, dtype=dtype) for i, rows in enumerate((m, m, n)))
    return student, own, bank, mask(m, n, share=0.3, seed=seed), mask(m, n, share=0.6, seed=seed + 1)


@pytest.mark.parametrize("temperature", [1.0, 0.07])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 6), (5, 9), (4, 0)])
def test_calibrated_loss_equals_the_loops(m, n, temperature):
    batch = calibrated_batch(m, n, seed=10 * m + n)
    value = calibrated_loss(*batch, temperature)
    assert value.shape == ()
    expected = naive_calibrated(*(x.tolist() for x in batch), temperature)
    assert number(value) == pytest.approx(expected, rel=DOUBLE, abs=DOUBLE)


def test_calibrated_loss_by_hand():
    # Cosines: own 1, positive 0, negative 0, ignored 1; -log(e / (e + 2)) and -log(1 / (e + 2)) at temperature 1.
    student, own = torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    bank = torch.tensor([[0.0, 3.0], [0.0, -1.0], [5.0, 0.0]])
    positives, negatives = torch.tensor([[True, False, False]]), torch.tensor([[False, True, False]])
    expected = math.log(math.e + 2) - 0.5
    assert number(calibrated_loss(student, own, bank, positives, negatives, 1.0)) == pytest.approx(expected, rel=SINGLE)


def test_rows_without_positives_and_negatives_lose_nothing():
    student, own, bank, positives, _ = calibrated_batch()
    none = torch.zeros_like(positives)
    assert number(calibrated_loss(student, own, bank, none, none)) == 0.0


def test_rows_without_positives_identify_their_own_feature():
    student, own, bank, positives, negatives = calibrated_batch()
    none = torch.zeros_like(positives)
    aligned = number(calibrated_loss(student, student, bank, none, negatives))
    assert 0.0 < aligned < number(calibrated_loss(student, own, bank, none, negatives))


def test_without_negatives_the_positives_share_the_probability():
    student, _, _, _, _ = calibrated_batch(m=2)
    bank, everything = student[:1].repeat(3, 1), torch.ones(1, 3, dtype=torch.bool)
    loss = calibrated_loss(student[:1], student[:1], bank, everything, ~everything)
    assert number(loss) == pytest.approx(math.log(4), rel=DOUBLE)


def test_a_negative_that_is_a_positive_counts_once():
    student, own, bank, positives, negatives = calibrated_batch()
    assert (positives & negatives).any()
    expected = number(calibrated_loss(student, own, bank, positives, negatives & ~positives))
    assert number(calibrated_loss(student, own, bank, positives, negatives)) == expected


def test_negatives_may_be_shared_by_all_rows():
    student, own, bank, positives, negatives = calibrated_batch()
    expected = number(calibrated_loss(student, own, bank, positives, negatives[:1].expand_as(positives)))
    assert number(calibrated_loss(student, own, bank, positives, negatives[:1])) == expected


def test_entries_that_are_not_sampled_do_not_matter():
    student, own, bank, positives, negatives = calibrated_batch()
    positives[:, 3] = negatives[:, 3] = False
    expected = number(calibrated_loss(student, own, bank, positives, negatives))
    bank[3] = 100.0
    assert number(calibrated_loss(student, own, bank, positives, negatives)) == expected


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=SEEDS, m=st.integers(1, 6), n=st.integers(1, 8))
def test_calibrated_loss_ignores_the_order_of_rows_and_of_the_bank(seed, m, n):
    student, own, bank, positives, negatives = calibrated_batch(m, n, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    rows, entries = torch.randperm(m, generator=generator), torch.randperm(n, generator=generator)
    permuted = calibrated_loss(
        student[rows], own[rows], bank[entries], positives[rows][:, entries], negatives[rows][:, entries]
    )
    expected = number(calibrated_loss(student, own, bank, positives, negatives))
    assert number(permuted) == pytest.approx(expected, rel=DOUBLE, abs=DOUBLE)


# --- contrast with the teacher ---


def naive_teacher(student, teacher, positives_of, temperature):
    total = 0.0
    for i, row in enumerate(student):
        similarities = [cosine(row, entry) / temperature for entry in teacher]
        others = [j for j in range(len(teacher)) if j != i]
        total -= mean_log_share(similarities, positives_of(i), others)
    return total / len(student)


@pytest.mark.parametrize("temperature", [1.0, 0.07])
@pytest.mark.parametrize("images", [1, 2, 5])
def test_teacher_info_nce_equals_the_loops(images, temperature):
    student, teacher = normal(2 * images, 4, seed=images), normal(2 * images, 4, seed=images + 1)

    def other_view(i):
        return [(i + images) % (2 * images)]

    expected = naive_teacher(student.tolist(), teacher.tolist(), other_view, temperature)
    assert number(info_nce(student, temperature, teacher)) == pytest.approx(expected, rel=DOUBLE, abs=DOUBLE)


LABELS = {"one image": [2], "a class of one": [0, 1, 0], "all alike": [3, 3, 3], "all different": [4, 2, 0, 1]}


@pytest.mark.parametrize("temperature", [1.0, 0.07])
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_teacher_supervised_contrastive_equals_the_loops(labels, temperature):
    n = 2 * len(labels)
    student, teacher = normal(n, 4, seed=n), normal(n, 4, seed=n + 1)
    both = labels + labels

    def same_class(i):
        return [j for j in range(n) if j != i and both[j] == both[i]]

    value = supervised_contrastive(student, torch.tensor(labels), temperature, teacher)
    expected = naive_teacher(student.tolist(), teacher.tolist(), same_class, temperature)
    assert number(value) == pytest.approx(expected, rel=DOUBLE, abs=DOUBLE)


def test_a_teacher_that_equals_the_student_gives_the_losses_without_a_teacher():
    features, labels = normal(10, 4, seed=20), torch.tensor([0, 1, 0, 2, 1])
    nce, contrast = number(info_nce(features)), number(supervised_contrastive(features, labels))
    assert number(info_nce(features, teacher=features)) == pytest.approx(nce, rel=DOUBLE)
    assert number(supervised_contrastive(features, labels, teacher=features)) == pytest.approx(contrast, rel=DOUBLE)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=SEEDS, images=st.integers(1, 6))
def test_losses_with_a_teacher_ignore_the_order_of_images_and_the_names_of_classes(seed, images):
    student, teacher = normal(2 * images, 4, seed=seed), normal(2 * images, 4, seed=seed + 1)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (images,), generator=generator)
    order, names = torch.randperm(images, generator=generator), torch.randperm(3, generator=generator)
    rows = torch.cat([order, order + images])
    permuted = (
        info_nce(student[rows], teacher=teacher[rows]),
        supervised_contrastive(student[rows], names[labels[order]], teacher=teacher[rows]),
    )
    expected = info_nce(student, teacher=teacher), supervised_contrastive(student, labels, teacher=teacher)
    for value, other in zip(permuted, expected, strict=True):
        assert number(value) == pytest.approx(number(other), rel=DOUBLE, abs=DOUBLE)


# --- all losses ---


def calibrated(student, teacher, bank):
    positives = torch.arange(len(bank))[None, :] % 3 == torch.arange(len(student))[:, None] % 3
    return calibrated_loss(student, teacher, bank, positives, torch.ones_like(positives))


def nce(student, teacher, bank):
    return info_nce(student, teacher=teacher)


def contrast(student, teacher, bank):
    return supervised_contrastive(student, torch.arange(len(student) // 2) % 2, teacher=teacher)


ALL = pytest.mark.parametrize("loss", [calibrated, nce, contrast])


@ALL
def test_gradients_are_those_of_finite_differences_and_reach_the_student_alone(loss):
    student, teacher, bank = (normal(rows, 3, seed=30 + rows).requires_grad_() for rows in (6, 6, 7))
    assert torch.autograd.gradcheck(lambda x: loss(x, teacher, bank), (student,))
    gradients = torch.autograd.grad(loss(student, teacher, bank), (student, teacher, bank), allow_unused=True)
    assert gradients[0].abs().max() > 0
    assert gradients[1:] == (None, None)


@ALL
def test_an_empty_batch_has_a_loss_of_zero_with_a_graph(loss):
    student = torch.zeros(0, 3, requires_grad=True)
    value = loss(student, torch.zeros(0, 3), normal(5, 3))
    assert value.dtype == torch.float32
    assert number(value) == 0.0
    assert torch.autograd.grad(value, student)[0].shape == (0, 3)


@ALL
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_losses_are_computed_in_float32_at_least(loss, dtype):
    student, teacher, bank = (normal(rows, 3, seed=40 + rows, dtype=dtype) for rows in (6, 6, 7))
    expected = number(loss(student.double(), teacher.double(), bank.double()))
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(student, teacher, bank)
    assert value.dtype == torch.promote_types(dtype, torch.float32)
    assert number(value) == pytest.approx(expected, abs=rounding(12, sums=6, dtype=value.dtype) / 0.07)


@ALL
def test_a_bank_may_have_another_dtype_than_the_student(loss):
    student, teacher, bank = (normal(6, 3, seed=50 + i, dtype=torch.float32) for i in range(3))
    teacher, bank = teacher.half(), bank.half()
    expected = number(loss(student, teacher.float(), bank.float()))
    assert number(loss(student, teacher, bank)) == expected


@ALL
def test_zero_features_have_finite_losses_and_gradients(loss):
    student = torch.zeros(6, 3, requires_grad=True)
    value = loss(student, torch.zeros(6, 3), torch.zeros(7, 3))
    assert torch.isfinite(value)
    assert torch.isfinite(torch.autograd.grad(value, student)[0]).all()


# --- ramp and ring buffer ---


def test_the_ramp_is_linear_then_constant():
    assert [ramp(epoch) for epoch in (0, 1, 2, 3, 100)] == pytest.approx([0.0, 0.3, 0.6, 0.6, 0.6])
    assert [ramp(epoch, 4, 0.8) for epoch in range(6)] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 0.8])
    assert ramp(0, 0, 0.6) == 0.6


@settings(max_examples=60, deadline=None, derandomize=True)
@given(size=st.integers(1, 6), lengths=st.lists(st.integers(0, 15), max_size=6))
def test_pushing_equals_a_deque(size, lengths):
    labels = -1 - torch.arange(size)
    bank = torch.stack([labels, 2 * labels], dim=1).float()
    expected, position, label_position, pushed = deque(labels.tolist(), maxlen=size), 0, 0, 0
    for m in lengths:
        new = torch.arange(pushed, pushed + m)
        bank, position = push(bank, torch.stack([new, 2 * new], dim=1).float(), position)
        labels, label_position = push(labels, new, label_position)
        expected.extend(new.tolist())
        pushed += m
        assert position == label_position == pushed % size
        assert labels.roll(-position).tolist() == list(expected)
        assert torch.equal(bank, torch.stack([labels, 2 * labels], dim=1).float())


def test_pushing_leaves_its_arguments_alone():
    bank, rows = torch.zeros(4, 2), torch.ones(3, 2, dtype=torch.float16, requires_grad=True)
    pushed, position = push(bank, rows, 2)
    assert not bank.any()
    assert pushed.dtype == torch.float32
    assert not pushed.requires_grad
    assert pushed[:, 0].tolist() == [1.0, 0.0, 1.0, 1.0]
    assert position == 1
    same, position = push(bank, rows[:0], 2)
    assert torch.equal(same, bank)
    assert same.data_ptr() != bank.data_ptr()
    assert position == 2
