"""embedder.gensim.Word2Vec: what gensim's own tests do not ask."""

import copy
import logging
import math
import pickle
import re

import gensim.models.word2vec
import numpy as np
import pytest

import embedder
from embedder.gensim import CallbackAny2Vec, LineSentence, Text8Corpus, Word2Vec, epochs

REAL = gensim.models.word2vec.Word2Vec
RNG = np.random.default_rng(0)
PAIRS = [["tea", "milk", "sugar"], ["nail", "hammer", "screw"]]
SENTENCES = [[str(word) for word in RNG.permutation(PAIRS[i % 2])] for i in range(600)]
OTHERS = [["tea", "new", "milk", "odd"], ["nail"], [], ["unseen", "tea"]]
SETTINGS = {"vector_size": 16, "min_count": 1, "sample": 0, "alpha": 0.05}
TREE = {"hs": 1, "negative": 0}


def model(**settings) -> Word2Vec:
    return Word2Vec(SENTENCES, **SETTINGS | settings)


def vectors(**settings) -> np.ndarray:
    return model(**settings).wv.vectors


def untrained(kind=Word2Vec, sentences=SENTENCES, **settings):
    found = kind(**SETTINGS | settings)
    found.build_vocab(sentences)
    return found


@pytest.mark.spread(1)
@pytest.mark.parametrize("sg", [0, 1])
def test_any_number_of_workers_gives_the_same_bits(sg):
    expected = vectors(sg=sg, workers=1)
    for workers in (4, 0, -1):
        np.testing.assert_array_equal(vectors(sg=sg, workers=workers), expected)


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("sg", "cbow_mean"), [(1, 1), (0, 1), (0, 0)], ids=["sg", "cbow", "cbow-sums"]
)
@pytest.mark.parametrize("tree", [{}, TREE, {"hs": 1}], ids=["ns", "hs", "both"])
def test_vectors_are_those_of_the_trainer_it_stands_for(sg, cbow_mean, tree):
    """Given the start, counts and order that gensim has, passes and rates.

    The true gradient of CBOW's means is divided by the number of contexts: four times
    `alpha`; that of sums is not. The rows of a tree's nodes are after the words'.
    """
    settings = {"sg": sg, "cbow_mean": cbow_mean} | tree
    found, start = model(epochs=2, **settings), untrained(**settings)
    ids = [start.wv.key_to_index[word] for line in SENTENCES for word in line]
    sequences = np.array(ids, np.int32), np.full(len(SENTENCES), 3)
    factor = 4 if not sg and cbow_mean else 1
    passes = 6 if factor == 4 and tree == TREE else 8  # of an epoch: there are 6 words
    lag = (0.05 - 1e-4) / 4  # half an epoch of two: a job has the rate of its start
    rate = factor / passes
    cap = (0.4 if tree else 1.6) / rate / 0.05
    trainer = embedder.EmbeddingTrainer(
        **{"vector_size": 16, "min_count": 1, "sample": 0, "epochs": 2},
        **{"alpha": (0.05 + lag) * rate, "min_alpha": (1e-4 + lag) * rate},
        **{"hs": bool(tree), "negative": tree.get("negative", 5)},
        architecture="skipgram" if sg else "cbow",
        cbow_mean=bool(start.cbow_mean),
        cap=cap if sg or tree else None,
    )
    counts = start.wv.expandos["count"]
    outputs = [getattr(start, name, np.zeros((0, 16))) for name in ("syn1neg", "syn1")]
    tables = start.wv.vectors, np.concatenate(outputs, dtype=np.float32), counts, None
    for epoch in range(2 * passes):
        epochs = range(epoch, epoch + 1)
        done = trainer.train_epochs(tables, sequences, epochs, range(2 * passes))
        tables = done.input, done.output, counts, None
    np.testing.assert_array_equal(found.wv.vectors, tables[0])
    if tree:
        np.testing.assert_array_equal(found.syn1, tables[1][-6:])
    if tree != TREE:
        np.testing.assert_array_equal(found.syn1neg, tables[1][:6])


