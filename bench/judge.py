"""Programs of others that train gensim's Word2Vec on walks, as they are installed.

`python -m bench.judge NAME EDGES SEED VECTORS` writes the vectors of a graph's nodes;
`python -m embedder.gensim -m bench.judge ...` trains them by embedder. Each program has
its own defaults, but one worker, so that its walks are the same in both.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

warnings.filterwarnings("ignore")  # of packages made for older ones

_REMOVED = {
    **{"bool8": np.bool_, "object0": np.object_, "int0": np.intp, "uint0": np.uintp},
    **{"float_": np.float64, "longfloat": np.longdouble, "void0": np.void},
    **{"singlecomplex": np.complex64, "complex_": np.complex128},
    **{"cfloat": np.complex128, "clongfloat": np.clongdouble},
    **{"longcomplex": np.clongdouble, "string_": np.bytes_, "bytes0": np.bytes_},
    **{"unicode_": np.str_, "str0": np.str_},
}
"""Names that NumPy 2 has no longer, and that PecanPy's `nptyping` asks for."""


def by_pecanpy(mode: str, edges: Path, seed: int) -> np.ndarray:
    """PecanPy in one of its modes, with the parameters of node2vec in two of them."""
    for name, value in _REMOVED.items():
        setattr(np, name, value)
    from pecanpy import pecanpy

    is_first_order = "FirstOrder" in mode
    p, q = (1, 1) if is_first_order else (0.5, 2)
    graph = getattr(pecanpy, mode)(p=p, q=q, workers=1, random_state=seed)
    graph.read_edg(str(edges), weighted=False, directed=False)
    graph.preprocess_transition_probs()
    vectors = graph.embed()
    return vectors[np.argsort([int(node) for node in graph.nodes])]


def by_node2vec(edges: Path, seed: int) -> np.ndarray:
    """node2vec, and an edge's vector by `HadamardEmbedder`."""
    from node2vec import Node2Vec
    from node2vec.edges import HadamardEmbedder

    graph = _networkx(edges)
    walker = Node2Vec(graph, p=0.5, q=2, workers=1, seed=seed, quiet=True)
    model = walker.fit(window=10, min_count=1, batch_words=4, seed=seed)
    one, other = map(str, next(iter(graph.edges)))
    product = HadamardEmbedder(keyed_vectors=model.wv, quiet=True)[one, other]
    assert np.array_equal(product, model.wv[one] * model.wv[other])
    return model.wv[[str(node) for node in range(len(graph))]]


def by_karateclub(name: str, edges: Path, seed: int) -> np.ndarray:
    """A model of karateclub."""
    import karateclub

    model = getattr(karateclub, name)(seed=seed, workers=1)
    model.fit(_networkx(edges))
    return model.get_embedding()


def _networkx(edges: Path) -> Any:
    import networkx

    graph = networkx.Graph()
    pairs = np.loadtxt(edges, np.int64)
    graph.add_nodes_from(range(pairs.max() + 1))
    graph.add_edges_from(pairs.tolist())
    return graph


_MODES = "FirstOrderUnweighted", "PreCompFirstOrder", "PreComp", "SparseOTF", "DenseOTF"
_MODELS = "DeepWalk", "Node2Vec", "Walklets", "Role2Vec"
JUDGES: dict[str, tuple[str, Callable[..., np.ndarray], tuple[str, ...]]] = {
    **{f"PecanPy, {mode}": ("pecanpy", by_pecanpy, (mode,)) for mode in _MODES},
    "node2vec": ("node2vec", by_node2vec, ()),
    **{f"karateclub, {x}": ("karateclub", by_karateclub, (x,)) for x in _MODELS},
}
"""Name -> its package, the function that trains, and that function's first arguments.

Role2Vec trains Doc2Vec, which stays gensim's."""


def main(arguments: list[str]) -> None:
    """Trains as `arguments` say, and prints the seconds of it all."""
    name, edges, seed, vectors = arguments
    _, train, own = JUDGES[name]
    start = time.perf_counter()
    found = train(*own, Path(edges), int(seed))
    seconds = time.perf_counter() - start
    np.save(vectors, np.asarray(found, np.float32))
    from gensim.models import Word2Vec

    print(json.dumps({"seconds": seconds, "class": Word2Vec.__module__}))


if __name__ == "__main__":
    main(sys.argv[1:])
