"""Promises of a few words each, which no other test has."""

import errno
import itertools
import json
import shutil
import signal
import tarfile
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from embedder import (
    EmbeddingTrainer,
    FeatureEncoder,
    Vectors,
    compare_spaces,
    find_phrases,
    read_vectors,
    write_vectors,
)
from embedder.cli.main import main
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import BaseVocabulary, encode, encode_cached
from embedder.data.graphs.csr import Edges
from embedder.data.graphs.walks import split_edges
from embedder.data.label_files import read_labels
from embedder.disk import lock
from embedder.engine.checkpoints import Checkpoints
from embedder.metrics.ranking import split_cases, target_ranks
from tests.contract.events import at_each_event

START = "--epochs 0 --min-count 1 --loader memory --no-report --vector-size 4"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def keys_of(*arguments: str, run: str = "run") -> list[str]:
    """The keys of a run that is not trained."""
    assert main(["train", *arguments, *START.split(), "--workdir", run]) == 0
    return read_vectors(run).keys


def random_vectors(num: int, size: int = 8, **options) -> Vectors:
    rng = np.random.default_rng(0)
    return Vectors(
        [f"w{i}" for i in range(num)], rng.normal(size=(num, size)), **options
    )


def test_an_array_of_counts_stays_its_owners():
    counts = np.arange(3)
    random_vectors(3, counts=counts)
    counts[0] = 7


def test_integers_with_zeros_in_front_stay_text_in_parquet():
    vectors = Vectors(["007", "7"], np.eye(2), key_type="integer")
    write_vectors(vectors, "v.parquet")
    assert read_vectors("v.parquet").keys == ["007", "7"]


def test_p_and_q_that_are_equal_make_other_walks_than_none():
    rng = np.random.default_rng(0)
    lines = [f"{a}\t{b}" for a, b in rng.integers(20, size=(60, 2))]
    Path("edges.tsv").write_text("\n".join(lines))
    options = {"vector_size": 4, "min_count": 1, "epochs": 1}
    plain, walked = (
        EmbeddingTrainer(**options).fit_graph("edges.tsv", p=p, q=p) for p in (1, 4)
    )
    assert not np.array_equal(plain.vectors, walked.vectors)