def test_wider_windows_than_a_block_are_cut(caplog):
    found = model(window=200, sg=1, epochs=1)
    assert found.window == 200
    assert "is trained as 127: contexts are within blocks of 64" in caplog.text
    assert found.loss_history == model(window=127, sg=1, epochs=1).loss_history


@pytest.mark.slow
@pytest.mark.parametrize("hs", [0, 1])
def test_added_vectors_stay_while_the_words_of_the_model_learn(hs, tmp_path):
    found = model(sg=1, hs=hs)
    codes = found.wv.expandos.get("code")
    before = found.wv.vectors.copy()
    found.wv.add_vectors(["added"], np.ones((1, 16), np.float32))
    found.train([*SENTENCES, ["added", "tea"]], total_examples=601, epochs=1)
    np.testing.assert_array_equal(found.wv["added"], np.ones(16))
    assert len(found.syn1neg) == 6 and (found.wv.vectors[:6] != before).any()
    found.save(tmp_path / "m")
    found = Word2Vec.load(tmp_path / "m")
    assert len(found.wv) == 7 and len(found.syn1neg) == 6
    if hs:
        assert [*map(list, found.wv.expandos["code"][:6])] == [*map(list, codes)]
    found.build_vocab([["added", "new"]], update=True)
    found.train([["added", "new"]] * 50, total_examples=50, epochs=1)
    assert len(found.syn1neg) == 8 and (found.wv["added"] != 1).any()


def test_a_warning_that_nothing_is_learned_comes_once_in_a_training(caplog):
    found = Word2Vec(**SETTINGS, sg=1)
    found.build_vocab([["tea"], ["milk"]])
    for _ in range(2):
        caplog.clear()
        found.train([["tea"], ["milk"]], total_examples=2, epochs=3)
        assert caplog.text.count("nothing is learned") == 1


@pytest.mark.parametrize(
    ("totals", "unit", "queued"),
    [({"total_examples": 600}, "examples", 0), ({"total_words": 1800}, "words", -1)],
)
def test_progress_is_logged_within_an_epoch(
    totals, unit, queued, caplog, monkeypatch, tmp_path
):
    """Of a file gensim has no queue."""
    monkeypatch.setattr(epochs, "_FIRST_REPORT", 0.0)
    caplog.set_level(logging.INFO, "gensim")
    found, path = untrained(sg=1), tmp_path / "text"
    path.write_text("\n".join(map(" ".join, SENTENCES)))
    corpus = {"corpus_file": path} if queued else {"corpus_iterable": SENTENCES}
    found.train(**corpus, **totals, epochs=2, report_delay=0)
    pattern = (
        rf"EPOCH (\d) - PROGRESS: at (\d+\.\d\d)% {unit}, \d+ words/s, in_qsize "
        rf"{queued}, out_qsize 0"
    )
    done = [(int(n), float(x)) for n, x in re.findall(pattern, caplog.text)]
    assert {epoch for epoch, _ in done} == {0, 1} and done == sorted(done)
    assert all(0 < share <= 100 for _, share in done)
    caplog.clear()
    found.train(SENTENCES, **totals, epochs=1, report_delay=99)
    assert caplog.text.count("PROGRESS") == 1


@pytest.mark.parametrize("sample", [0, 1e-2, 3, 1000])
def test_start_and_order_of_words_are_those_of_gensim(sample):
    settings = SETTINGS | {"seed": 5, "sample": sample}
    ours, theirs = pair = [kind(**settings) for kind in (Word2Vec, REAL)]
    reports = []
    for each in pair:
        each.scan_vocab(SENTENCES[:50] + [["rare"]])
        reports.append(each.prepare_vocab())
        each.build_vocab(SENTENCES[:7])
        each.build_vocab([["new", "tea"]], update=True)
    assert reports[0] == reports[1]
    assert ours.wv.index_to_key == theirs.wv.index_to_key
    np.testing.assert_array_equal(ours.wv.vectors, theirs.wv.vectors)
    np.testing.assert_array_equal(ours.cum_table, theirs.cum_table)
    for name in ("count", "sample_int"):
        np.testing.assert_array_equal(*(each.wv.expandos[name] for each in pair))


