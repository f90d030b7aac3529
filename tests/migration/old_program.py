"""A program of the NumPy trainer's time: it uses `legacy` in every way that there is.

It prints one JSON object. Nothing here knows of the port.
"""

import inspect
import json
import math
import sys
from pathlib import Path

import numpy as np

import legacy
from legacy import EmbeddingTrainer

SETTINGS = dict(vector_size=12, min_count=2, epochs=3, block=32, dtype="float64")


def read(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield line.split()


def failure(action):
    try:
        action()
    except Exception as error:
        kinds = KeyError, FileNotFoundError, TypeError, ValueError, RuntimeError
        name = next(k.__name__ for k in kinds if isinstance(error, k))
        wider = str(error).replace(
            " or 'session'", ""
        )  # a window that only the port has
        return f"{name}: {wider}"
    return "no error"


def main(corpus, folder):
    folder = Path(folder)
    found = {"module": legacy.__name__, "names": legacy.__all__}
    parameters = inspect.signature(EmbeddingTrainer).parameters.values()
    found["signature"] = [  # its types may be wider; `noise` None means 32
        (each.name, each.kind.name, 32 if each.name == "noise" else each.default)
        for each in parameters
    ]

    trainer = EmbeddingTrainer(**SETTINGS)
    found["repr"] = repr(trainer)
    found["untrained"] = failure(lambda: trainer.vectors)
    found["is the trainer"] = trainer.fit(read(corpus)) is trainer
    found["tokens"] = trainer.index_to_key
    found["rows"] = [trainer.key_to_index[token] for token in trainer.index_to_key]
    found["vectors"] = trainer.vectors.tolist()
    found["dtype"] = str(trainer.vectors.dtype)
    found["losses"] = trainer.loss_history
    first, second = trainer.index_to_key[:2]
    found["neighbours"] = trainer.most_similar(first, topn=3)
    found["analogy"] = trainer.most_similar([first], [second], topn=2)
    found["similarity"] = trainer.similarity(first, second)

    from_file = EmbeddingTrainer(**SETTINGS).fit(corpus)
    found["same from a file"] = bool((from_file.vectors == trainer.vectors).all())

    trainer.save(folder / "model.npz")
    again = EmbeddingTrainer.load(folder / "model.npz")
    found["loaded"] = repr(again) == repr(trainer)
    again.alpha = 0.01
    again.partial_fit(list(read(corpus))[:50])
    found["gone on"] = again.vectors.tolist()
    found["losses after"] = again.loss_history

    other = EmbeddingTrainer(
        architecture="cbow", cap=math.inf, sample=0, alpha=0.01, tile=1, noise=5,
        negative=3, window=2, ns_exponent=1.0, min_alpha=0.0, seed=7, min_count=3,
        vector_size=5, epochs=2, blocks_per_update=2, workers=1,
    )  # fmt: skip
    found["cbow"] = np.round(other.fit(corpus).vectors, 4).tolist()

    found["errors"] = [
        failure(lambda: EmbeddingTrainer(window=0)),
        failure(lambda: EmbeddingTrainer(alpha="fast")),
        failure(lambda: EmbeddingTrainer(size=100)),
        failure(lambda: trainer.similarity(first, "unheard of")),
        failure(lambda: trainer.most_similar(first, topn=0)),
        failure(lambda: trainer.fit([])),
        failure(lambda: trainer.fit("no such file.txt")),
        failure(lambda: trainer.fit(["a bare string"])),
        failure(lambda: EmbeddingTrainer.load(folder / "no such model.npz")),
        failure(lambda: trainer.save(folder / "no such folder" / "model.npz")),
    ]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
