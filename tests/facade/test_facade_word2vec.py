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
from embedder.gensim import (
    RULE_DISCARD,
    RULE_KEEP,
    CallbackAny2Vec,
    FastText,
    LineSentence,
    Text8Corpus,
    Word2Vec,
    progress,
)
from embedder.gensim import epochs as training

REAL = gensim.models.word2vec.Word2Vec
RNG = np.random.default_rng(0)
PAIRS = [["tea", "milk", "sugar"], ["nail", "hammer", "screw"]]
SENTENCES = [[str(word) for word in RNG.permutation(PAIRS[i % 2])] for i in range(600)]
SETTINGS = {"vector_size": 16, "min_count": 1, "sample": 0, "alpha": 0.05}


def model(**settings) -> Word2Vec:
    return Word2Vec(SENTENCES, **SETTINGS | settings)


def vectors(**settings) -> np.ndarray:
    return model(**settings).wv.vectors


def test_it_learns_which_words_go_together():
    found = model(sg=1, epochs=10).wv
    near = {key for key, _ in found.most_similar("nail", topn=2)}
    assert near == {"hammer", "screw"}
    assert found.doesnt_match(["tea", "milk", "sugar", "nail"]) == "nail"


@pytest.mark.parametrize("sg", [0, 1])
def test_any_number_of_workers_gives_the_same_bits(sg):
    np.testing.assert_array_equal(vectors(sg=sg, workers=1), vectors(sg=sg, workers=4))


@pytest.mark.parametrize(
    ("settings", "architecture", "factor"),
    [
        ({"sg": 1}, "skipgram", 1),
        ({"sg": 0}, "cbow", 4),
        ({"sg": 0, "cbow_mean": 0}, "cbow", 1),
    ],
    ids=["skipgram", "cbow", "cbow-sums"],
)
def test_vectors_are_those_of_the_trainer_it_stands_for(settings, architecture, factor):
    """Given the start, counts and order that gensim has, passes and rates.

    The true gradient of CBOW's means is divided by the number of contexts: four times
    `alpha`; that of sums is not.
    """
    found = model(epochs=2, **settings)
    untrained = Word2Vec(**SETTINGS, **settings)
    untrained.build_vocab(SENTENCES)
    ids = [untrained.wv.key_to_index[word] for line in SENTENCES for word in line]
    sequences = np.array(ids, np.int32), np.full(len(SENTENCES), 3)
    passes = 8  # of an epoch, as there are 6 words
    lag = (0.05 - 1e-4) / 4  # half an epoch of two: a job has the rate of its start
    trainer = embedder.EmbeddingTrainer(
        **SETTINGS | {"epochs": 2, "alpha": (0.05 + lag) * factor / passes},
        min_alpha=(1e-4 + lag) * factor / passes,
        architecture=architecture,
        cbow_mean=bool(untrained.cbow_mean),
        cap=1.6 * passes / 0.05 if untrained.sg else None,
    )
    counts = untrained.wv.expandos["count"]
    tables = untrained.wv.vectors, untrained.syn1neg, counts, None
    for epoch in range(2 * passes):
        epochs = range(epoch, epoch + 1)
        done = trainer.train_epochs(tables, sequences, epochs, range(2 * passes))
        tables = done.input, done.output, counts, None
    np.testing.assert_array_equal(found.wv.vectors, tables[0])
    np.testing.assert_array_equal(found.syn1neg, tables[1])


def test_only_few_words_need_several_passes():
    """100 words that are equally frequent: 64 x 6 pairs x 6 / 100 x .025 = .576."""
    corpora = {num: [[str(i) for i in range(num)]] * 20 for num in (100, 200)}
    for num, expected in {100: 2, 200: 1}.items():
        trained = Word2Vec(corpora[num], sg=1, min_count=1, sample=0, vector_size=4)
        counts = trained.wv.expandos["count"]
        assert training._num_passes(trained, counts, 20 * num) == expected
        assert training._num_passes(trained, counts, 10**8) == 1


@pytest.mark.parametrize(
    ("settings", "passes", "cap"),
    [
        ({}, 1, None),  # 6 contexts x 6 terms x .025 = .9
        ({"window": 10}, 3, 1.6 * 3 / 0.025),  # 1.65
        ({"window": 20, "negative": 10}, 8, 1.6 * 8 / 0.025),  # 5.775
        ({"hs": 1, "negative": 0, "window": 10}, 5, 0.4 * 5 / 0.025),  # 11 x 10 bits
        ({"sg": 0, "hs": 1, "negative": 0, "alpha": 0.05}, 4, 0.4 * 4 / 0.2),  # 2
        ({"sg": 0, "window": 20}, 1, None),
        ({"sg": 0, "window": 10, "cbow_mean": 0}, 3, None),
    ],
)
def test_wide_windows_need_several_passes(settings, passes, cap):
    """1,024 words that are equally frequent, so codes have 10 bits."""
    given = {"sg": 1, "sample": 0, "min_count": 1, "vector_size": 4} | settings
    untrained = Word2Vec(**given)
    untrained.build_vocab_from_freq({str(i): 20 for i in range(1024)})
    counts = untrained.wv.expandos["count"]
    assert training._num_passes(untrained, counts, 20_480) == passes
    assert training._cap(untrained, counts, passes) == cap