def test_callbacks_and_the_loss_as_gensim_counts_it():
    class Recorder(CallbackAny2Vec):
        """What happens when, and the loss as recipes read it."""

        events, losses = [], []

        def on_train_begin(self, model):
            self.events.append("train")

        def on_epoch_begin(self, model):
            self.events.append("begin")

        def on_epoch_end(self, model):
            self.events.append("end")
            self.losses.append(model.get_latest_training_loss())
            model.running_training_loss = 0.0

        def on_train_end(self, model):
            self.events.append("done")

    recorder = Recorder()
    found = model(sg=1, epochs=3, compute_loss=True, callbacks=[recorder])
    assert recorder.events == ["train", *["begin", "end"] * 3, "done"]
    # Of three words each has its two neighbours, or one at the end of a block.
    num_pairs = np.array(recorder.losses) / found.loss_history
    assert ((3000 < num_pairs) & (num_pairs <= 3600)).all()
    assert found.loss_history == sorted(found.loss_history, reverse=True)
    assert found.get_latest_training_loss() == 0.0


def test_a_callback_may_change_the_vectors():
    class Reset(CallbackAny2Vec):
        def on_epoch_begin(self, model):
            model.wv.vectors[:] = start
            model.syn1neg[:] = 0

    start = untrained().wv.vectors.copy()
    moved = np.abs(vectors(epochs=4, callbacks=[Reset()]) - start).max()
    assert 0 < moved < np.abs(vectors(epochs=4) - start).max()


def test_log_lines_are_those_of_gensim(caplog):
    with caplog.at_level(logging.INFO, "gensim"):
        found = model(epochs=2)
        found.train(SENTENCES, total_examples=5, total_words=7, epochs=1)
    (end,) = re.findall("EPOCH 1: training on 1800 raw words .*", caplog.text)
    assert end.endswith("effective words/s")
    for line in (
        "collected 6 word types from a corpus of 1800 raw words and 600 sentences",
        "supplied example count (600) did not equal expected count (5)",
        "raw word count (1800) did not equal expected count (7)",
    ):
        assert line in caplog.text
    names = {record.name for record in caplog.records if record.name[:6] == "gensim"}
    assert names == {"gensim.models.word2vec", "gensim.utils"}
    assert "created" in [each["event"] for each in found.lifecycle_events]


@pytest.mark.slow
def test_corpora_are_read_once_or_for_each_epoch(tmp_path):
    class Walks:
        """Other sentences each time."""

        times = 0

        def __iter__(self):
            self.times += 1
            return iter(SENTENCES[: 100 * self.times])

    walks = Walks()
    found = Word2Vec(walks, **SETTINGS, epochs=3)
    assert walks.times == 4  # of the vocabulary, and of three epochs
    assert found.wv.get_vecattr("tea", "count") == 50
    path = tmp_path / "text.txt"
    path.write_text("\n".join(" ".join(line) for line in SENTENCES) + "\n")
    of_lines = Word2Vec(LineSentence(path), **SETTINGS)
    np.testing.assert_array_equal(of_lines.wv.vectors, vectors())
    of_file = Word2Vec(corpus_file=str(path), **SETTINGS)  # its rate falls sooner
    assert of_file.loss_history == pytest.approx(of_lines.loss_history, rel=0.03)


def test_text8_is_cut_into_sentences_as_gensim_cuts_it(tmp_path):
    path = tmp_path / "text8"
    words = RNG.choice(["a", "bcd", "efghij"], size=30_000)
    path.write_text(" " + " ".join(words))
    ours, theirs = (
        [*kind(str(path), 1000)]
        for kind in (Text8Corpus, gensim.models.word2vec.Text8Corpus)
    )
    assert sum(ours, []) == sum(theirs, []) == words.tolist()
    assert ours[:29] == theirs[:29]


def test_models_are_copied_old_names_warn_and_skip_gram_has_no_sum():
    found = model(sg=1)
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        np.testing.assert_array_equal(again.wv.vectors, found.wv.vectors)
        again.train(SENTENCES, total_examples=600, epochs=1)
    with pytest.warns(DeprecationWarning, match="init_sims"):
        found.init_sims()
    with pytest.warns(DeprecationWarning, match="get_vector"):
        found.wv.word_vec("tea")
    np.testing.assert_array_equal(vectors(sg=1, cbow_mean=0), found.wv.vectors)


