"""Two-level map equation of a directed weighted graph, and a search for the modules that minimise it.

The map equation (M. Rosvall and C. T. Bergstrom, Maps of random walks on complex networks reveal community structure,
PNAS 105, 2008) is the number of bits per step that describe a random walk, with one codebook per module and an index
codebook for the steps between modules. Lower is better.

Teleportation is unrecorded and goes to links (R. Lambiotte and M. Rosvall, Ranking and clustering of nodes in networks
with smart teleportation, Physical Review E 85, 2012), the default of the package `infomap` for directed graphs: the
walk teleports to a node in proportion to the weight of its outgoing links, also from nodes without such links, and only
the steps along links are encoded. A node is therefore visited at the rate of the flow into it, which may differ from
the flow out of it: the index codebook encodes entries into modules, the codebook of a module its visits and exits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils import check_random_state

from sptnet.errors import Misuse

CONVERGED = 1e-15
MAX_STEPS = 1000
LEAST_GAIN = 1e-10
"""Smallest gain in bits for which nodes move; well above the rounding errors of a codelength."""
N_ORDERS = 3

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Graph = Any
"""Sparse matrix of SciPy (n x n); entry (i, j) is the weight of the link from node i to node j."""


@dataclass(frozen=True)
class Flow:
    """Flow of a random walk: rates per step, which add up to one, or zeros in a graph without links."""

    visits: Floats
    """Visit rate per node (n)."""
    links: Graph
    """Flow between two different nodes (n x n, complex CSR): real part from row to column, imaginary part back."""
    exits: Floats
    """Flow from each node to all others (n)."""
    entries: Floats
    """Flow to each node from all others (n)."""


def visit_rates(graph: Graph, teleport: float = 0.15) -> Floats:
    """Return the visit rate per node (n): the share of the walk's steps along links that end there.

    Rates add up to one. In a graph without links they are zero.
    """
    rates: Floats = link_flow(graph, teleport).sum(axis=0)
    return rates


def link_flow(graph: Graph, teleport: float = 0.15) -> Graph:
    """Return the flow along each link (n x n, CSR): the share of the walk's steps along links that take it.

    The walk follows a link with probability 1 - `teleport`, in proportion to its weight, and teleports otherwise.
    Links of weight zero are no links.
    """
    if not 0 < teleport < 1:
        raise Misuse(f"teleport is {teleport!r}. Give a probability between 0 and 1.")
    weights = _checked(graph)
    if not weights.nnz:
        return weights
    sources, strengths = _rows(weights), weights.sum(axis=1)
    weights.data /= strengths[sources]
    start, dangling, backwards = strengths / strengths.sum(), strengths == 0, weights.T.tocsr()
    ranks = start
    for _ in range(MAX_STEPS):
        before = ranks
        ranks = (1 - teleport) * (backwards @ before)
        ranks += (teleport + (1 - teleport) * before[dangling].sum()) * start
        ranks /= ranks.sum()
        if np.abs(ranks - before).sum() <= CONVERGED:
            break
    weights.data *= ranks[sources]
    weights.data /= weights.data.sum()
    return weights


def codelength(graph: Graph, modules: npt.ArrayLike, teleport: float = 0.15) -> float:
    """Return the map equation in bits per step; `modules` holds any whole number from 0 per node (n)."""
    flow = _flow(graph, teleport)
    ids = np.asarray(modules)
    if ids.shape != flow.visits.shape or ids.dtype.kind not in "iu" or (ids.size and ids.min() < 0):
        raise Misuse(f"modules has the shape {ids.shape}. Give one whole number from 0 for each of the nodes.")
    return _codelength(flow, _numbered(ids))


def minimise_codelength(graph: Graph, seed: int | np.random.RandomState | None = 0, teleport: float = 0.15) -> Ids:
    """Return modules (n) of low codelength, numbered from 0 in the order of their first nodes.

    A greedy search: nodes move between modules as long as the codelength falls, then modules merge in the same way,
    and so on until there is no gain. The best of three searches in random orders is returned, or one module for all
    nodes with links if that is better. Nodes without links are modules of their own.
    """
    flow = _flow(graph, teleport)
    random = check_random_state(seed)
    linked = (flow.exits > 0) | (flow.visits > 0)
    together = np.where(linked, 0, np.arange(1, len(linked) + 1))
    found = [together, *(_search(flow, random) for _ in range(N_ORDERS))]
    return _numbered(min(found, key=lambda modules: _codelength(flow, modules)))


def _checked(graph: Graph) -> Graph:
    weights = sparse.csr_array(graph, dtype=np.float64, copy=True)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise Misuse(f"graph has the shape {weights.shape}. Give one row and one column for each node.")
    if not np.isfinite(weights.data).all() or (weights.data < 0).any():
        raise Misuse("graph holds weights that are negative or not finite. Leave these links out.")
    weights.sum_duplicates()
    weights.eliminate_zeros()
    if weights.nnz:
        weights.data /= weights.data.max()  # sums of the largest weights stay finite
    return weights


def _flow(graph: Graph, teleport: float) -> Flow:
    flow = link_flow(graph, teleport)
    return _without_loops(flow.sum(axis=0), flow + 1j * flow.T.tocsr())


def _without_loops(visits: Floats, links: Graph) -> Flow:
    rows = _rows(links)
    other = rows != links.indices
    links = sparse.csr_array((links.data[other], (rows[other], links.indices[other])), shape=links.shape)
    total = links.sum(axis=1)
    return Flow(visits, links, total.real.copy(), total.imag.copy())


def _rows(matrix: Graph) -> Ids:
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def _membership(modules: Ids, n_modules: int) -> Graph:
    n = len(modules)
    return sparse.csr_array((np.ones(n), modules, np.arange(n + 1)), shape=(n, n_modules))


def _numbered(modules: npt.NDArray[Any]) -> Ids:
    """Renumber modules from 0 in the order of their first nodes."""
    _, first, inverse = np.unique(modules, return_index=True, return_inverse=True)
    ranks = np.empty(len(first), np.int64)
    ranks[np.argsort(first)] = np.arange(len(first))
    return ranks[inverse]


def _plogp(rates: Any) -> Any:
    """Return p log2 p of a rate or of an array of them; zero for rates that are zero, or below by rounding."""
    clipped = np.maximum(rates, 0)
    return clipped * np.log2(np.maximum(clipped, np.finfo(np.float64).tiny))


def _module_terms(totals: Floats) -> Floats:
    """Return the terms of the map equation per module, for its entries, exits and visits (3 x m)."""
    entries, exits, visits = totals
    terms: Floats = _plogp(exits + visits) - _plogp(exits) - _plogp(entries)
    return terms


def _module_totals(flow: Flow, modules: Ids, n_modules: int) -> Floats:
    """Return the flow into and out of each module and its visits (3 x n_modules)."""
    sources = modules[_rows(flow.links)]
    crossing = sources != modules[flow.links.indices]
    sources, links = sources[crossing], flow.links.data[crossing]
    sums = (sources, links.imag), (sources, links.real), (modules, flow.visits)
    return np.stack([np.bincount(ids, rates, n_modules) for ids, rates in sums])


def _codelength(flow: Flow, modules: Ids) -> float:
    totals = _module_totals(flow, modules, int(modules.max(initial=-1)) + 1)
    return float(_plogp(totals[0].sum()) + _module_terms(totals).sum() - _plogp(flow.visits).sum())


def _search(flow: Flow, random: np.random.RandomState) -> Ids:
    """Return a local minimum of the codelength, starting from one module per node."""
    modules, before = np.arange(len(flow.visits)), np.inf
    while (now := _codelength(flow, modules)) < before - LEAST_GAIN:
        before, modules = now, _merged(flow, _numbered(_moved(flow, modules, random)), random)
    return modules


def _merged(flow: Flow, modules: Ids, random: np.random.RandomState) -> Ids:
    """Merge whole modules as long as the codelength falls."""
    while True:
        n_modules = int(modules.max(initial=-1)) + 1
        member = _membership(modules, n_modules)
        coarse = _without_loops(member.T @ flow.visits, (member.T @ flow.links @ member).tocsr())
        groups = _numbered(_moved(coarse, np.arange(n_modules), random))
        if len(np.unique(groups)) == n_modules:
            return modules
        modules = groups[modules]


@dataclass(frozen=True)
class _Moves:
    """Moves of single nodes (m), with the entries, exits and visits (3 x m) of both modules afterwards."""

    nodes: Ids
    targets: Ids
    """Module to join; -1 for a new one."""
    left: Floats
    joined: Floats
    terms: Floats
    """Change of the terms of both modules."""
    crossing: Floats
    """Change of the flow between modules."""

    def __getitem__(self, which: Any) -> "_Moves":
        return _Moves(
            self.nodes[which], self.targets[which], self.left[:, which], self.joined[:, which],
            self.terms[which], self.crossing[which],
        )  # fmt: skip


def _moved(flow: Flow, modules: Ids, random: np.random.RandomState) -> Ids:
    """Move nodes to other modules until no move of a single node lowers the codelength.

    Per round, many nodes move at once, none of which leaves or joins a module that another one leaves or joins. Their
    effects on the terms of the modules then add up exactly, and the codelength after all of them is known beforehand.
    """
    n, modules = len(modules), modules.copy()
    totals, waiting = _module_totals(flow, modules, n), np.ones(n, bool)
    while True:
        moves, gains = _best_moves(flow, modules, totals, np.flatnonzero(waiting))
        if not len(gains):
            if waiting.all():
                return modules
            totals, waiting[:] = _module_totals(flow, modules, n), True
            continue
        waiting[:] = False
        waiting[moves.nodes] = True
        chosen = _disjoint(modules[moves.nodes], np.where(moves.targets < 0, n + moves.nodes, moves.targets), random)
        moves = _joint(moves[chosen], gains[chosen], totals[0].sum())
        new = moves.targets < 0
        moves.targets[new] = np.flatnonzero(np.bincount(modules, minlength=n) == 0)[: new.sum()]
        totals[:, modules[moves.nodes]], totals[:, moves.targets] = moves.left, moves.joined
        modules[moves.nodes] = moves.targets
        waiting[moves.nodes] = False
        waiting[flow.links[moves.nodes].indices] = True


def _joint(moves: _Moves, gains: Floats, crossing: float) -> _Moves:
    """Return the moves, or the better half of them and so on, until they lower the codelength together."""
    moves = moves[np.argsort(-gains, kind="stable")]
    while len(moves.nodes) > 1:
        index = _plogp(crossing + moves.crossing.sum()) - _plogp(crossing)
        if moves.terms.sum() + index < -LEAST_GAIN:
            break
        moves = moves[: len(moves.nodes) // 2]
    return moves


def _disjoint(sources: Ids, targets: Ids, random: np.random.RandomState) -> Ids:
    """Return random moves such that no module takes part in two of them, as far as three passes find some."""
    order, taken = random.permutation(len(sources)), np.zeros(max(sources.max(), targets.max()) + 1, bool)
    chosen: list[Ids] = []
    for _ in range(3):
        order = order[~(taken[sources[order]] | taken[targets[order]])]
        ranks, first = np.arange(len(order)), np.full(len(taken), len(order))
        np.minimum.at(first, sources[order], ranks)
        np.minimum.at(first, targets[order], ranks)
        chosen.append(order[(first[sources[order]] == ranks) & (first[targets[order]] == ranks)])
        taken[sources[chosen[-1]]] = taken[targets[chosen[-1]]] = True
    return np.concatenate(chosen)


def _best_moves(flow: Flow, modules: Ids, totals: Floats, nodes: Ids) -> tuple[_Moves, Floats]:
    """Return the best move per node that lowers the codelength, and the gains in bits."""
    n, crossing, sources = len(modules), totals[0].sum(), modules[nodes]
    toward = flow.links[nodes] @ _membership(modules, n)
    rows, targets, both = _rows(toward), toward.indices.astype(np.int64), toward.data.real + toward.data.imag
    own = targets == sources[rows]
    inside = np.bincount(rows[own], both[own], len(nodes))  # flow between the node and its module, in both directions
    alone = np.stack([flow.entries[nodes], flow.exits[nodes], flow.visits[nodes]])
    left = totals[:, sources] - alone
    left[:2] += inside
    # A new module is the last candidate of each node that is not alone in its module.
    leaver = np.flatnonzero(np.bincount(modules, minlength=n)[sources] > 1)
    rows, targets = np.concatenate([rows[~own], leaver]), np.concatenate([targets[~own], np.full(len(leaver), -1)])
    between = np.concatenate([both[~own], np.zeros(len(leaver))])
    earlier = np.where(targets < 0, 0.0, totals[:, targets])
    joined = earlier + alone[:, rows]
    joined[:2] -= between
    terms = (_module_terms(left) - _module_terms(totals[:, sources]))[rows] + _module_terms(joined)
    terms -= _module_terms(earlier)
    terms[totals[2, sources][rows] <= 0] -= 2 * LEAST_GAIN  # a module without visits costs nothing, but is no module
    change = (left[0] - totals[0, sources])[rows] + joined[0] - earlier[0]
    gains = _plogp(crossing) - _plogp(crossing + change) - terms
    best = np.full(len(nodes), LEAST_GAIN)
    np.maximum.at(best, rows, gains)
    at = np.flatnonzero((gains == best[rows]) & (gains > LEAST_GAIN))
    at = at[np.unique(rows[at], return_index=True)[1]]
    moves = _Moves(nodes[rows[at]], targets[at], left[:, rows[at]], joined[:, at], terms[at], change[at])
    return moves, gains[at]