@pytest.mark.parametrize(
    ("words", "passes"),
    [(1e6, 8), (2e6, 5), (3.4e6, 3), (1e7, 3), (1.4e7, 2), (1.6e7, 1), (1e9, 1)],
)
def test_many_words_have_few_passes(words, passes):
    untrained = Word2Vec(sg=1, window=20, negative=10, sample=0, min_count=1)
    untrained.build_vocab_from_freq({str(i): 20 for i in range(1024)})
    counts = untrained.wv.expandos["count"]
    assert training._num_passes(untrained, counts, int(words)) == passes


@pytest.mark.parametrize(
    ("words", "types", "passes", "blocks"),
    [
        (2_000_000, 10_000, 3, 1),
        (4_000_000, 10_000, 3, 8),  # 64 x 11 pairs x 6 / 10,000 x .025 = .4 x .026
        (4_000_000, 300, 3, 3),  # .88
        (4_000_000, 30, 3, 1),
        (9**9, 10_000, 1, None),
    ],
)
def test_long_epochs_in_passes_have_updates_of_several_blocks(
    words, types, passes, blocks
):
    untrained = Word2Vec(sg=1, window=10, sample=0, min_count=1)
    untrained.build_vocab_from_freq({str(i): 20 for i in range(types)})
    counts, lengths = untrained.wv.expandos["count"], np.array([words])
    given = untrained, counts, words, passes, lengths
    assert training._num_blocks(*given) == blocks


@pytest.mark.parametrize(("window", "shrinks"), [(200, True), (255, False)])
def test_wider_windows_than_a_block_are_cut(window, shrinks, caplog):
    settings = {"sg": 1, "epochs": 1}
    found = model(window=window, **settings)
    assert found.window == window
    assert "is trained as 127: contexts are within blocks of 64" in caplog.text
    expected = model(window=127, shrink_windows=shrinks, **settings)
    found, expected = (x.loss_history[0] for x in (found, expected))
    assert found == pytest.approx(expected, rel=0.05)


def test_passes_of_cut_windows_are_by_the_lengths_of_sentences():
    untrained = Word2Vec(sg=1, window=1000, sample=0, min_count=1, vector_size=4)
    untrained.build_vocab_from_freq({str(i): 20 for i in range(1024)})
    counts = untrained.wv.expandos["count"]
    for lengths, pairs, passes in (([5, 5], 4, 1), ([64, 128], 63, 8), ([1], 1, 1)):
        given = np.array(lengths)
        assert training._num_pairs(untrained, given) == pairs
        assert training._num_passes(untrained, counts, 20_480, given) == passes


@pytest.mark.slow
def test_no_workers_are_one_and_no_seed_is_another_each_time():
    for workers in (0, -1):
        np.testing.assert_array_equal(vectors(workers=workers), vectors(workers=1))
    first, second = model(seed=None), model(seed=None)
    assert first.seed is None
    assert not np.array_equal(first.wv.vectors, second.wv.vectors)


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
    monkeypatch.setattr(progress, "_FIRST_REPORT", 0.0)
    found = Word2Vec(**SETTINGS, sg=1)
    found.build_vocab(SENTENCES)
    path = tmp_path / "text"
    path.write_text("\n".join(map(" ".join, SENTENCES)))
    corpus = {"corpus_file": path} if queued else {"corpus_iterable": SENTENCES}
    with caplog.at_level(logging.INFO, "gensim"):
        found.train(**corpus, **totals, epochs=2, report_delay=0)
    pattern = (
        rf"EPOCH (\d) - PROGRESS: at (\d+\.\d\d)% {unit}, \d+ words/s, in_qsize "
        rf"{queued}, out_qsize 0"
    )
    lines = [re.fullmatch(pattern, x.getMessage()) for x in caplog.records]
    done = [(int(x[1]), float(x[2])) for x in lines if x]
    assert {epoch for epoch, _ in done} == {0, 1} and done == sorted(done)
    assert all(0 < share <= 100 for _, share in done)
    caplog.clear()
    with caplog.at_level(logging.INFO, "gensim"):
        found.train(SENTENCES, **totals, epochs=1, report_delay=99)
    assert sum("PROGRESS" in x.getMessage() for x in caplog.records) == 1