def test_every_node_keeps_an_edge_to_another_one():
    """Also where it has a loop, and nearly all edges are held out."""
    ends = np.random.default_rng(1).integers(30, size=(60, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    loops = np.stack([np.arange(30)] * 2, axis=1)
    source, target = np.concatenate([ends, loops]).T
    edges = Edges([f"n{i}" for i in range(30)], source, target)
    kept, _ = split_edges(edges, 0.999, directed=False)
    pairs = np.stack([kept.source, kept.target])
    assert {*pairs[:, pairs[0] != pairs[1]].flat} == {*ends.flat}


def test_names_with_commas_are_whole_where_tabs_separate():
    Path("edges.tsv").write_text("a,b\tc,d\nc,d\te,f\n")
    assert {*keys_of("edges.tsv", "--walks", "1")} == {"a,b", "c,d", "e,f"}


def test_a_byte_order_mark_is_left_out_at_the_start_alone(monkeypatch):
    """Also where the text is read in pieces, and one starts with a mark."""
    monkeypatch.setattr("embedder.data.plain_text._CHUNK_BYTES", 7)
    Path("c.txt").write_bytes("\ufeffa b\n".encode() * 2)
    assert {*keys_of("c.txt")} == {"a", "b", "\ufeffa"}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_an_order_that_is_missing_leaves_a_row_out(mark):
    frame = pl.DataFrame(
        {"s": [1, 1, 1], "i": ["a", "b", "c"], "o": [1.0, float("nan"), 0.0]}
    )
    frame.write_parquet("t.parquet")
    found = keys_of("t.parquet", *"--session s --item i --order o".split())
    assert {*found} == {"a", "c"}


def test_a_phrase_scores_above_the_threshold():
    sentences = [["new", "york"]] * 5 + [["a"], ["b"]]
    found = find_phrases(sentences, min_count=1, threshold=1e-9).found
    score = found["score"].max()
    assert len(found) > len(find_phrases(sentences, min_count=1, threshold=score).found)


@pytest.mark.parametrize("count", [1, 2])
def test_the_most_of_a_count_is_included(capsys, count):
    vectors = random_vectors(4, counts=np.array([9, count, count, 9]))
    write_vectors(vectors, "v.npz")
    command = ["neighbors", "v.npz", "w0", "--max-count", str(count), "--json"]
    assert main(command) == 0
    assert {"w1", "w2"} <= {*_texts(json.loads(capsys.readouterr().out))}


def _texts(value) -> set[str]:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        return {text for each in value for text in _texts(each)}
    return {str(value)}


def test_an_empty_variable_of_the_cache_is_as_none(monkeypatch):
    from embedder.disk.cache_files import user_cache_folder

    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert user_cache_folder().parts[:2] == ("~", ".cache")


def image(shade: int) -> bytes:
    buffer = BytesIO()
    Image.new("L", (4, 4), shade).save(buffer, "png")
    return buffer.getvalue()


def labels_of(data: str) -> set[str]:
    options = f"--model encoder {START.replace('--min-count 1', '')}"
    assert main(["train", data, *options.split(), "--workdir", "run"]) == 0
    return {*pl.read_parquet("run/labels.parquet")["label"].cast(str)}


def test_the_class_of_an_image_is_the_first_of_its_folders():
    for name in ("cat/x/1.png", "cat/y/2.png", "dog/x/3.png"):
        path = Path("images", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(len(name)))
    assert labels_of("images") == {"cat", "dog"}


def test_a_label_stands_before_a_caption():
    with tarfile.open("images.tar", "w") as tar:
        for i, label in enumerate("abab"):
            for name, data in {
                f"{i}.png": image(i),
                f"{i}.txt": b"a caption",
                f"{i}.json": json.dumps({"label": label}).encode(),
            }.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, BytesIO(data))
    assert labels_of("images.tar") == {"a", "b"}


TEXT = "".join(f"{' '.join(each)}\n" for each in itertools.permutations("abcd")) * 3
TRAIN = "train text.txt --vector-size 4 --min-count 1 --loader memory --no-report"
TRAIN += " --epochs 1 --workdir run"


def train(*more: str) -> int:
    if not Path("text.txt").exists():
        Path("text.txt").write_text(TEXT)
    return main([*TRAIN.split(), *more])


def test_other_files_of_a_mirror_are_left_alone():
    command = "--mirror", "mirror", "--epochs", "30", "--save-every", "16"
    count = itertools.count()

    def stop() -> None:
        if next(count) == 40:
            signal.raise_signal(signal.SIGTERM)

    with at_each_event(Path("run"), stop):
        assert train(*command) == 143
    Path("mirror/notes.txt").write_text("mine")
    assert train(*command) == 0
    assert Path("mirror/notes.txt").read_text() == "mine"


def test_a_run_that_starts_anew_has_no_scores_of_the_one_before():
    assert train("--holdout", "0.3", "--best-by", "next-item") == 0
    names = {*Path("run/SHA256SUMS").read_text().split()[1::2]}
    assert Path("run/scores.json").exists() and "scores.json" in names
    assert train("--overwrite") == 0
    assert not Path("run/scores.json").exists()


@pytest.mark.parametrize(
    "flags",
    ["--bootstrap", "--init-from start.txt", "--seed 2", "--holdout 0.2", "--hs"],
)
def test_a_run_that_is_given_another_setting_is_refused(capsys, flags):
    write_vectors(Vectors(["a"], np.ones((1, 4))), "start.txt")
    assert train() == 0
    before = Path("run/model.npz").read_bytes()
    assert train(*flags.split()) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("embedder: ")
    assert Path("run/model.npz").read_bytes() == before


def test_step_0_is_no_step_of_a_run(capsys):
    assert train() == 0
    Path("run/vectors.safetensors").unlink()
    assert train("--step", "0") == 2
    assert "0" in capsys.readouterr().err.splitlines()[-1]


def test_the_objective_of_an_encoder_is_saved():
    rng = np.random.default_rng(0)
    encoder = FeatureEncoder(objective="supcon", epochs=1)
    encoder.fit(rng.random((20, 3)), rng.integers(2, size=20)).save("e.npz")
    assert FeatureEncoder.load("e.npz").get_params()["objective"] == "supcon"


def test_epochs_of_a_converted_run_count_from_1():
    trainer = EmbeddingTrainer(vector_size=4, min_count=1, epochs=2)
    trainer.fit([["a", "b", "c"]] * 9).save("model.npz")
    assert main(["convert", "model.npz", "run"]) == 0
    lines = map(json.loads, Path("run/metrics.jsonl").read_text().splitlines())
    assert [line["epoch"] for line in lines] == [1, 2]


def test_with_halving_the_best_has_all_epochs():
    """The best of a trial that ended early is not the result of the sweep."""
    Path("text.txt").write_text(TEXT)
    Path("space.toml").write_text("alpha = [0.05, 0.5, 5.0]\n")
    command = "sweep space.toml text.txt --vector-size 4 --min-count 1 --workdir s"
    flags = "--loader memory --halving 2 --epochs 2 --sample 0"
    assert main([*command.split(), *flags.split()]) == 0
    trials = pl.read_csv("s/trials.csv")
    assert trials["epochs"][0] == trials["epochs"].max() > trials["epochs"].min()
    assert trials["held_out"][0] < trials["held_out"].max()


def test_tied_targets_of_a_case_have_one_last_rank_each():
    """Ties rank before the right items, and the targets do not outrank each other."""
    sequences = np.arange(5), np.array([5])
    cases = split_cases(sequences, np.arange(5) > 1, "included")
    ranks, _ = target_ranks(lambda queries: np.zeros((1, 8)), cases, 8)
    assert ranks.tolist() == [6, 7, 8]


def test_a_node_that_is_called_id_has_its_labels():
    Path("labels.tsv").write_text("id\tx\na\ty\nb\tz\n")
    found = read_labels(Path("labels.tsv"), ["id", "a"])
    assert found.rows.tolist() == [0, 1]
    assert read_labels(Path("labels.tsv"), ["c", "a", "b"]).rows.tolist() == [1, 2]


def test_nodes_with_labels_that_a_program_made_floats_are_integers():
    Path("labels.csv").write_text("node,label\n0.0,a\n2.0,b\n9.0,b\n")
    found = read_labels(Path("labels.csv"), ["2", "1", "0"])
    assert (found.rows.tolist(), found.num_unknown) == ([0, 2], 1)
    as_such = read_labels(Path("labels.csv"), ["2.0", "1", "0.0"])
    assert (as_such.rows.tolist(), as_such.num_unknown) == ([0, 2], 1)


def test_a_key_that_begins_with_a_colon_is_looked_up(monkeypatch, capsys):
    vectors = random_vectors(3)
    write_vectors(Vectors([":quit", "a", "b"], vectors.matrix), "v.npz")
    monkeypatch.setattr("sys.stdin", StringIO(":quit\n"))
    assert main(["neighbors", "v.npz"]) == 0
    assert "a" in capsys.readouterr().out


def test_the_last_of_two_mounts_at_a_point_counts(monkeypatch):
    """A network disk that is mounted over a local one."""
    mounts = f"1 2 3:4 / {Path().absolute()} rw - {{}} dev rw\n"
    Path("mounts").write_text(mounts.format("ext4") + mounts.format("nfs"))
    monkeypatch.setattr(lock, "_MOUNTS", Path("mounts").absolute())
    assert lock._file_system(Path("run")) == "nfs"


def test_the_first_name_of_a_key_counts_not_its_first_row(capsys):
    frame = pl.DataFrame({"key": ["a", "a"], "name": [None, "A"]})
    frame.write_csv("names.csv")
    write_vectors(Vectors(["a", "b"], np.eye(2)), "v.npz")
    assert main(["neighbors", "v.npz", "b", "--names", "names.csv", "--json"]) == 0
    assert "A" in {*_texts(json.loads(capsys.readouterr().out))}


def arrays_of(run: str) -> dict[str, np.ndarray]:
    with np.load(Path(run, "model.npz")) as file:
        return {name: file[name] for name in file.files}


def test_classes_are_balanced_by_what_is_trained_on():
    """The classes of validation examples change nothing of the training."""
    rng = np.random.default_rng(0)
    X, y = rng.random((50, 3)), rng.integers(2, size=50)
    flags = f"--model encoder {START} --epochs 2 --validation-fraction 0.2"
    flags = flags.replace("--min-count 1", "--class-weights balanced")
    for run, held_out in ("a", [0] * 10), ("b", [1] * 10):
        np.savez(f"{run}.npz", X=X, y=np.concatenate([y[:40], held_out]))
        assert main(["train", f"{run}.npz", *flags.split(), "--workdir", run]) == 0
    one, other = (arrays_of(run) for run in "ab")
    np.testing.assert_array_equal(one["weights_0"], other["weights_0"])


def test_a_start_from_a_model_takes_both_rows_of_each_token():
    """Where the tokens have other numbers."""
    assert train() == 0
    Path("other.txt").write_text("d d d d c c c b b a\n")
    keys = keys_of("other.txt", "--init-from", "run", run="new")
    old, new = arrays_of("run"), arrays_of("new")
    known = read_vectors("run").keys
    assert keys != known
    for name in "input", "output":
        rows = old[name][[known.index(key) for key in keys]]
        np.testing.assert_array_equal(new[name], rows)


def test_losses_of_an_unfinished_run_are_kept_by_what_goes_on_from_it():
    count = itertools.count()

    def stop() -> None:
        if next(count) == 40:
            signal.raise_signal(signal.SIGTERM)

    with at_each_event(Path("run"), stop):
        assert train("--epochs", "30", "--save-every", "16") == 143
    lines = Path("run/metrics.jsonl").read_text().splitlines()
    assert lines
    command = "train text.txt --resume run --epochs 1 --workdir new --no-report"
    assert main(command.split()) == 0
    assert len(arrays_of("new")["loss_history"]) == len(lines) + 1


def test_the_loss_of_the_kernel_is_finite_with_much_noise():
    assert train("--noise", "2048", "--backend", "numba", "--vector-size", "8") == 0
    (line,) = map(json.loads, Path("run/metrics.jsonl").read_text().splitlines())
    assert 0 < line["loss"] < 10


def test_the_sum_of_many_keys_has_its_neighbours_by_an_index():
    """All keys of the sum are nearer to it than any other."""
    pytest.importorskip("usearch")
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(200, 8))
    matrix[:50] = 1 + rng.normal(size=(50, 8)) / 100
    write_vectors(Vectors([f"w{i}" for i in range(200)], matrix), "v.npz")
    assert main(["index", "v.npz"]) == 0
    vectors = read_vectors("v.npz", index="auto")
    assert len(vectors.most_similar(vectors.keys[:50], topn=3)) == 3


