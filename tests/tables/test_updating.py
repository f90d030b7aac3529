"""Updates: row factors, draws by the new text, replay of earlier corpora."""

import logging
import re
from pathlib import Path

import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.cli import main
from embedder.config import Config, read_toml, with_options
from embedder.tables import shards, split
from embedder.tables.artefact import read_model
from embedder.tables.blocks import BlockShape, block_source
from embedder.tables.corpus import sequences_corpus
from embedder.tables.earlier import (
    EarlierCorpus,
    corpora_of_base,
    without_held_out,
)
from embedder.tables.encode import BaseVocabulary, encode
from embedder.tables.encoded import Encoded
from embedder.tables.options import TablesOptions
from embedder.tables.replay import Replay, drawn_sequences
from embedder.tables.updating import encoded_earlier, plan_update, row_factors
from embedder.tables.vocabulary import Vocabulary
from tests.commands import error_line

OLD = [["a", "b", "c"], ["b", "a"]] * 20
NEW = [["a", "n", "n"], ["c", "n"]] * 5
SETTINGS = "--loader memory --vector-size 4 --min-count 1 --sample 0".split()
SMALL = {"vector_size": 4, "min_count": 1, "sample": 0, "epochs": 2}


@pytest.fixture
def trained() -> EmbeddingTrainer:
    return EmbeddingTrainer(**SMALL).fit(OLD)


def grown(trainer: EmbeddingTrainer) -> Encoded:
    known = Vocabulary(trainer.index_to_key, trainer._model().counts)
    return encode(sequences_corpus(NEW), 1, BaseVocabulary(known, grows=True))


def test_factors_by_hand():
    """A new row, one seen 0.9 times as often before, one that the text lacks."""
    found = row_factors(np.array([0, 9, 5, 0]), np.array([4, 10, 0, 0]))
    np.testing.assert_allclose(found, [1, 0.1, 0, 0], rtol=1e-7)
    assert found.dtype == np.float32


def test_the_plan_of_an_update(trained):
    """(69) and (70): factors and draws by the new text; counts of both texts."""
    base = trained._model()
    update = plan_update(base, grown(trained), [], TablesOptions())
    vocabulary = update.encoded.vocabulary
    assert vocabulary.tokens == ["a", "b", "c", "n"]
    assert vocabulary.counts.tolist() == [45, 40, 25, 15]
    assert vocabulary.drawn_counts.tolist() == [5, 0, 5, 15]
    np.testing.assert_allclose(update.factors, [5 / 405, 0, 5 / 205, 1], rtol=1e-6)
    mean = base.output.mean(axis=0)
    np.testing.assert_allclose(update.base.output[3], mean, rtol=1e-6)
    assert (update.base.output[:3] == base.output).all()


def test_noise_of_an_update_is_in_its_text(trained):
    update = plan_update(trained._model(), grown(trained), [], TablesOptions())
    source = block_source(
        update.encoded,
        BlockShape(window=2, block=64, tile=16, noise=64, blocks_per_update=1),
        sample=0,
        ns_exponent=-1.0,  # of a count of 0 it would be infinite
        seed=1,
        epochs=range(1),
    )
    assert {*source.updates(0, 0).blocks.noise.ravel().tolist()} == {0, 2, 3}


def test_the_vocabulary_of_a_trainer_has_no_counts_of_an_update(trained):
    """So a later restart draws noise as the NumPy trainer does."""
    trained.partial_fit(NEW, grow=True)
    assert trained._vocabulary.text_counts is None
    assert trained._vocabulary.counts.tolist() == [45, 40, 25, 15]


@pytest.mark.slow
def test_the_default_schedule_is_that_of_the_numpy_trainer_unless_it_grows(trained):
    model = trained._model()
    for grow, schedule in ((False, "restart"), (True, "continue")):
        vectors = []
        for options in ({}, {"schedule": schedule}):
            trained._keep(model)
            trained.partial_fit(NEW, grow=grow, **options)
            vectors.append(trained.vectors)
        np.testing.assert_array_equal(*vectors)
    trained._keep(model)
    before = trained.partial_fit(NEW, grow=True, schedule="restart").vectors
    assert not np.array_equal(before, vectors[0])


