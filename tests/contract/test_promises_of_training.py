"""Promises about training of a few words each, which no other test has."""

import itertools
import json
import re
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder import EmbeddingTrainer, every, read_ensemble
from embedder.cli.main import main
from embedder.encoders.augment import make_augment
from embedder.engine import epochs
from embedder.gensim import Word2Vec
from tests.contract.events import at_each_event
from tests.encoders.image_cases import make_training

TRAIN = "train text.txt --vector-size 4 --min-count 1 --sample 0 --no-report"
TRAIN += " --loader memory"
TEXT = "".join(f"{' '.join(each)}\n" for each in itertools.permutations("abcd")) * 3


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)


def train(flags: str, run: str = "run") -> int:
    return main([*TRAIN.split(), *flags.split(), "--workdir", run])


def stopped(flags: str, run: str, event: int) -> None:
    """Trains until SIGTERM comes, at a change of the files in the run's folder."""
    count = itertools.count()

    def stop() -> None:
        if next(count) == event:
            signal.raise_signal(signal.SIGTERM)

    with at_each_event(Path(run), stop):
        assert train(flags, run) == 143


def measured(run: str) -> list[dict]:
    return [*map(json.loads, Path(run, "metrics.jsonl").read_text().splitlines())]


def arrays_of(run: str) -> dict[str, np.ndarray]:
    with np.load(Path(run, "model.npz")) as file:
        return {name: file[name] for name in file.files}


def test_losses_are_kept_by_the_third_run_after_an_unfinished_second():
    assert train("--epochs 2") == 0
    stopped("--resume run --epochs 30 --save-every 1epoch", "second", 60)
    second = measured("second")
    assert second
    assert train("--resume second --epochs 1", "third") == 0
    losses = [line["loss"] for line in measured("run") + second + measured("third")]
    np.testing.assert_allclose(arrays_of("third")["loss_history"], losses)


def test_a_generator_is_no_corpus_of_a_word2vec_that_counts_and_trains():
    with pytest.raises(TypeError, match="2 passes"):
        Word2Vec((line.split() for line in TEXT.splitlines()), min_count=1, epochs=1)


def test_the_loss_of_word2vec_is_the_sum_over_the_epochs_of_a_training():
    """That of an epoch is its mean loss times its pairs, about as many in each."""
    text = [line.split() for line in TEXT.splitlines()]
    options = {"vector_size": 4, "min_count": 1, "sg": 1, "sample": 0}
    pairs = []
    for num in (1, 3):
        model = Word2Vec(text, **options, epochs=num, compute_loss=True)
        pairs.append(model.get_latest_training_loss() / sum(model.loss_history))
    assert pairs[0] == pytest.approx(pairs[1], rel=0.2)


def test_progress_is_that_of_the_last_real_update_of_a_call():
    """The second call of each epoch has fewer updates than its program."""
    seen: list[float] = []
    trainer = EmbeddingTrainer(vector_size=4, min_count=1, sample=0, epochs=2, block=16)
    text = [line.split() for line in TEXT.splitlines()]
    trainer.fit(text, callbacks=[every(1, lambda status: seen.append(status.progress))])
    assert len(seen) == 4
    assert seen == sorted(seen) and seen[-1] > 0.9


def test_a_frozen_row_of_a_token_that_is_not_there_changes_nothing_of_an_update():
    assert train("--epochs 1", "old") == 0
    Path("more.txt").write_text("a b a b c\n")
    Path("keys.txt").write_text("d\n")
    for run, freeze in ("plain", ""), ("frozen", "--freeze keys.txt"):
        command = f"train more.txt --resume old --no-report --workdir {run} {freeze}"
        assert main(command.split()) == 0
    old, plain, frozen = map(arrays_of, ("old", "plain", "frozen"))
    assert (plain["input"] != old["input"]).any()
    for name in "input", "output":
        np.testing.assert_array_equal(plain[name], frozen[name])


def said(capsys, flags: str) -> str:
    """What a dry run prints."""
    assert main([*flags.split(), "--dry-run", "--workdir", "dry"]) == 0
    return capsys.readouterr().out