def test_intervals_of_a_sampled_band_lie_around_the_score_of_all(monkeypatch):
    monkeypatch.setattr("embedder.metrics.compare._TOKENS", 100)
    a, b = np.random.default_rng(0).normal(size=(2, 900, 6))
    b[::2] = a[::2]
    keys = [f"w{i}" for i in range(900)]
    found = compare_spaces(Vectors(keys, a), Vectors(keys, b))
    score, lower, upper = found.bands[1].cosine
    assert (lower + upper) / 2 == pytest.approx(score, abs=(upper - lower) / 20)


def test_neighbours_show_the_labels_that_there_are(capsys):
    """Images in the folder itself have none."""
    for name in ("cat/1.png", "cat/2.png", "3.png", "4.png"):
        path = Path("images", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(len(name)))
    command = f"train images --model encoder {START} --objective simclr --augment flip"
    command = command.replace("--min-count 1", "")
    assert main([*command.split(), "--workdir", "run"]) == 0
    key = read_vectors("run").keys[0]
    capsys.readouterr()
    assert main(["neighbors", "run", key, "--json"]) == 0
    assert "cat" in {*_texts(json.loads(capsys.readouterr().out))}


def test_the_ending_of_a_network_may_have_capitals():
    np.savez("data.npz", X=np.eye(4), y=np.arange(4) % 2)
    labels_of("data.npz")
    assert main(["export", "run", "--to", "net.StableHLO"]) == 0
    assert Path("net.StableHLO").exists()


