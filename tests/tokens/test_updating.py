"""Updates: row factors, draws by the new text, replay of earlier corpora."""

import logging
import re
from pathlib import Path

import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.cli.main import main
from embedder.config import read_toml
from embedder.config.token_options import TokensOptions
from embedder.data import shards, split
from embedder.data.blocks import BlockShape, BlockSource, Sampling, block_source
from embedder.data.corpus import sequences_corpus
from embedder.data.earlier import EarlierCorpus, corpora_of_base, without_held_out
from embedder.data.encode import BaseVocabulary, encode
from embedder.data.encoded import Encoded
from embedder.data.vocabulary import Vocabulary
from embedder.tokens.artefact import read_model
from embedder.tokens.continue_training import encoded_earlier, plan_update
from embedder.tokens.replay import Replay, drawn_sequences
from tests.commands import error_line

OLD = [["a", "b", "c"], ["b", "a"]] * 20
NEW = [["a", "n", "n"], ["c", "n"]] * 5
SETTINGS = "--loader memory --vector-size 4 --min-count 1 --sample 0".split()
SMALL = {"vector_size": 4, "min_count": 1, "sample": 0, "epochs": 2}


@pytest.fixture
def trained() -> EmbeddingTrainer:
    return EmbeddingTrainer(**SMALL).fit(OLD)


def test_the_plan_of_an_update(trained):
    """(69) and (70): factors and draws by the new text; counts of both texts."""
    base = trained._model()
    known = BaseVocabulary(Vocabulary(base.tokens, base.counts), grows=True)
    new = encode(sequences_corpus(NEW), 1, known)
    update = plan_update(base, new, [], TokensOptions())
    vocabulary = update.encoded.vocabulary
    assert vocabulary.tokens == ["a", "b", "c", "n"]
    assert vocabulary.counts.tolist() == [45, 40, 25, 15]
    assert vocabulary.drawn_counts.tolist() == [5, 0, 5, 15]
    np.testing.assert_allclose(
        update.row_multipliers.input, [5 / 405, 0, 5 / 205, 1], rtol=1e-6
    )
    mean = base.output.mean(axis=0)
    np.testing.assert_allclose(update.base.output[3], mean, rtol=1e-6)
    assert (update.base.output[:3] == base.output).all()


def source(encoded: Encoded, **options) -> BlockSource:
    shape = BlockShape(window=2, block=64, tile=16, noise=64, blocks_per_update=1)
    settings = {"seed": 1, "epochs": range(2)}
    return block_source(encoded, shape, Sampling(0, 0.75), **settings | options)


def test_a_trainer_that_grew_goes_on_as_one_that_was_loaded(trained, tmp_path):
    """A later restart draws noise by all counts, as the NumPy trainer does."""
    trained.partial_fit(NEW, grow=True).save(tmp_path / "model.npz")
    loaded = EmbeddingTrainer.load(tmp_path / "model.npz")
    vectors = [
        x.partial_fit(NEW, schedule="restart").vectors for x in (trained, loaded)
    ]
    np.testing.assert_array_equal(*vectors)


@pytest.mark.slow
def test_the_default_schedule_is_that_of_the_numpy_trainer_unless_it_grows():
    found = {}
    for grow in (False, True):
        for schedule in (None, "restart", "continue"):
            trainer = EmbeddingTrainer(**SMALL).fit(OLD)
            before = trainer.vectors
            trainer.partial_fit(NEW, grow=grow, schedule=schedule)
            found[grow, schedule] = trainer.vectors
    np.testing.assert_array_equal(found[False, None], found[False, "restart"])
    np.testing.assert_array_equal(found[True, None], found[True, "continue"])
    assert not np.array_equal(found[True, "restart"], found[True, "continue"])
    stays = (found[True, None][:3] == before).all(axis=1)
    assert stays.tolist() == [False, True, False]  # `b` is not in the new text


def test_a_restart_on_a_trained_model_is_logged(trained, caplog):
    caplog.set_level(logging.INFO)
    trained.partial_fit(NEW, schedule="continue").partial_fit(NEW, grow=True)
    EmbeddingTrainer(**SMALL).partial_fit(NEW)
    hint = "`schedule='continue'` keeps what it has learned."
    assert hint not in caplog.text
    trained.partial_fit(NEW)
    (line,) = (x for x in caplog.records if hint in x.getMessage())
    assert line.levelname == "INFO" and "restarts for all rows" in line.getMessage()


@pytest.mark.slow
def test_dropped_tokens_are_counted(trained, caplog):
    caplog.set_level(logging.INFO)
    trained.partial_fit([*NEW, ["m", "a"]])
    assert "2 new words are dropped: `grow=True` adds rows" in caplog.text
    trained.min_count = 2
    trained.partial_fit([*NEW, ["m", "a"]], grow=True)
    assert "1 new words are dropped: they occur less than" in caplog.text