def test_a_file_has_the_rate_of_each_sentence():
    assert training._lag(1000, range(2), None) == 0
    assert training._lag(40_000, range(2), 10_000) == 1 / 16
    assert training._lag(1000, range(2), 10_000) == 1 / 4


def test_start_and_order_of_words_are_those_of_gensim():
    ours, theirs = (kind(**SETTINGS, seed=5) for kind in (Word2Vec, REAL))
    for each in (ours, theirs):
        each.build_vocab(SENTENCES[:7])
        each.build_vocab([["new", "tea"]], update=True)
    assert ours.wv.index_to_key == theirs.wv.index_to_key
    np.testing.assert_array_equal(ours.wv.vectors, theirs.wv.vectors)
    np.testing.assert_array_equal(ours.cum_table, theirs.cum_table)
    for name in ("count", "sample_int"):
        found, expected = (x.wv.expandos[name] for x in (ours, theirs))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("sample", [0, 1e-2, 3, 1000])
def test_thresholds_of_subsampling_are_those_of_gensim(sample):
    ours, theirs = (kind(min_count=1, sample=sample) for kind in (Word2Vec, REAL))
    reports = []
    for each in (ours, theirs):
        each.scan_vocab(SENTENCES[:50] + [["rare"]])
        reports.append(each.prepare_vocab())
    assert reports[0] == reports[1]
    found, expected = (x.wv.expandos["sample_int"] for x in (ours, theirs))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_rules_keep_and_discard_words():
    def rule(word, count, min_count):
        return {"tea": RULE_DISCARD, "once": RULE_KEEP}.get(word, 0)

    found = Word2Vec([*SENTENCES, ["once"]], min_count=2, trim_rule=rule)
    assert "once" in found.wv and "tea" not in found.wv


@pytest.mark.slow
def test_training_in_parts_goes_on_from_the_vectors():
    one = Word2Vec(**SETTINGS, sg=1)
    one.build_vocab(SENTENCES)
    for epochs, start, end in ((2, 0.05, 0.03), (1, 0.03, 0.01)):
        before = one.wv.vectors.copy()
        one.train(
            SENTENCES,
            total_examples=one.corpus_count,
            epochs=epochs,
            start_alpha=start,
            end_alpha=end,
        )
        assert not np.allclose(one.wv.vectors, before)
    assert one.loss_history[-1] < one.loss_history[0]
    assert len(one.loss_history) == one.epochs_trained == 3
    assert one.min_alpha_yet_reached == pytest.approx(0.01)
    again = Word2Vec(**SETTINGS, sg=1)
    again.build_vocab(SENTENCES)
    again.train(SENTENCES, total_examples=600, epochs=3, end_alpha=0.01)
    assert not np.array_equal(again.wv.vectors, one.wv.vectors)


class Recorder(CallbackAny2Vec):
    """What happens when, and the loss as recipes read it."""

    def __init__(self):
        self.events, self.losses = [], []

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


def test_callbacks_and_the_loss_as_gensim_counts_it():
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

    start = Word2Vec(**SETTINGS)
    start.build_vocab(SENTENCES)
    start = start.wv.vectors.copy()
    found = model(epochs=4, callbacks=[Reset()])
    moved = np.abs(found.wv.vectors - start).max()
    assert 0 < moved < np.abs(model(epochs=4).wv.vectors - start).max()


def test_log_lines_are_those_of_gensim(caplog):
    with caplog.at_level(logging.INFO, "gensim"):
        found = model(epochs=2)
    text = [record.getMessage() for record in caplog.records]
    ends = [x for x in text if x.startswith("EPOCH 1: training on 1800 raw words (")]
    assert len(ends) == 1 and ends[0].endswith("effective words/s")
    assert (
        "collected 6 word types from a corpus of 1800 raw words and 600 sentences"
        in (text)
    )
    assert {
        record.name for record in caplog.records if record.name[:6] == "gensim"
    } == {
        "gensim.models.word2vec",
        "gensim.utils",
    }
    assert found.lifecycle_events[-1]["event"] == "created"


def test_wrong_sizes_are_logged(caplog):
    found = model()
    found.train(SENTENCES, total_examples=5, total_words=7, epochs=1)
    assert (
        "supplied example count (600) did not equal expected count (5)" in caplog.text
    )
    assert "raw word count (1800) did not equal expected count (7)" in caplog.text


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
    of_list = model()
    of_lines = Word2Vec(LineSentence(path), **SETTINGS)
    np.testing.assert_array_equal(of_lines.wv.vectors, of_list.wv.vectors)
    of_file = Word2Vec(corpus_file=str(path), **SETTINGS)  # its rate falls sooner
    assert of_file.wv.index_to_key == of_list.wv.index_to_key
    assert of_file.loss_history == pytest.approx(of_list.loss_history, rel=0.03)


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