@pytest.mark.parametrize("negative", [0, 5])
def test_the_tree_and_the_tables_are_those_of_gensim(negative):
    given = {"sentences": SENTENCES + OTHERS, "hs": 1, "negative": negative}
    ours, theirs = (untrained(kind, **given) for kind in (Word2Vec, REAL))
    for update in ([["tea"]], [["new", "more", "tea"], ["more"]]):
        for each in (ours, theirs):
            each.build_vocab(update, update=True)
        for key in theirs.wv.index_to_key:
            for name in ("code", "point"):
                found, expected = (x.wv.get_vecattr(key, name) for x in (ours, theirs))
                np.testing.assert_array_equal(found, expected)
                assert found.dtype == expected.dtype
    assert ours.syn1.shape == theirs.syn1.shape
    assert ours.syn1.dtype == theirs.syn1.dtype
    assert hasattr(ours, "syn1neg") == hasattr(theirs, "syn1neg") == bool(negative)
    assert ours.estimate_memory() == theirs.estimate_memory()


def test_one_word_and_none_have_no_path(caplog):
    one = Word2Vec([["a", "a"]], **SETTINGS | TREE)
    assert one.wv.get_vecattr("a", "code").tolist() == []
    assert one.score([["a", "a"]]).tolist() == [0]
    with caplog.at_level(logging.INFO, "gensim"):
        Word2Vec(**SETTINGS, hs=1).create_binary_tree()
    assert "built huffman tree with maximum node depth 0" in caplog.text


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


def by_table(x: float) -> float:
    """gensim's logarithm: of the place 83 (x + 6) of 1,000 from -6 to 6."""
    return log_sigmoid(12 * int((x + 6) * 83) / 1000 - 6)


def by_definition(model, sentence, log) -> float:
    """The score of a sentence, a branch at a time."""
    known, total = [word for word in sentence if word in model.wv], 0.0
    for at, word in enumerate(known):
        near = known[max(0, at - model.window) : at] + known[at + 1 :][: model.window]
        contexts = model.wv.vectors[[model.wv.key_to_index[x] for x in near]]
        if not model.sg:
            whole = contexts.sum(axis=0)
            contexts = (whole / (len(near) or 1) if model.cbow_mean else whole)[None]
        code, point = (model.wv.get_vecattr(word, x) for x in ("code", "point"))
        for values in contexts @ model.syn1[point].T * (1 - 2.0 * code):
            total += sum(log(x) for x in values if abs(x) < 6)
    return total


@pytest.mark.parametrize("sg", [0, 1])
@pytest.mark.parametrize("cbow_mean", [0, 1])
@pytest.mark.parametrize("window", [1, 2, 9])
def test_scores_are_those_of_gensim_without_its_table(sg, cbow_mean, window, caplog):
    given = {"sentences": SENTENCES + OTHERS, "sg": sg, "window": window} | TREE
    ours, theirs = (untrained(kind, **given) for kind in (Word2Vec, REAL))
    ours.cbow_mean = theirs.cbow_mean = cbow_mean
    rng = np.random.default_rng(1)
    for each in (ours.wv.vectors, ours.syn1):
        each[:] = rng.normal(scale=0.6, size=each.shape)
    theirs.wv.vectors[:], theirs.syn1[:] = ours.wv.vectors, ours.syn1
    texts = SENTENCES[:20] + OTHERS + [rng.choice(PAIRS[0] + PAIRS[1], 60).tolist()]
    found, expected = (each.score(texts, len(texts)) for each in (ours, theirs))
    assert found.dtype == expected.dtype == np.float32
    assert found.min() < -50
    for scores, log in ((found, log_sigmoid), (expected, by_table)):
        exact = [by_definition(ours, text, log) for text in texts]
        np.testing.assert_allclose(scores, exact, rtol=1e-5, atol=1e-5)
    caplog.clear()
    np.testing.assert_array_equal(ours.score(iter(texts[:7]), 7), found[:7])
    assert not caplog.text
    np.testing.assert_array_equal(ours.score(texts, total_sentences=7), found[:7])
    assert "terminating after 7 sentences" in caplog.text