def test_caches_of_updates_beside_other_earlier_corpora_are_apart():
    known = encode(sequences_corpus([["a"]]), 1).vocabulary
    for token in "bc":
        base = BaseVocabulary(known, grows=True, earlier={token: 4})
        corpus = sequences_corpus([["b", "c"]])
        found = encode_cached(corpus, 5, Path("cache"), base)
        assert found.vocabulary.tokens == ["a", token]


def test_caches_of_lists_that_are_cut_elsewhere_are_apart():
    for tokens in ["ab", "c"], ["a", "bc"]:
        found = encode_cached(sequences_corpus([tokens]), 1, Path("cache"))
        assert found.vocabulary.tokens == tokens


def test_the_first_row_behind_a_byte_order_mark_is_read():
    Path("t.csv").write_text("1,a\n1,b\n2,c\n", encoding="utf-8-sig")
    columns = "--session column_1 --item column_2"
    assert {*keys_of("t.csv", *columns.split())} == {"a", "b", "c"}


def test_a_run_with_keys_that_are_cut_elsewhere_is_another():
    Path("text.txt").write_text("ab c a bc\n" * 9)
    write_vectors(Vectors(["ab", "c", "a", "bc"], np.eye(4)), "start.txt")
    for keys, code in ("ab\nc\n", 0), ("a\nbc\n", 2):
        Path("keys.txt").write_text(keys)
        flags = "--init-from start.txt --freeze keys.txt --epochs 0"
        assert train(*flags.split()) == code


def test_the_label_for_no_label_is_no_class():
    """-1 in data of Hugging Face."""
    frame = pl.DataFrame({"image": [*map(image, range(4))], "label": [-1, 0, 1, 0]})
    facts = {"info": {"features": {"label": {"names": ["cat", "dog"]}}}}
    frame.write_parquet("t.parquet", metadata={"huggingface": json.dumps(facts)})
    assert labels_of("t.parquet") == {"-1", "0", "1"}


def test_later_checkpoints_that_are_passed_over_are_removed():
    checkpoints = Checkpoints(Path("run").absolute())
    Path("run").mkdir()
    for step in 4, 8, 6:  # 8 is damaged, so the run goes on from 4
        checkpoints.save(step, {"a": np.ones(2)}, {})
        checkpoints.wait()
        shutil.rmtree("run/8/facts", ignore_errors=True)
    assert checkpoints.steps() == [6, 4]


def test_a_result_beyond_the_quota_is_a_failed_training(monkeypatch):
    def exceed(*_) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr("embedder.tokens.task.write_vectors", exceed)
    assert train("--epochs", "0") == 3