@pytest.mark.slow
def test_locked_rows_stay_and_others_learn():
    for sg in (0, 1):
        found = Word2Vec(**SETTINGS, sg=sg)
        found.build_vocab(SENTENCES)
        start = found.wv.vectors.copy()
        found.wv.vectors_lockf = np.ones(6, np.float32)
        found.wv.vectors_lockf[2] = 0
        found.train(SENTENCES, total_examples=600, epochs=2)
        moved = (found.wv.vectors != start).any(axis=1)
        assert moved.tolist() == [row != 2 for row in range(6)]


@pytest.mark.parametrize("cbow_mean", [0, 1])
def test_predictions_are_a_softmax(cbow_mean):
    found = model(sg=0, cbow_mean=cbow_mean, epochs=10)
    likely = found.predict_output_word(["nail", "hammer"], topn=6)
    assert likely[0][0] == "screw"
    assert sum(share for _, share in likely) == pytest.approx(1)
    assert found.predict_output_word(["nail", "hammer"], topn=None) == likely


def test_models_can_be_pickled_and_copied():
    found = model()
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        np.testing.assert_array_equal(again.wv.vectors, found.wv.vectors)
        again.train(SENTENCES, total_examples=600, epochs=1)


def test_old_names_warn():
    found = model()
    with pytest.warns(DeprecationWarning, match="init_sims"):
        found.init_sims()
    with pytest.warns(DeprecationWarning, match="get_vector"):
        found.wv.word_vec("tea")
    with pytest.raises(
        AttributeError, match="removed from KeyedVector in Gensim 4.0.0"
    ):
        _ = found.wv.vocab


def test_skip_gram_has_no_sum():
    np.testing.assert_array_equal(vectors(sg=1, cbow_mean=0), vectors(sg=1))


CORPORA = {
    "none": (lambda m: m.build_vocab(), TypeError, "Either one of corpus_file"),
    "both": (lambda m: m.build_vocab([[""]], "x"), TypeError, "Both corpus_file"),
    "no file": (lambda m: m.build_vocab(corpus_file="x"), TypeError, "got 'x' instead"),
    "no corpus": (lambda m: m.build_vocab(5), TypeError, "got 5 instead"),
    "generator": (
        lambda m: m.train((x for x in PAIRS), total_examples=2, epochs=2),
        TypeError,
        "can't support 2 passes",
    ),
    "no words": (
        lambda m: m.train(corpus_file=__file__, total_examples=1, epochs=1),
        ValueError,
        "total_words must be provided",
    ),
    "window": (
        lambda m: (setattr(m, "window", 0), m.train(PAIRS, total_words=6, epochs=1)),
        ValueError,
        "`window` must be an integer from 1 to 127",
    ),
    "tables": (
        lambda m: (
            setattr(m, "syn1neg", np.zeros((7, 16), np.float32)),
            m.train(PAIRS, total_words=6, epochs=1),
        ),
        RuntimeError,
        "`wv` has 6 keys and `syn1neg` 7 rows: add words by build_vocab",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), CORPORA.values(), ids=CORPORA)
@pytest.mark.row("B77")
def test_wrong_corpora_are_errors_of_gensim(call, kind, message):
    found = model()
    with pytest.raises(kind, match=message):
        call(found)


@pytest.mark.row("B77")
def test_compressed_corpus_files_are_refused(tmp_path):
    path = tmp_path / "text.gz"
    path.touch()
    with pytest.raises(TypeError, match="Training from compressed files"):
        Word2Vec(corpus_file=str(path))


@pytest.mark.row("B90")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vector_size": -5}, "`vector_size` must be an integer >= 1, got -5."),
        ({"sample": -1}, "`sample` must be a finite number >= 0, got -1."),
        ({"sample": math.nan}, "`sample` must be a finite number >= 0, got nan."),
        ({"alpha": math.nan}, "`alpha` must be a finite number, got nan."),
        ({"min_alpha": math.inf}, "`min_alpha` must be a finite number, got inf."),
    ],
)
def test_numbers_that_train_nothing_are_named(options, message):
    for kind in (Word2Vec, FastText):
        with pytest.raises(ValueError, match=re.escape(message)):
            kind([["a", "b"]] * 5, min_count=1, **options)


def test_a_negative_number_of_buckets_is_named():
    with pytest.raises(ValueError, match="`bucket` must be an integer >= 0, got -5."):
        FastText([["a", "b"]] * 5, min_count=1, bucket=-5)