def test_a_restart_on_a_trained_model_is_logged(trained, caplog):
    caplog.set_level(logging.INFO)
    hint = "`schedule='continue'` keeps what it has learned."
    model = trained._model()
    trained.partial_fit(NEW, schedule="continue")
    trained.partial_fit(NEW, grow=True)
    EmbeddingTrainer(**SMALL).partial_fit(NEW)
    assert hint not in caplog.text
    trained._keep(model)
    trained.partial_fit(NEW)
    assert caplog.text.count(hint) == 1
    line = next(x for x in caplog.records if hint in x.getMessage())
    assert line.levelname == "INFO" and "restarts for all rows" in line.getMessage()


@pytest.mark.row("B37")
def test_a_wrong_schedule_is_refused(trained):
    with pytest.raises(ValueError, match="`schedule` must be 'continue' or 'restart'"):
        trained.partial_fit(NEW, schedule="slow")


@pytest.mark.slow
def test_dropped_tokens_are_counted(trained, caplog):
    caplog.set_level(logging.INFO)
    trained.partial_fit([*NEW, ["m", "a"]])
    assert "2 distinct new tokens are dropped: `grow=True` adds rows" in caplog.text
    trained.min_count = 2
    trained.partial_fit([*NEW, ["m", "a"]], grow=True)
    assert "1 distinct new tokens are dropped: they occur less than" in caplog.text


def encoded(sequences: list[list[str]]) -> Encoded:
    known = Vocabulary(["a", "b", "c"], np.array([3, 2, 1]))
    return encode(sequences_corpus(sequences), 1, BaseVocabulary(known))


def test_replay_draws_a_share_of_each_epoch_anew():
    """A pure function of (seed, epoch, shard), with the share as its mean."""
    draws = [drawn_sequences(1, epoch, 0, 10_000, 0.25) for epoch in (0, 0, 1)]
    assert (draws[0] == draws[1]).all() and (draws[0] != draws[2]).any()
    assert abs(draws[0].mean() - 0.25) < 0.02
    assert not drawn_sequences(1, 0, 0, 100, 0).any()
    assert drawn_sequences(1, 0, 0, 100, 1).all()
    assert (drawn_sequences(2, 0, 0, 10_000, 0.25) != draws[0]).any()
    assert (drawn_sequences(1, 0, 1, 10_000, 0.25) != draws[0]).any()


def test_replay_mixes_the_new_text_with_what_it_draws():
    new = encoded([["a"], ["c", "c"]])
    earlier = [encoded([["a", "b"]] * 50), encoded([["b", "b", "b"]] * 50)]
    replay = Replay(new, earlier, 0.3, num_old=3)
    ids, lengths = replay.shard(0, seed=1, epoch=2)
    drawn = [drawn_sequences(1, 2, z, 50, 0.3).sum() for z in (0, 1)]
    assert lengths.tolist() == [1, 2] + [2] * drawn[0] + [3] * drawn[1]
    assert ids.tolist() == [0, 2, 2] + [0, 1] * drawn[0] + [1, 1, 1] * drawn[1]
    assert replay.num_tokens == 3 + 30 + 45
    assert replay.counts().tolist() == [1 + 15, 15 + 45, 2]
    other = Replay(new, [earlier[0], encoded([["b", "b", "a"]] * 50)], 0.3, num_old=3)
    assert len({replay.content, new.content, other.content}) == 3


def test_sequences_with_new_tokens_are_replayed_in_every_epoch():
    """(78): `c` is new to the model here; 10 of 60 earlier sequences have it."""
    new = encoded([["a", "c"]])
    earlier = encoded([["a", "b"], ["b"], ["c", "b", "b"], ["a"], ["b"], ["a"]] * 10)
    replay = Replay(new, [earlier], 0.2, num_old=2)
    for epoch in range(2):
        drawn = drawn_sequences(1, epoch, 0, 60, 0.2)
        drawn[2::6] = True
        ids, lengths = replay.shard(0, seed=1, epoch=epoch)
        assert lengths.tolist() == [2, *np.array([2, 1, 3, 1, 1, 1] * 10)[drawn]]
        assert (ids == 2).sum() == 1 + 10
    assert replay.shard_sequences.tolist() == [1 + 10 + 10]
    assert replay.num_tokens == 2 + 30 + 12
    # a: 1, and 0.2 of 30; b: all 20 beside c, and 0.2 of 30; c: 1, and all 10
    assert replay.counts().tolist() == [1 + 6, 20 + 6, 1 + 10]


