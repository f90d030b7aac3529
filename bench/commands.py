"""The command line of each bench, parsed by tyro."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import tyro

from bench import (
    accuracy,
    beside,
    checkpoints,
    composition,
    convolutions,
    cpu,
    dropin,
    encoder,
    folders,
    gpu,
    graphs,
    items,
    judge,
    judges,
    loader,
    memory,
    modes,
    networks,
    parts,
    quality,
    rates,
    recipes,
    render,
    replicas,
    retrieval,
    search,
    search_batch,
    small,
    spirals,
    stages,
    subwords,
    threads,
    updates,
    vocabulary,
)
from bench.encoders import SYSTEMS
from bench.results import data_folder
from embedder import Config, read_vectors
from embedder.tables.encode import encode
from embedder.tables.problem import open_corpus


def cpu_bench(
    programs: tuple[str, ...] = tuple(cpu.PROGRAMS),
    epochs: int = 5,
    seeds: tuple[int, ...] = (1,),
    vector_size: int = 100,
    architecture: Literal["skipgram", "cbow"] = "skipgram",
    name: str = "cpu",
) -> None:
    """Throughput, memory and quality on 17 M words of Wikipedia.

    Args:
        programs: which to run; default: all.
        epochs: passes over the corpus.
        seeds: each program is trained once with each.
        vector_size: dimensions of a vector.
        architecture: skipgram or cbow.
        name: of the file in bench/results.
    """
    options = {"vector_size": vector_size, "architecture": architecture}
    print(cpu.run(list(programs), epochs, list(seeds), options, name).markdown())


def subwords_bench(
    programs: tuple[str, ...] = subwords.PROGRAMS,
    lines: int = 0,
    epochs: int = 5,
    seeds: tuple[int, ...] = (1,),
    vector_size: int = 100,
    architecture: Literal["skipgram", "cbow"] = "skipgram",
    buckets: int = 2_000_000,
    name: str = "subwords",
) -> None:
    """Vectors from n-grams: speed, and quality on words that the text does not have.

    Args:
        programs: which to run; default: all.
        lines: of Wikipedia; 0: all of its 17 M words.
        epochs: passes over the text.
        seeds: each program is trained once with each.
        vector_size: dimensions of a vector.
        architecture: skipgram or cbow.
        buckets: numbers that n-grams are hashed to.
        name: of the file in bench/results.
    """
    settings = {"vector_size": vector_size, "epochs": epochs}
    settings |= {"architecture": architecture, "buckets": buckets}
    given = list(programs), lines, list(seeds), settings, name
    print(subwords.run(*given).markdown())


def small_bench(
    reference: Path,
    seeds: tuple[int, ...] = (1, 2, 3),
    programs: tuple[str, ...] = tuple(small.PROGRAMS),
) -> None:
    """Quality of neighbours after training on 60 k words.

    Args:
        reference: file of vectors that were trained on a large corpus.
        seeds: each program is trained once with each.
        programs: which to run; default: all.
    """
    vectors = read_vectors(reference)
    print(small.run(vectors, list(seeds), list(programs)).markdown())


def dropin_bench(
    samples: int = 5, programs: tuple[str, ...] = tuple(dropin.PROGRAMS)
) -> None:
    """Start-up and fit time of a script that uses the port instead of `legacy`.

    Args:
        samples: number of processes for each program.
        programs: which to run; default: all.
    """
    print(dropin.run(samples, list(programs)).markdown())


def stages_bench(
    corpus: Path | None = None,
    samples: int = 3,
    vector_size: int = 100,
    architecture: Literal["skipgram", "cbow"] = "skipgram",
) -> None:
    """Time of each stage of a training.

    Args:
        corpus: a text file; none: 17 M words of Wikipedia.
        samples: number of measurements of each stage.
        vector_size: dimensions of a vector.
        architecture: skipgram or cbow.
    """
    corpus = corpus or data_folder() / "wiki" / "wiki17m-0.txt.gz"
    options = {"vector_size": vector_size, "architecture": architecture}
    print(stages.run(corpus, samples, options).markdown())


def parts_bench(
    corpus: Path | None = None,
    samples: int = 9,
    vector_size: int = 100,
    blocks_per_update: tuple[int, ...] = (1, 16, 64),
) -> None:
    """Time of each part of an update.

    Args:
        corpus: a text file; none: 17 M words of Wikipedia.
        samples: number of measurements of each part.
        vector_size: dimensions of a vector.
        blocks_per_update: blocks of an update; each number is measured.
    """
    corpus = corpus or data_folder() / "wiki" / "wiki17m-0.txt.gz"
    print(parts.run(corpus, samples, vector_size, blocks_per_update).markdown())


def threads_bench(
    corpus: Path | None = None,
    samples: int = 9,
    updates: int = 16,
    vector_size: int = 100,
    blocks_per_update: tuple[int, ...] = (16, 64, 256),
) -> None:
    """Time of an update with more threads than there are cores, on paper.

    Args:
        corpus: a text file; none: 17 M words of Wikipedia.
        samples: number of measurements of whole updates.
        updates: updates whose blocks and buckets are timed and counted.
        vector_size: dimensions of a vector.
        blocks_per_update: blocks of an update; each number is computed.
    """
    corpus = corpus or data_folder() / "wiki" / "wiki17m-0.txt.gz"
    sizes = vector_size, blocks_per_update
    print(threads.run(corpus, samples, updates, *sizes).markdown())


def vocabulary_bench(
    samples: int = 9,
    sizes: tuple[int, ...] = vocabulary.SIZES,
    updates: int = 1024,
) -> None:
    """Time of an update as a function of the vocabulary size.

    Args:
        samples: number of measurements of each size.
        sizes: vocabulary sizes.
        updates: updates of a call.
    """
    print(vocabulary.run(samples, sizes, updates).markdown())


def beside_bench(
    samples: int = 5,
    seconds: float = 3,
    vocabulary_size: int = 100_000,
    updates: int = 1024,
    blocks_per_update: tuple[int, ...] = (1, 64),
) -> None:
    """Throughput of the kernel while another process keeps a core busy.

    Args:
        samples: number of measurements of each configuration.
        seconds: duration of a measurement.
        vocabulary_size: rows of a table.
        updates: updates of a call, of one block; fewer of more blocks.
        blocks_per_update: blocks of an update; each number is measured.
    """
    sizes = vocabulary_size, updates, blocks_per_update
    print(beside.run(samples, seconds, *sizes).markdown())


def loader_bench(
    devices: tuple[int, ...] = (1, 2, 4, 8),
    samples: int = 5,
    rows: int = 1024,
    tokens: int = 2048,
    images: int = 64,
) -> None:
    """Throughput of batches to devices, by DeviceLoader and by one thread.

    Args:
        devices: numbers of devices; each is measured in its own process.
        samples: number of measurements of each.
        rows: rows of a batch of token ids.
        tokens: tokens of a row.
        images: images of a batch.
    """
    sizes = {"rows": rows, "tokens": tokens, "images": images}
    print(loader.run(list(devices), samples, sizes).markdown())


def modes_bench(
    devices: tuple[int, ...] = (1, 2, 4),
    samples: int = 5,
    vector_size: int = 100,
    blocks: int = 16,
    vocabulary: int = 50_000,
    updates: int = 64,
) -> None:
    """Updates by jit, sharded and pmap on one device and on several.

    Args:
        devices: numbers of devices; each is measured in its own process.
        samples: number of measurements of each.
        vector_size: dimensions of a vector.
        blocks: blocks of an update; weak scaling: of an update, for each device.
        vocabulary: rows of a table.
        updates: updates of a call.
    """
    sizes = {"vector_size": vector_size, "vocabulary": vocabulary}
    sizes |= {"blocks": blocks, "updates": updates}
    print(modes.run(list(devices), samples, sizes).markdown())


def quality_bench(
    programs: tuple[str, ...] = ("embedder", "gensim, 2 workers", "legacy, 2 workers"),
    epochs: tuple[int, ...] = (1, 2, 3, 5),
    seeds: tuple[int, ...] = (1,),
) -> None:
    """Quality against words seen and against time, as a plot.

    Args:
        programs: which to run.
        epochs: each program is trained once for each number of epochs.
        seeds: all that is repeated with each.
    """
    print(quality.run(list(programs), list(epochs), list(seeds)).markdown())


def composition_bench(
    corpus: Path | None = None,
    architecture: Literal["skipgram", "cbow"] = "skipgram",
    blocks_per_update: tuple[int, ...] = (1, 16, 64, 256, 1024),
    alphas: tuple[float, ...] = (),
    tiles: tuple[str, ...] = ("16:32",),
    block: int | None = None,
    epochs: tuple[int, ...] = (5,),
    seeds: tuple[int, ...] = (1,),
    programs: tuple[Literal["gensim"], ...] = (),
    keep: bool = False,
    name: str = "composition",
) -> None:
    """Quality of trainings whose updates have different numbers of blocks.

    All combinations of the settings are trained.

    Args:
        corpus: a text file; none: 17 M words of Wikipedia.
        architecture: skipgram or cbow.
        blocks_per_update: numbers of blocks of an update.
        alphas: learning rates to train with, beside the default of each number.
        tiles: tokens of a tile and its noise tokens, as 16:32.
        block: tokens of a block; none: the default.
        epochs: passes over the corpus.
        seeds: each training is repeated with each.
        programs: others to train for the same numbers of epochs.
        keep: keep the samples of the same commit that the file already has.
        name: of the file in bench/results.
    """
    corpus = corpus or data_folder() / "wiki" / "wiki17m-0.txt.gz"
    shapes = tuple(composition.read_tile(text) for text in tiles)
    grid = composition.Grid(blocks_per_update, alphas, shapes, block, epochs, seeds)
    print(composition.run(corpus, architecture, grid, programs, keep, name).markdown())


def graphs_bench(
    programs: tuple[str, ...] = tuple(graphs.PROGRAMS),
    walks: int = 80,
    walk_length: int = 40,
    p: float = 1.0,
    q: float = 1.0,
    vector_size: int = 128,
    window: int = 10,
    shares: tuple[int, ...] = (10, 20, 30, 40, 50, 60, 70, 80, 90),
    splits: int = 10,
    seeds: tuple[int, ...] = (1, 2, 3),
    epochs: int = 1,
    data: str = "blogcatalog",
    name: str = "graphs",
) -> None:
    """Labels of the nodes of a graph from vectors of random walks.

    Args:
        programs: which to run; default: all.
        walks: from each node.
        walk_length: nodes of a walk.
        p: return parameter of node2vec.
        q: in-out parameter of node2vec.
        vector_size: dimensions of a vector.
        window: largest distance of a context.
        shares: of the nodes whose labels are known, in percent.
        splits: random choices of these nodes, the same for all programs and seeds.
        seeds: each program is trained once with each.
        epochs: of each training.
        data: the graph: blogcatalog or cora.
        name: of the file in bench/results.
    """
    if data not in graphs.DATA:
        raise SystemExit(f"bench: --data must be of {[*graphs.DATA]}, got {data}.")
    walk = {"walks": walks, "walk_length": walk_length, "p": p, "q": q}
    settings = {"vector_size": vector_size, "window": window, "negative": 5}
    settings["epochs"] = epochs
    given = list(programs), walk, settings, list(shares), splits, list(seeds)
    print(graphs.run(*given, name, data).markdown())


def items_bench(
    data: tuple[str, ...] = tuple(items.FILES),
    programs: tuple[str, ...] = tuple(items.PROGRAMS),
    seeds: tuple[int, ...] = (1, 2, 3),
) -> None:
    """The last item of held-out sessions, beside gensim.

    Args:
        data: online-retail, wikispeedia; default: both.
        programs: which to run; default: all.
        seeds: each program is trained once with each.
    """
    print(items.run(list(data), list(programs), list(seeds)).markdown())


def rates_bench(
    subjects: tuple[str, ...] = tuple(rates.SUBJECTS),
    factors: tuple[float, ...] = (0.25, 0.5, 2.0, 4.0),
    seeds: tuple[int, ...] = (1, 2),
) -> None:
    """The automatic learning rate beside shares and multiples of it.

    Args:
        subjects: what to train; default: all.
        factors: of the automatic rate, beside 1.
        seeds: each is trained once with each.
    """
    print(rates.run(list(subjects), list(factors), list(seeds)).markdown())


def judges_bench(
    programs: tuple[str, ...] = tuple(judge.JUDGES),
    graphs: tuple[str, ...] = judges.GRAPHS,
    seeds: tuple[int, ...] = (1, 2, 3),
) -> None:
    """PecanPy, node2vec and karateclub, with gensim and with embedder's classes.

    Args:
        programs: which to run; default: all. Those that are not installed are named.
        graphs: karate, cora; default: both.
        seeds: each program is run once with each.
    """
    print(judges.run(list(programs), list(graphs), list(seeds)).markdown())


def recipes_bench(
    programs: tuple[str, ...] = tuple(recipes.RECIPES),
    seeds: tuple[int, ...] = (1, 2, 3),
    limit: int | None = None,
) -> None:
    """Three programs for gensim, with gensim and with embedder's classes.

    Args:
        programs: item2vec, node2vec, text; default: all.
        seeds: each is run once with each.
        limit: baskets, nodes of a walk, or sentences that a program uses; default: all.
    """
    print(recipes.run(list(programs), list(seeds), limit).markdown())


def updates_bench(
    programs: tuple[str, ...] = tuple(updates.PROGRAMS),
    seeds: tuple[int, ...] = (1, 2, 3),
    days: int = 10,
    every: int = 1,
    name: str = "updates",
) -> None:
    """A model of a shop, updated each day, beside training anew and gensim's update.

    Args:
        programs: which to run; default: all.
        seeds: each program is trained once with each.
        days: the last days with sales.
        every: days of an update.
        name: of the file in bench/results.
    """
    print(updates.run(list(programs), list(seeds), days, every, name).markdown())


def encoder_bench(
    net: Literal[
        *("mlp", "images", "deep"), *("conv-small", "resnet", "wide-resnet", "vit")
    ] = "mlp",
    systems: tuple[str, ...] = (),
    samples: int = 3,
    data: str = "mnist",
) -> None:
    """Seconds of an epoch of an encoder, and accuracy after each.

    Args:
        net: an MLP on MNIST, one on large images, or 90 layers; or a network of images,
            whose updates a second are measured beside PyTorch's.
        systems: which to run; default: all.
        samples: number of measurements of each.
        data: mnist or fashion-mnist, for an MLP.
    """
    if net in networks.NETS:
        print(networks.run(net, list(systems), samples).markdown())
        return
    names = list(systems) or list(SYSTEMS)
    print(encoder.run(net, names, samples, data).markdown())


def convolutions_bench(
    forms: tuple[str, ...] = (
        *("the program's", "XLA's", "patches"),
        "a product a pixel",
    ),
    samples: int = 5,
    shapes: int = len(convolutions.SHAPES),
) -> None:
    """Convolutions and their gradients in different forms, in a loop and without.

    Args:
        forms: which to run; default: all.
        samples: number of measurements of each.
        shapes: how many of the shapes.
    """
    chosen = list(convolutions.SHAPES[:shapes])
    print(convolutions.run(chosen, list(forms), samples).markdown())


def search_bench(
    data: tuple[Literal["clustered", "wiki"], ...] = ("clustered", "wiki"),
    programs: tuple[str, ...] = tuple(search.PROGRAMS),
    rows: int = 1_000_000,
    samples: int = 5,
    seconds: float = 10.0,
    name: str = "search",
) -> None:
    """Nearest neighbours: queries a second, and recall.

    Args:
        data: sets of vectors.
        programs: which to run; default: all.
        rows: of the clustered vectors.
        samples: of each program, in turn.
        seconds: of a sample, about.
        name: of the file in bench/results.
    """
    found = search.run(list(data), list(programs), rows, samples, seconds, name)
    print(found.markdown())


def accuracy_bench(
    cases: tuple[str, ...] = tuple(accuracy.CASES),
    seeds: tuple[int, ...] = (1, 2, 3),
    epochs: int = 8,
    batch_size: int = 128,
    learning_rate: float = 0.002,
    name: str = "accuracy",
) -> None:
    """Accuracy and retrieval of encoders on test images.

    Args:
        cases: what to train; default: all.
        seeds: each is trained once with each.
        epochs: passes over the 60,000 training images.
        batch_size: images of an update.
        learning_rate: of the optimizer.
        name: of the file in bench/results.
    """
    settings = {"epochs": epochs, "batch_size": batch_size}
    settings |= {"learning_rate": learning_rate}
    print(accuracy.run(list(cases), list(seeds), settings, name).markdown())


def search_batch_bench(
    rows: int = 1_000_000,
    queries: tuple[int, ...] = (10_000, 100_000, 1_000_000),
    most_exact: int = 100_000,
    samples: int = 1,
    name: str = "search-batch",
) -> None:
    """Nearest neighbours from file to file: queries a second, and peak memory.

    Args:
        rows: of the clustered vectors.
        queries: numbers of queries.
        most_exact: queries that are looked up by exact search, too.
        samples: of each, one after the other.
        name: of the file in bench/results.
    """
    found = search_batch.run(rows, [*queries], most_exact, samples, name)
    print(found.markdown())


def folders_bench(
    images: int = 4000,
    samples: int = 3,
    network: Literal["conv-small", "resnet", "wide-resnet", "vit"] = "conv-small",
    network_args: tuple[str, ...] = (),
) -> None:
    """New images through an encoder: `embedder embed` of a folder and of an idx file,
    beside a plain loop.

    Args:
        images: how many of Fashion-MNIST, as PNGs and in one file.
        samples: number of measurements of each.
        network: that of the encoder.
        network_args: its arguments, as NAME=VALUE.
    """
    print(folders.run(images, samples, network, list(network_args)).markdown())


def retrieval_bench(
    objectives: tuple[str, ...] = retrieval.OBJECTIVES,
    seeds: tuple[int, ...] = (1, 2, 3),
    epochs: int = 4,
    width: int = 32,
) -> None:
    """Recall of classes that were not trained on, by the objective.

    Args:
        objectives: which to train.
        seeds: each is trained once with each.
        epochs: passes over the images of seven classes of Fashion-MNIST.
        width: of conv-small.
    """
    settings = {"network_args": {"width": width}}
    print(retrieval.run(list(objectives), list(seeds), epochs, settings).markdown())


def replicas_bench(
    subjects: tuple[Literal["spirals", "mnist", "wiki"], ...] = tuple(replicas.NUMBERS),
    programs: tuple[str, ...] = replicas.PROGRAMS,
    most: int = 10_000,
    samples: int = 3,
) -> None:
    """K models side by side against one, and against one after another.

    Args:
        subjects: what to train; default: all.
        programs: which to run; default: all.
        most: largest number of models.
        samples: repetitions; programs take turns.
    """
    found = replicas.run(list(subjects), list(programs), most, samples)
    print(found.markdown())


def spirals_bench(networks: int = 100, steps: int = 2000) -> None:
    """The certainty of one network beside that of many, on two spirals.

    Args:
        networks: trained side by side, each on its bootstrap resample.
        steps: of Adam on all points.
    """
    print(spirals.run(networks, steps).markdown())


def encoder_modes_bench(
    devices: tuple[int, ...] = (1, 2),
    samples: int = 2,
    net: Literal["mlp", "images", "deep"] = "deep",
    data: str = "mnist",
) -> None:
    """Steps of 90 layers by jit, sharded and pmap.

    Args:
        devices: numbers of devices; each is measured in its own process.
        samples: number of measurements of each.
        net: an MLP on MNIST, one on large images, or 90 layers.
        data: mnist or fashion-mnist, for the net mlp.
    """
    print(encoder.run_modes(net, list(devices), samples, data).markdown())


def encoder_busy_bench(updates_of_a_call: int = 334, data: str = "mnist") -> None:
    """Time that a training waits for data, with and without cache and prefetch.

    Args:
        updates_of_a_call: updates between two time stamps; 334 are the program's.
        data: mnist or fashion-mnist.
    """
    print(encoder.run_busy(updates_of_a_call, data).markdown())


def checkpoints_bench(
    names: tuple[str, ...] = tuple(checkpoints.TITLES),
    saves: int = 6,
    seconds: float | None = None,
) -> None:
    """Cost of checkpoints during a training.

    Args:
        names: what to train; default: all.
        saves: number of measured saves of each.
        seconds: of an interval; default: 4, or 20 for the large tables.
    """
    print(checkpoints.run(list(names), saves, seconds).markdown())


def memory_bench(
    times: tuple[float, ...] = (0.1, 1), limit: float = 2, sample: float = 1e-7
) -> None:
    """Peak memory as a function of the corpus size, under a limit of the system.

    Args:
        times: sizes of the text as multiples of the limit; a text of 10 times the
            limit needs 25 times the limit on disk.
        limit: GiB that a training may allocate.
        sample: as in a training; small, so that the bench takes minutes.
    """
    print(memory.run(limit, list(times), sample).markdown())


def memory_sessions_bench(
    times: tuple[float, ...] = (0.1, 1), limit: float = 2, sample: float = 1e-4
) -> None:
    """Peak memory as a function of the size of a table of sessions, under a limit.

    Args:
        times: sizes of the files as multiples of the limit; a table of 10 times the
            limit needs 27 times the limit on disk.
        limit: GiB that a training may allocate.
        sample: as in a training; small, so that the bench takes minutes.
    """
    print(memory.run_sessions(limit, list(times), sample).markdown())


def memory_estimates_bench(
    names: tuple[str, ...] = tuple(memory.ESTIMATED),
) -> None:
    """Memory as estimated by `--dry-run`, and as measured.

    Args:
        names: what to train; default: all.
    """
    print(memory.run_estimates(list(names)).markdown())


def encoded_bench(corpus: Path, to: Path) -> None:
    """Write a corpus as the file of ids that `bench gpu` reads.

    Args:
        corpus: a text file.
        to: the .npz file to write.
    """
    gpu.write_encoded(encode(open_corpus(str(corpus)), Config().tables.min_count), to)


BENCHES: dict[str, Callable[..., None]] = {
    "cpu": cpu_bench,
    "small": small_bench,
    "dropin": dropin_bench,
    "stages": stages_bench,
    "parts": parts_bench,
    "threads": threads_bench,
    "vocabulary": vocabulary_bench,
    "beside": beside_bench,
    "loader": loader_bench,
    "modes": modes_bench,
    "quality": quality_bench,
    "recipes": recipes_bench,
    "composition": composition_bench,
    "checkpoints": checkpoints_bench,
    "memory": memory_bench,
    "memory-sessions": memory_sessions_bench,
    "memory-estimates": memory_estimates_bench,
    "graphs": graphs_bench,
    "items": items_bench,
    "rates": rates_bench,
    "judges": judges_bench,
    "updates": updates_bench,
    "encoded": encoded_bench,
    "encoder": encoder_bench,
    "encoder-modes": encoder_modes_bench,
    "convolutions": convolutions_bench,
    "accuracy": accuracy_bench,
    "folders": folders_bench,
    "retrieval": retrieval_bench,
    "search": search_bench,
    "search-batch": search_batch_bench,
    "replicas": replicas_bench,
    "spirals": spirals_bench,
    "subwords": subwords_bench,
    "encoder-busy": encoder_busy_bench,
}
"""All benches but those of `OWN_COMMANDS`, by name."""
OWN_COMMANDS = "gpu", "gpu-offline", "gpu-replicas", "gpu-networks"
"""Benches that run without the packages of others."""


def main(arguments: list[str]) -> None:
    """Runs the bench named in `arguments`."""
    tyro.extras.subcommand_cli_from_dict(
        BENCHES | {"render": render.render_tables},
        prog="python -m bench",
        description=f"Benches; {', '.join(OWN_COMMANDS)} have their own --help.",
        args=arguments,
    )