def encoded(sequences: list[list[str]]) -> Encoded:
    known = Vocabulary(["a", "b", "c"], np.array([3, 2, 1]))
    return encode(sequences_corpus(sequences), 1, BaseVocabulary(known))


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
def base(own_folder) -> list[str]:
    """The options of an update of the run `old`, in a folder of its own."""
    for name, sequences in (("old", OLD), ("new", NEW)):
        lines = [" ".join(sequence) for sequence in sequences]
        Path(f"{name}.txt").write_text("\n".join(lines))
    assert main(["train", "old.txt", "--workdir", "old", *SETTINGS]) == 0
    return ["train", "new.txt", "--resume", "old", "--grow", "--epochs", "1"]


@pytest.mark.slow
@pytest.mark.parametrize("given", [[], ["--schedule", "continue"]])
def test_a_given_alpha_is_that_of_all_rows(base, given):
    assert main([*base, "--workdir", "new", "--alpha", "0.01", *given]) == 0
    options = read_toml(Path("new/config.toml")).tables
    expected = 0.01, given[-1] if given else "restart"
    assert (options.alpha, options.schedule) == expected


@pytest.mark.slow
def test_replay_in_python_counts_and_draws_the_earlier_sequences(trained):
    """`m` reaches `min_count` with them; rows that the day lacks move by them alone."""
    trained.min_count, before = 3, trained._model()
    day, earlier = [["a", "m"], ["c", "m"]], [*OLD, ["b", "m"]]
    assert "m" not in trained.partial_fit(day, grow=True).index_to_key
    found = []
    for losses in ([], [], [0.0]):  # after another call it draws others
        trained._keep(before._replace(loss_history=before.loss_history + losses))
        trained.partial_fit(day, grow=True, replay=0.5, earlier=earlier)
        assert trained.index_to_key == ["a", "b", "c", "m"]
        found.append(trained.vectors[3])
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[1], found[2])


@pytest.mark.slow
def test_occurrences_in_earlier_corpora_count_for_new_tokens(base, capsys):
    """`n` occurs 4 times on the first day and once on the second; 5 are needed."""
    Path("day1.txt").write_text("a n\nc n\na n\nb n\na b\n")
    Path("day2.txt").write_text("a n\nc b\nb a m\n")
    for command in (
        "day1.txt --resume old --workdir day1",
        "day2.txt --resume day1 --workdir alone",
        "day2.txt --resume day1 --workdir replayed --replay 0.1",
    ):
        flags = "--grow --min-count 5 --epochs 1"
        assert main(f"train {command} {flags}".split()) == 0
    alone, replayed = (read_model(Path(x, "model.npz")) for x in ("alone", "replayed"))
    assert "n" not in alone.tokens and replayed.tokens == [*alone.tokens, "n"]
    assert replayed.counts.tolist() == [*alone.counts, 5]
    assert "in this text and the earlier ones." in capsys.readouterr().err


def test_a_chain_of_updates_knows_all_its_corpora(base, capsys):
    """And replays those that are left."""
    assert main([*base, "--workdir", "day1"]) == 0
    Path("more.txt").write_text("a c n\n" * 9)
    command = ["train", "more.txt", "--resume", "day1", "--replay", "0.5", "--workdir"]
    assert main([*command, "day2", "--dry-run"]) == 0
    assert "words of 2 earlier corpora are replayed" in capsys.readouterr().out
    assert main([*command, "day2"]) == 0
    names = [Path(x["source"]).name for x in corpora_of_base(Path("day2"), 3)]
    assert names == ["old.txt", "new.txt", "more.txt"]
    Path("new.txt").unlink()
    capsys.readouterr()
    assert main([*command, "other"]) == 0
    log = capsys.readouterr().err
    assert "An earlier corpus is not replayed:" in log and "old.txt.\n" in log


@pytest.mark.row("B37")
def test_a_file_that_is_new_and_replayed_is_warned_of(base, capsys):
    Path("days").mkdir()
    for name, content in (("copy", "old.txt"), ("other", "new.txt")):
        Path(f"days/{name}.txt").write_bytes(Path(content).read_bytes())
    command = ["train", "days", "--resume", "old", "--epochs", "1", "--workdir"]
    warned = []
    for each in ([*command, "all", "--replay", "0.5"], [*command, "none"]):
        assert main(each) == 0
        line = "also replayed, and their tokens count twice: copy.txt."
        warned.append(line in capsys.readouterr().err)
    assert main([*base, "--workdir", "others", "--replay", "0.5"]) == 0
    assert warned == [True, False]
    assert "count twice" not in capsys.readouterr().err