def test_a_dry_run_counts_an_output_table_for_each_objective(capsys):
    sizes = []
    for flags in ("", "--hs"):
        out = said(capsys, f"{TRAIN} --vector-size 100000 {flags}")
        (size,) = re.findall("^memory: .*[(]tables ([0-9.]+)", out, re.MULTILINE)
        sizes.append(float(size))
    assert sizes[1] / sizes[0] == pytest.approx(1.5, rel=0.1)


def write_images(size: int, num: int = 8) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(num, size, size), dtype=np.uint8)
    np.savez("images.npz", X=images, y=np.arange(num) % 2)


IMAGES = "train images.npz --model encoder --loader memory --no-report"


def test_a_network_starts_with_the_averages_of_the_other_one():
    write_images(4)
    network = "--network wide-resnet --network-args depth=10 width=1"
    for flags in "--epochs 1 --workdir one", "--epochs 0 --init-from one --workdir two":
        assert main([*f"{IMAGES} {network} {flags}".split()]) == 0
    one, two = map(arrays_of, ("one", "two"))
    assert one.keys() == two.keys()
    names = {name for name, array in one.items() if array.dtype.kind == "f"}
    assert any("mean" in name for name in names)
    for name in names:
        np.testing.assert_array_equal(one[name], two[name], name)


def test_images_of_more_than_64_pixels_alone_have_a_larger_first_kernel(capsys):
    sizes = []
    for size in (64, 65):
        write_images(size)
        network = "--network resnet --network-args depth=18 width=1"
        out = said(capsys, f"{IMAGES} {network}")
        (number,) = re.findall("([0-9,]+) parameters", out)
        sizes.append(int(number.replace(",", "")))
    assert sizes[1] - sizes[0] == 7 * 7 - 3 * 3


def test_a_dry_run_counts_activations_of_each_replica(capsys):
    write_images(64)
    sizes = []
    for replicas in (1, 4):
        network = "--network conv-small --network-args width=8 --batch-size 1024"
        out = said(capsys, f"{IMAGES} {network} --replicas {replicas}")
        (size,) = re.findall("each device: .*activations ([0-9.,]+)", out)
        sizes.append(float(size.replace(",", "")))
    assert sizes[1] / sizes[0] == pytest.approx(4, rel=0.01)


def test_a_flip_does_not_follow_from_the_crop():
    """Slopes of an image tell whether it was flipped, and how large its part was."""
    place = jnp.arange(16) / 16
    image = jnp.stack(jnp.meshgrid(place, place), axis=-1)
    keys = jax.random.split(jax.random.key(0), 100)
    images = jnp.broadcast_to(image, (100, *image.shape))
    changed = np.array(make_augment(["resized-crop=0.5", "flip"])(images, keys))
    width = changed[:, 8, 9, 0] - changed[:, 8, 8, 0]
    height = changed[:, 9, 8, 1] - changed[:, 8, 8, 1]
    is_flipped, is_small = width < 0, abs(width) * height * 256 < 0.75
    assert 25 < np.sum(is_flipped == is_small) < 75


def test_replicas_that_resume_do_not_repeat_an_epoch_that_one_has_ended(monkeypatch):
    """The second one has 16 updates, which are the first call, the first one 17."""
    flags = "--sample 0.03 --block 8 --tile 8 --blocks-per-update 1 --epochs 1"
    flags += " --save-every 16 --replicas 2"
    assert train(flags, "whole") == 0
    status = epochs._Reporter._status

    def stop(self, place, *rest):
        if place.updates == 17:
            signal.raise_signal(signal.SIGTERM)
        return status(self, place, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(epochs._Reporter, "_status", stop)
        assert train(flags) == 143
    assert train(flags) == 0
    whole, again = (read_ensemble(run).vectors for run in ("whole", "run"))
    np.testing.assert_array_equal(whole, again)


def test_a_mixture_has_the_weight_of_its_first_image():
    """One that a resample has not drawn counts only where it is mixed into another."""
    options = {"augment": ("mixup=0.4",), "bootstrap": True}
    source = make_training("mlp", **options).source
    order = source.order(0)
    updates = source.updates(order, 0, 0, source.num_batches)
    weights = updates.weights.reshape(-1)[: len(order)]
    drawn = make_training("mlp", bootstrap=True).source.multiplicity
    np.testing.assert_array_equal(weights, drawn[order[:, 0]])
    assert (drawn[order[:, 0]] != drawn[order[:, 1]]).any()