@pytest.fixture
def base(tmp_path, monkeypatch) -> list[str]:
    """The options of an update of the run `old`, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name, sequences in (("old", OLD), ("new", NEW)):
        lines = [" ".join(sequence) for sequence in sequences]
        Path(f"{name}.txt").write_text("\n".join(lines))
    assert main(["train", "old.txt", "--workdir", "old", *SETTINGS]) == 0
    return ["train", "new.txt", "--resume", "old", "--grow", "--epochs", "1"]


@pytest.mark.slow
def test_rows_without_new_text_stay(base):
    """With `factors` passed to the updates; `b` is not in the new text."""
    assert main([*base, "--workdir", "new"]) == 0
    old, new = (read_model(Path(run, "model.npz")) for run in ("old", "new"))
    assert (new.input[1] == old.input[1]).all() and old.tokens[1] == "b"
    assert (new.input[0] != old.input[0]).any()
    assert (new.output[1] == old.output[1]).all()


@pytest.mark.slow
def test_a_given_alpha_is_that_of_all_rows(base):
    assert main([*base, "--workdir", "new", "--alpha", "0.01"]) == 0
    options = read_toml(Path("new/config.toml")).tables
    assert (options.alpha, options.schedule) == (0.01, "restart")
    both = ["--alpha", "0.01", "--schedule", "continue", "--workdir", "both"]
    assert main([*base, *both]) == 0
    assert read_toml(Path("both/config.toml")).tables.schedule == "continue"


@pytest.mark.slow
def test_an_update_in_python_replays_as_the_verb_does(base):
    """The same vectors, to the bit: with the path, and with the sequences."""
    flags = ["--replay", "0.5", "--min-count", "16", "--workdir", "new"]
    Path("old.txt").write_text(Path("old.txt").read_text() + "\na n\n")
    assert main(["train", "old.txt", "--workdir", "again", *SETTINGS]) == 0
    assert main([*base, "--resume", "again", *flags]) == 0
    expected = read_model(Path("new/model.npz"))
    assert "n" in expected.tokens  # 15 times on the day, once before
    for earlier in ("old.txt", [*OLD, ["a", "n"]]):
        trainer = EmbeddingTrainer.load("again/model.npz")
        trainer.min_count = 16
        trainer.partial_fit("new.txt", grow=True, replay=0.5, earlier=earlier)
        assert trainer.index_to_key == expected.tokens
        np.testing.assert_array_equal(trainer.vectors, expected.input)


@pytest.mark.slow
def test_replay_in_python_counts_and_draws_the_earlier_sequences(trained):
    """`m` reaches `min_count` with them; rows that the day lacks move by them alone."""
    trained.min_count, before = 3, trained._model()
    day, earlier = [["a", "m"], ["c", "m"]], [*OLD, ["b", "m"]]
    trained.partial_fit(day, grow=True)
    assert "m" not in trained.index_to_key
    trained._keep(before)
    trained.partial_fit(day, grow=True, replay=0.5, earlier=earlier)
    assert trained.index_to_key == ["a", "b", "c", "m"]
    first, drawn = trained.vectors[3], []
    for epochs in (0, 1):  # a later call draws others
        trained._keep(
            before._replace(loss_history=before.loss_history + [0.0] * epochs)
        )
        trained.partial_fit(day, grow=True, replay=0.5, earlier=earlier)
        drawn.append(trained.vectors[3])
    np.testing.assert_array_equal(drawn[0], first)
    assert not np.array_equal(*drawn)


@pytest.mark.row("B37")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replay": 2, "earlier": OLD}, "`replay` must be a number from 0 to 1, got 2"),
        ({"replay": 0.5}, "need each other, got `replay` 0.5 and `earlier` None"),
        ({"earlier": [["a"]]}, r"need each other, got `replay` 0.0 and `earlier` \[\["),
        (
            {"replay": 0.5, "earlier": OLD, "schedule": "restart"},
            "`replay` does not go with `schedule` = 'restart'",
        ),
        ({"replay": 0.5, "earlier": [[1]]}, "Tokens must be text, as those of `fit`"),
        ({"replay": 0.5, "earlier": "none.txt"}, "none.txt"),
    ],
)
def test_a_wrong_replay_in_python_leaves_the_trainer(trained, options, message):
    before = trained.vectors.copy()
    with pytest.raises((ValueError, TypeError, OSError), match=message):
        trained.partial_fit(NEW, **{"schedule": "continue"} | options)
    np.testing.assert_array_equal(trained.vectors, before)
    with pytest.raises(ValueError, match="`replay` needs a trained trainer, got 0.5"):
        EmbeddingTrainer().partial_fit(NEW, grow=True, replay=0.5, earlier=OLD)


@pytest.mark.slow
def test_occurrences_in_earlier_corpora_count_for_new_tokens(base, capsys):
    """`n` occurs 4 times on the first day and once on the second; 5 are needed."""
    Path("day1.txt").write_text("a n\nc n\na n\nb n\na b\n")
    Path("day2.txt").write_text("a n\nc b\nb a m\n")
    more = ["--grow", "--min-count", "5", "--epochs", "1"]
    first = ["train", "day1.txt", "--resume", "old", *more, "--workdir", "day1"]
    assert main(first) == 0
    second = ["train", "day2.txt", "--resume", "day1", *more]
    assert main([*second, "--workdir", "alone"]) == 0
    assert main([*second, "--replay", "0.1", "--workdir", "replayed"]) == 0
    alone, replayed = (read_model(Path(x, "model.npz")) for x in ("alone", "replayed"))
    assert "n" not in alone.tokens
    assert replayed.tokens == [*alone.tokens, "n"] and replayed.counts[-1] == 5
    assert (replayed.counts[:-1] == alone.counts).all()
    log = capsys.readouterr().err
    assert "in this text and the earlier ones." in log


@pytest.mark.slow
@pytest.mark.row("F44")
def test_a_stopped_update_with_replay_goes_on_to_the_same_bits(base, stopped):
    flags = ["--grow", "--epochs", "2", "--replay", "0.5"]
    assert main([*base, "--workdir", "whole", *flags[1:]]) == 0
    command = ["new.txt", "--workdir", "cut", "--resume", "old", *flags]
    stopped(*command, epoch=6)
    assert main(["train", "--workdir", "cut"]) == 0
    found = [Path(run, "model.npz").read_bytes() for run in ("whole", "cut")]
    assert found[0] == found[1]


def test_a_chain_of_updates_knows_all_its_corpora(base, capsys):
    assert main([*base, "--workdir", "day1"]) == 0
    Path("more.txt").write_text("a c n\n" * 9)
    command = ["train", "more.txt", "--resume", "day1", "--workdir", "day2"]
    assert main([*command, "--replay", "0.5", "--dry-run"]) == 0
    assert main([*command, "--replay", "0.5"]) == 0
    names = [Path(x["source"]).name for x in corpora_of_base(Path("day2"), 3)]
    assert names == ["old.txt", "new.txt", "more.txt"]
    assert "words of 2 earlier corpora are replayed" in capsys.readouterr().out


def test_of_several_corpora_those_that_are_left_are_replayed(base, capsys):
    assert main([*base, "--workdir", "day1"]) == 0
    Path("old.txt").unlink()
    update = ["train", "old2.txt", "--resume", "day1", "--workdir", "day2"]
    Path("old2.txt").write_text("a c n\n" * 9)
    capsys.readouterr()
    assert main([*update, "--replay", "0.5"]) == 0
    log = capsys.readouterr().err
    assert "An earlier corpus is not replayed:" in log and "new.txt." in log


@pytest.mark.row("B37")
def test_a_file_that_is_new_and_replayed_is_warned_of(base, capsys):
    for name, content in (("copy", "old.txt"), ("other", "new.txt")):
        Path("days").mkdir(exist_ok=True)
        Path(f"days/{name}.txt").write_bytes(Path(content).read_bytes())
    twice = "also replayed, and their tokens count twice: copy.txt."
    command = ["train", "days", "--resume", "old", "--epochs", "1", "--workdir", "new"]
    assert main([*command, "--replay", "0.5"]) == 0
    assert twice in capsys.readouterr().err
    assert main([*command[:-1], "none"]) == 0
    assert "count twice" not in capsys.readouterr().err
    assert main([*base, "--workdir", "others", "--replay", "0.5"]) == 0
    assert "count twice" not in capsys.readouterr().err


def pairs_of(parts) -> list[tuple[int, ...]]:
    """The sequences of shards (ids, lengths), as tuples."""
    each = (np.split(ids, np.cumsum(lengths)[:-1]) for ids, lengths in parts)
    return [tuple(x.tolist()) for part in each for x in part if len(x)]


def test_what_was_held_out_is_never_replayed(monkeypatch):
    """Shards, new tokens and sequences without a token of that time change positions:
    each sequence is told by two tokens that it alone has."""
    monkeypatch.setattr(shards, "SHARD_TOKENS", 64)
    old = [[f"x{i}", f"y{i}"] for i in range(200)]
    later = [[x, "n", y] if i % 3 else [x, y] for i, (x, y) in enumerate(old)]
    for i in range(0, 220, 5):
        later.insert(i, ["n", "m"])
    before = encode(sequences_corpus(old), 1)
    held_out = pairs_of([split.sequences(before, 0.3)])
    assert 40 < len(held_out) < 80
    known = Vocabulary([*before.vocabulary.tokens, "n", "m"], np.ones(402, np.int64))
    earlier = EarlierCorpus(sequences_corpus(later), 0.3, num_tokens=400)
    (found,) = encoded_earlier(BaseVocabulary(known), [earlier])
    new = encode(sequences_corpus([["n"]]), 1, BaseVocabulary(known))
    replay = Replay(new, [found], 0.5, num_old=402)
    replayed = [*pairs_of(replay.shard(0, seed=1, epoch=epoch) for epoch in range(12))]
    old_ids = {tuple(x for x in each if x < 400) for each in replayed} - {()}
    assert not old_ids & {*held_out}
    assert len(old_ids) == 200 - len(held_out)  # 12 draws of a half have all others
    assert (400, 401) in replayed  # was no sequence then: not trained on either
    assert replay.num_tokens >= 1 + found.num_tokens / 2
    assert found.num_tokens == sum(map(len, pairs_of(map(found.read, range(3))))) + sum(
        len(x) for x in pairs_of(map(found.read, range(3, len(found.shard_tokens))))
    )


def test_replay_holds_out_sequences_of_the_new_text_alone():
    """The first sequences of a shard, the same in all epochs, whatever is drawn."""
    new = encoded([["a", "b"], ["b", "c"], ["a", "c"], ["c", "b"]] * 10)
    replay = Replay(new, [encoded([["b", "b"]] * 90)], 0.5, num_old=3)
    assert replay.own_sequences.tolist() == [40]
    own, of_new = (split.sequences(x, 0.3).ids for x in (replay, new))
    np.testing.assert_array_equal(own, of_new)
    num = split.num_held_out(replay.own_sequences, 0.3).sum()
    assert split.trained_share(replay, 0.3) == pytest.approx(1 - num / (40 + 45))
    source = block_source(
        replay,
        BlockShape(window=2, block=64, tile=16, noise=64, blocks_per_update=1),
        **{"sample": 0, "ns_exponent": 0.75, "seed": 1},
        epochs=range(2),
        holdout=0.3,
    )
    assert len(pairs_of(split.trained_sequences(new, 0.3))) == 40 - num
    for epoch in range(2):
        _, lengths = replay.shard(0, 1, epoch)
        mask = split.held_out_of(replay, 0, len(lengths), 0.3)
        assert mask.sum() == num and not mask[40:].any()
        of_tokens = source.updates(epoch, 0).blocks.sequence
        assert (of_tokens >= 0).sum() == 2 * (len(lengths) - num)


def test_long_sequences_of_a_corpus_with_held_out_ones_are_refused(monkeypatch):
    monkeypatch.setattr(shards, "SHARD_TOKENS", 8)
    found = encoded([["a", "b"], ["a"] * 9, ["c"]])
    with pytest.raises(ValueError, match="`replay` cannot tell what was held out of"):
        without_held_out(found, 0.2, 3)


@pytest.mark.slow
@pytest.mark.row("B37")
def test_an_update_replays_a_base_with_held_out_sequences(base, capsys):
    """With a share of its own for the new text, by default that of the base; its
    scores are those of the sequences that an update without replay holds out."""
    small = [*SETTINGS, "--holdout", "0.2", "--epochs", "1"]
    assert main(["train", "old.txt", "--workdir", "held", *small]) == 0
    update = ["train", "new.txt", "--resume", "held", "--grow"]
    for run, flags in (
        ("alone", []),
        ("replayed", ["--replay", "0.5"]),
        ("all", ["--replay", "0.5", "--holdout", "0"]),
    ):
        assert main([*update, *flags, "--workdir", run]) == 0
    scores = re.findall(r"held_out (-[\d.]+) \(freq", capsys.readouterr().err)
    assert len(scores) == 3 and scores[1] == scores[2]
    (_, entry) = corpora_of_base(Path("replayed"), 4)
    assert (entry["holdout"], entry["num_tokens"]) == (0.2, 4)
    again = ["train", "new.txt", "--resume", "replayed", "--replay", "0.5"]
    assert main([*again, "--workdir", "again", "--dry-run"]) == 0


def test_an_update_may_have_the_corpus_of_its_base(base):
    longer = ["train", "--resume", "old", "--epochs", "3", "--workdir", "longer"]
    assert main(longer) == 0
    old, new = (read_model(Path(run, "model.npz")) for run in ("old", "longer"))
    assert new.loss_history[:5] == old.loss_history and len(new.loss_history) == 8
    assert new.counts.tolist() == old.counts.tolist()


@pytest.mark.row("B37")
def test_a_corpus_that_has_gone_or_changed_is_not_replayed(base, capsys):
    Path("old.txt").write_text("x y\n" * 9)
    for reason in ("has changed", "does not exist"):
        assert main([*base, "--workdir", "new", "--replay", "0.5"]) == 2
        line = error_line(capsys)
        assert "`replay` needs a corpus of the run to resume" in line and reason in line
        Path("old.txt").unlink(missing_ok=True)
    assert not Path("new").exists()


@pytest.mark.row("B37")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replay", "2"], "`replay` must be a number from 0 to 1, got"),
        (["--replay", "0.5", "--bootstrap"], "`replay` does not go with `bootstrap`"),
        (["--replay", "0.5", "--alpha", "0.1"], "`replay` does not go with `schedule`"),
    ],
)
def test_replay_with_other_settings_is_one_line(base, capsys, options, message):
    assert main([*base, "--workdir", "new", *options]) == 2
    assert message in error_line(capsys)


@pytest.mark.row("B37")
def test_replay_without_a_run_is_one_line(base, capsys):
    assert main(["train", "new.txt", "--workdir", "new", "--replay", "0.5"]) == 2
    assert "`replay` needs `resume`" in error_line(capsys)
    Path("old/model.npz").rename("model.npz")
    update = ["train", "new.txt", "--resume", "model.npz", "--vector-size", "4"]
    assert main([*update, "--replay", "0.5", "--workdir", "new"]) == 2
    assert "`replay` needs a corpus of the run to resume" in error_line(capsys)


def test_settings_of_updates_are_checked():
    with pytest.raises(ValueError, match="`schedule` must be 'continue' or 'restart'"):
        with_options(Config(), schedule="slow")