def test_only_models_that_a_run_wrote_have_its_corpora(base):
    """Whatever their names: another model in the folder of a run was not trained on
    its corpus, and a copy of its model was."""
    assert main([*base, "--workdir", "new"]) == 0
    EmbeddingTrainer(min_count=1, epochs=1).fit([["a", "b"]]).save("new/mine.npz")
    Path("new/again.npz").write_bytes(Path("new/model.npz").read_bytes())
    Path("new/start.npz").symlink_to("base.npz")
    files = "mine.npz", "again.npz", "model.npz", "start.npz", "base.npz"
    found = {
        name: [Path(x["source"]).name for x in corpora_of_base(Path("new", name), 3)]
        for name in files
    }
    of_new, of_old = ["old.txt", "new.txt"], ["old.txt"]
    assert [*found.values()] == [[], of_new, of_new, of_old, of_old]
    Path("new/mine.npz").replace("new/model.npz")
    assert corpora_of_base(Path("new"), 3) == []


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
    shards_of_found = map(found.read, range(len(found.shard_tokens)))
    assert found.num_tokens == sum(map(len, pairs_of(shards_of_found)))


def test_replay_holds_out_sequences_of_the_new_text_alone():
    """The first sequences of a shard, the same in all epochs, whatever is drawn."""
    new = encoded([["a", "b"], ["b", "c"], ["a", "c"], ["c", "b"]] * 10)
    replay = Replay(new, [encoded([["b", "b"]] * 90)], 0.5, num_old=3)
    own, of_new = (split.sequences(x, 0.3).ids for x in (replay, new))
    np.testing.assert_array_equal(own, of_new)
    num = split.num_held_out(replay.own_sequences, 0.3).sum()
    assert split.trained_share(replay, 0.3) == pytest.approx(1 - num / (40 + 45))
    made = source(replay, holdout=0.3)
    for epoch in range(2):
        _, lengths = replay.shard(0, 1, epoch)
        mask = split.held_out_of(replay, 0, len(lengths), 0.3)
        assert mask.sum() == num and not mask[40:].any()
        of_tokens = made.updates(epoch, 0).blocks.sequence
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
    small = [*SETTINGS, "--holdout", "0.2", "--epochs", "1", "--workdir", "held"]
    assert main(["train", "old.txt", *small]) == 0
    update = "train new.txt --resume held --grow --workdir"
    for flags in ("alone", "replayed --replay 0.5", "all --replay 0.5 --holdout 0"):
        assert main(f"{update} {flags}".split()) == 0
    scores = re.findall(r"held_out (-[\d.]+) \(freq", capsys.readouterr().err)
    assert len(scores) == 3 and scores[1] == scores[2]
    (_, entry) = corpora_of_base(Path("replayed"), 4)
    assert (entry["holdout"], entry["num_tokens"]) == (0.2, 4)
    again = "train new.txt --resume replayed --replay 0.5 --workdir again --dry-run"
    assert main(again.split()) == 0


@pytest.mark.row("B37")
def test_a_corpus_that_has_gone_or_changed_is_not_replayed(base, capsys):
    Path("old.txt").write_text("x y\n" * 9)
    for reason in ("has changed", "does not exist"):
        assert main([*base, "--workdir", "new", "--replay", "0.5"]) == 2
        line = error_line(capsys)
        assert "`replay` needs a corpus of the run to resume" in line and reason in line
        Path("old.txt").unlink(missing_ok=True)
    assert not Path("new").exists()


def test_a_fold_in_trains_new_rows_alone():
    """The others stay to the last bit, in both tables."""
    sessions = [["tea", "milk"], ["nail", "hammer"]] * 200
    trained = EmbeddingTrainer(min_count=1, vector_size=8, window="session", sample=0)
    trained.fit(sessions, next_items=True)
    before = {key: trained[key].copy() for key in trained.index_to_key}
    output, num_epochs = trained._table("output").copy(), len(trained.loss_history)
    new = [["tea", "oats", "milk"], ["oats", "tea"], ["once", "tea"]] * 60
    trained.fold_in(new)
    assert {"oats", "once"} <= {*trained.index_to_key}
    for key, vector in before.items():
        assert trained[key].tobytes() == vector.tobytes()
    assert trained._table("output")[: len(output)].tobytes() == output.tobytes()
    assert trained.next_items(["tea", "milk"], topn=1)[0][0] in ("oats", "once")
    assert dict(trained.next_items(["oats"], topn=2)).keys() <= {"tea", "milk", "once"}
    assert 5 <= len(trained.loss_history) - num_epochs <= 20
    with pytest.raises(ValueError, match="no new words that occur `min_count` = 1"):
        trained.fold_in(new)
    with pytest.raises(TypeError, match="must be text, as those of `fit`, got integer"):
        trained.fold_in([[1, 2]])
