"""FeatureEncoder: an encoder as a scikit-learn estimator, the port of `legacy`'s."""

import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
)
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from embedder.config import Config, replicas_of, with_options
from embedder.encoders.artefact import (
    ENCODER_SETTINGS,
    NETWORK_SETTINGS,
    EncoderFile,
    read_encoder,
    write_encoder,
)
from embedder.encoders.examples import UNLABELLED, Examples
from embedder.encoders.feature_ensemble import FeatureEnsemble
from embedder.encoders.networks.mlp import MLP, Layer, arrays_of, layers_of
from embedder.encoders.networks.network import Model, Network
from embedder.encoders.outputs import embed, load_model, probabilities, scores
from embedder.encoders.predictor import Predictor
from embedder.encoders.start import Start, read_start
from embedder.encoders.training import EncoderTraining
from embedder.encoders.update import model_of
from embedder.encoders.validation import DTYPES, features_for, flat
from embedder.engine.replicas import stack_states, unstack_states
from embedder.engine.rules import optimizer_by_name
from embedder.errors import InputError, InputTypeError
from embedder.run.fitting import Fitting, Given, fitting
from embedder.settings import integer
from embedder.threads import in_turn

if TYPE_CHECKING:
    from embedder.report.page import Report


class FeatureEncoder(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator
):
    """A network that classifies; `transform` returns its embeddings.

    Its defaults are those of `legacy.FeatureEncoder`: an MLP, trained by SGD.

    Args:
      layers: widths of all layers of an MLP, from features to classes, as (784, 512,
        10); None: one hidden layer of 128.
      optimizer: a rule of optax by name, or any `optax.GradientTransformation`, which
        has a learning rate of its own.
      optimizer_args: arguments of a rule by name.
      learning_rate: the highest of the schedule; None: the default of the rule; or a
        schedule of optax, a function of the number of the update.
      batch_size: examples of an update; the last of an epoch may have fewer.
      epochs: passes over the training examples.
      validation_fraction: fraction of the examples to validate on, the last ones.
      seed: of the initial weights and the order of examples.
      workers: ignored; `legacy` has it for its processes.
      dtype: "float32" or "float64", of parameters and arithmetic.
      network: "mlp", or for images [n, h, w] or [n, h, w, c] "conv-small", "resnet",
        "wide-resnet" or "vit".
      network_args: its arguments by name, as {"depth": 28}.
      vector_size: E; 0: the layer before the classes, see `embedding_size`.
      objective, objective_args: as of the settings; arguments by name.
      augment: random changes of images, as ("crop=4", "flip").
      schedule, schedule_args, warmup, weight_decay, clip_norm, average, class_weights,
        micro_batches, compute_dtype, precision: as the settings of these names
        (`rate_schedule`); arguments by name, as {"boundaries": (30, 60)}.
      init_from: a run, or an encoder file, that parameters start from; it may be a URL.
      freeze: pattern of the modules that stay as they start, as "block_*".
      eval_every: interval of the evaluations on the validation examples, as 100 updates
        or "2epochs".
      patience: evaluations without a lower validation loss until training ends; 0: it
        goes on.
      result: "last", or "best": keep the parameters of the lowest validation loss.

    Attributes:
      classes_: the classes, sorted. n_features_in_: number of features.
      layers_: of an MLP, weights [in, out] and biases [out] of each layer.
      history_: train_loss, train_accuracy, val_loss, val_accuracy of each epoch; in
        training before each update, and None without validation. With `result` "best"
        it ends with the epoch that is kept.
      ensemble_: after `fit_ensemble`, all its networks.
    """

    layers_: list[Layer]

    def __init__(
        self,
        layers: tuple[int, ...] | None = None,
        *,
        optimizer: str | optax.GradientTransformation = "sgd",
        optimizer_args: dict[str, float] | None = None,
        learning_rate: float | optax.Schedule | None = 0.01,
        batch_size: int = 32,
        epochs: int = 5,
        validation_fraction: float = 0.0,
        seed: int = 1,
        workers: int = 1,
        dtype: str = "float32",
        network: str = "mlp",
        network_args: dict[str, Any] | None = None,
        vector_size: int = 0,
        objective: str = "softmax",
        objective_args: dict[str, float] | None = None,
        augment: tuple[str, ...] = (),
        schedule: str = "auto",
        warmup: str | int = 0,
        weight_decay: float = 0.0,
        clip_norm: float = 0.0,
        average: float = 0.0,
        class_weights: str = "equal",
        micro_batches: int = 1,
        schedule_args: dict[str, Any] | None = None,
        compute_dtype: str = "same",
        precision: str = "highest",
        init_from: str | os.PathLike | None = None,
        freeze: str = "",
        eval_every: str | int = "1epoch",
        patience: int = 0,
        result: str = "last",
    ):
        self.layers = layers
        self.optimizer = optimizer
        self.optimizer_args = optimizer_args
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.epochs = epochs
        self.validation_fraction = validation_fraction
        self.seed = seed
        self.workers = workers
        self.dtype = dtype
        self.network = network
        self.network_args = network_args
        self.vector_size = vector_size
        self.objective = objective
        self.objective_args = objective_args
        self.augment = augment
        self.schedule = schedule
        self.warmup = warmup
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.average = average
        self.class_weights = class_weights
        self.micro_batches = micro_batches
        self.schedule_args = schedule_args
        self.compute_dtype = compute_dtype
        self.precision = precision
        self.init_from = init_from
        self.freeze = freeze
        self.eval_every = eval_every
        self.patience = patience
        self.result = result

    @in_turn
    def fit(
        self, X, y=None, *, verbose: bool | None = None, callbacks: Given = ()
    ) -> "FeatureEncoder":
        """Trains from initial weights; X [n, ...] of numbers, y [n] of labels.

        The objective simclr needs no labels.

        Features of uint8, such as pixels, are scaled to 0 to 1. An error leaves the
        estimator unchanged.

        Args:
          verbose: True shows a bar on a terminal or in a notebook, and lines elsewhere;
            False nothing; None a bar, if the training takes more than a second.
          callbacks: functions that get a `Status` after each epoch; `every(N, f)`
            calls f after N updates each. One that returns True stops the training,
            which is kept as it is then; `history_` has the whole epochs.

        Raises:
          InputError, InputTypeError: an argument breaks its rule, or X and y do not
            fit each other.
          FloatingPointError: training diverged.
        """
        with fitting(verbose, callbacks) as run:
            return self._fit_or_restore(run, X, y, replicas=1, bootstrap=False)

    @in_turn
    def fit_ensemble(
        self,
        X,
        y,
        replicas: int = 10,
        *,
        bootstrap: bool = False,
        verbose: bool | None = None,
        callbacks: Given = (),
    ) -> "FeatureEncoder":
        """Trains `replicas` networks side by side from initial weights.

        The k-th, from 0, is the network that `fit` trains with `seed` + k. All of them
        are `ensemble_` then; everything else is of the first, but for `history_`, which
        has their means.

        Args:
          X, y: as for `fit`.
          replicas: number of networks, at least 2.
          bootstrap: each trains on its own resample of the training examples.
          verbose, callbacks: as for `fit`.

        Raises:
          as `fit`; InputError, InputTypeError: `replicas` is no integer >= 2.
        """
        integer(2)(given := SimpleNamespace(replicas=replicas), "replicas")
        with fitting(verbose, callbacks) as run:
            return self._fit_or_restore(run, X, y, given.replicas, bootstrap)

    @property
    def ensemble_(self) -> FeatureEnsemble:
        """The networks of the last `fit_ensemble`, and their mean predictions.

        Raises:
          NotFittedError: it was not the last training.
        """
        ensemble = vars(self).get("_ensemble")
        if ensemble is None:
            raise NotFittedError(
                "The encoder has no ensemble: call `fit_ensemble` first."
            )
        return ensemble

    def _fit_or_restore(
        self, run: Fitting, X, y, replicas: int, bootstrap: bool
    ) -> "FeatureEncoder":
        before = dict(self.__dict__)
        try:
            return self._fit(run, X, y, replicas, bootstrap)
        except BaseException:  # validate_data has set attributes
            for name in self.__dict__.keys() - before.keys():
                delattr(self, name)
            self.__dict__.update(before)
            raise

    def _fit(
        self, run: Fitting, X, y, replicas: int, bootstrap: bool
    ) -> "FeatureEncoder":
        config = self._config(replicas=replicas, bootstrap=bootstrap)
        if y is None and not config.encoder.needs_labels:
            y = np.full(len(X), UNLABELLED)
        x, y = validate_data(self, flat(X), y, dtype=DTYPES)
        is_deep = isinstance(X, np.ndarray) and X.ndim > 2
        shape = X.shape[1:] if is_deep else x.shape[1:]
        check_classification_targets(y)
        if type_of_target(y) == "continuous":
            raise InputError(f"Unknown label type: {type_of_target(y)}")
        classes, labels = np.unique(y, return_inverse=True)
        names = [str(each) for each in classes]
        keys = [str(i) for i in range(len(x))]
        features = x.reshape(len(x), *shape)  # networks of images need the shape
        examples = Examples(features, labels.astype(np.int32), names, keys)
        epochs = range(self.epochs)
        training = EncoderTraining(
            *(config, examples, epochs),
            start=self._start(),
            optimizer=self._rule(),
            call_limit=run.callbacks.updates_per_call,
        )
        end = run.run(training, training.initial_state())
        self.classes_, self.history_ = (
            classes,
            [
                dict(zip(training.metrics, each, strict=True))
                for each in end.position.history
            ],
        )
        self._lines, self._times = run.after((), ())
        model, network = model_of(end.state), training.network
        if not training.has_replicas:
            self._set(network, [model], shape, x.dtype.name, None)
            return self
        predictor = Predictor(training.program.encoder, model, True)
        rotations = predictor.rotations(features)
        models = unstack_states(model)
        self._set(network, models, shape, x.dtype.name, rotations)
        return self

    def predict(self, X) -> np.ndarray:
        """The most probable class of each row of X, [n]."""
        best = self._outputs(scores, X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, [n, C] in `dtype`."""
        return self._outputs(probabilities, X)

    def transform(self, X) -> np.ndarray:
        """The embedding of each row, [n, E]: the layer before the classes."""
        return self._outputs(embed, X)

    def report(self, X=None, y=None) -> "Report":
        """A page about the training: Jupyter shows it, and its `save` writes it to a
        file; see `embedder report`.

        Args:
          X: features, whose embeddings have a map.
          y: their labels: confusions, calibration, retrieval, the hardest examples.
        """
        from embedder.encoders.estimator_report import encoder_report

        check_is_fitted(self)
        return encoder_report(self, X, y)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the fitted encoder to one `.npz` file, which `legacy` reads too.

        `legacy` reads no file of another network than an MLP, nor of an ensemble.
        """
        check_is_fitted(self)
        network, model = self._trained
        settings = {name: getattr(self, name) for name in ENCODER_SETTINGS}
        if not isinstance(settings["optimizer"], str):
            settings |= {"optimizer": _CUSTOM}
        if callable(settings["learning_rate"]):
            settings |= {"learning_rate": None}
        settings |= {"dtype": self._dtype} | self._file_settings()
        arrays, rotations = network.to_arrays(model), None
        ensemble = vars(self).get("_ensemble")  # not in former pickles
        if ensemble is not None:
            members, rotations = ensemble.members, ensemble.rotations
            settings["replicas"] = len(members)
            arrays = stack_states(
                [network.to_arrays(each._trained[1]) for each in members]
            )
        file = EncoderFile(
            settings,
            self.classes_,
            arrays,
            self.history_,
            self._shape,
            self._kind,
            rotations,
        )
        write_encoder(Path(path), file)

    def _file_settings(self) -> dict[str, Any]:
        """The settings of a file that `ENCODER_SETTINGS` lacks, as of runs."""
        options = self._config().encoder
        if options.network in ("auto", "mlp") and options.objective == "softmax":
            return {}
        return {name: getattr(options, name) for name in NETWORK_SETTINGS}

    @classmethod
    def load(cls, path: str | os.PathLike) -> "FeatureEncoder":
        """The encoder in a file that `save` of this package or of `legacy` wrote.

        So is model.npz of a run. A file of replicas gives what `fit_ensemble` leaves.

        Raises:
          InputNotFoundError: there is no such file.
          InputError: it is not an encoder file, or it is damaged.
        """
        file = read_encoder(Path(path))
        file.settings.pop("replicas", None)  # the number of its networks
        encoder = cls(**_arguments_of(file.settings, path))
        encoder.classes_, encoder.history_ = file.classes, file.history
        encoder.n_features_in_ = math.prod(file.example_shape)
        network = file.network
        models = [network.to_model(each) for each in file.replicas]
        shape, kind = file.example_shape, file.example_dtype
        encoder._set(network, models, shape, kind, file.rotations)
        return encoder

    @property
    def _n_features_out(self) -> int:
        return self._trained[0].vector_size

    @property
    def _dtype(self) -> str:
        """The dtype of the parameters; the argument may have changed since."""
        return jax.tree.leaves(self._trained[1].params)[0].dtype.name

    @property
    def _trained(self) -> tuple[Network, Model]:
        """The network and its model; of a former pickle by its layers."""
        if "_model" not in vars(self):
            arrays = arrays_of(self.layers_)
            network = MLP.of_arrays(arrays)
            return network, network.to_model(arrays)
        return self._network, self._model

    def _set(
        self,
        network: Network,
        models: list[Model],
        shape: tuple[int, ...],
        kind: str,
        rotations: np.ndarray | None,
    ) -> None:
        """Keeps one trained network; with `rotations`, those of an ensemble."""
        self._network, self._model = network, models[0]
        self._shape, self._kind = shape, kind
        if "layers_" in vars(self):  # of a former training
            del self.layers_
        if isinstance(network, MLP) and not network.head:
            self.layers_ = layers_of(models[0].params)
        self._ensemble: FeatureEnsemble | None = None
        if rotations is not None:
            config = self._config(replicas=len(models))
            seeds = (each.run.seed for each in replicas_of(config))
            members = map(self._member, seeds, models)
            self._ensemble = FeatureEnsemble([*members], rotations)

    def _member(self, seed: int, model: Model) -> "FeatureEncoder":
        """The encoder of one network of the ensemble."""
        member = clone(self).set_params(seed=seed)
        for name in ("classes_", "history_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(member, name, getattr(self, name))
        member._set(self._network, [model], self._shape, self._kind, None)
        return member

    def _config(self, replicas: int = 1, bootstrap: bool = False) -> Config:
        has_rule = self._rule() is not None
        return with_options(
            Config(),
            model="encoder",
            loader="memory",
            layers=() if self.layers is None else self.layers,
            optimizer="sgd" if has_rule else self.optimizer,
            optimizer_args=() if has_rule else self._texts("optimizer_args"),
            learning_rate=None if has_rule else self.learning_rate,
            network=self.network,
            network_args=self._texts("network_args"),
            embedding_size=self.vector_size,
            objective=self.objective,
            objective_args=self._texts("objective_args"),
            augment=self.augment,
            rate_schedule=self.schedule,
            warmup=self.warmup,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            average=self.average,
            class_weights=self.class_weights,
            micro_batches=self.micro_batches,
            schedule_args=self._texts("schedule_args"),
            compute_dtype=self.compute_dtype,
            precision=self.precision,
            freeze_modules=self.freeze,
            eval_every=self.eval_every,
            patience=self.patience,
            result=self.result,
            batch_size=self.batch_size,
            epochs=self.epochs,
            validation_fraction=self.validation_fraction,
            seed=self.seed,
            workers=self.workers,
            dtype=self.dtype,
            replicas=replicas,
            bootstrap=bootstrap,
        )

    def _start(self) -> Start | None:
        """The encoder that parameters start from; None: all are drawn.

        Raises:
          OSError, InputError, InputTypeError: see `read_start`; it is no path.
        """
        if self.init_from is None or self.init_from == "":
            return None
        if not isinstance(self.init_from, str | os.PathLike):
            raise InputTypeError(
                "`init_from` must be the path or URL of a run or an encoder file, got "
                f"{self.init_from!r}."
            )
        return read_start(os.fspath(self.init_from))

    def _rule(self) -> optax.GradientTransformation | None:
        """The optimizer, if it is given as an object of optax or with a schedule; None:
        the settings tell it.

        Raises:
          InputError: there is no such rule.
        """
        if isinstance(self.optimizer, optax.GradientTransformation):
            if self.optimizer_args is not None:
                raise InputError(
                    "`optimizer_args` must be None with an optimizer of optax, got "
                    f"{self.optimizer_args!r}."
                )
            return self.optimizer
        if callable(self.learning_rate) and isinstance(self.optimizer, str):
            arguments = self.optimizer_args or {}
            return optimizer_by_name(self.optimizer, self.learning_rate, arguments)
        return None

    def _texts(self, name: str) -> tuple[str, ...]:
        """The arguments `name` as texts NAME=VALUE."""
        arguments = getattr(self, name)
        if arguments is None:
            return ()
        if not isinstance(arguments, dict):
            raise InputTypeError(
                f"`{name}` must be a dict of values by their names, got {arguments!r}."
            )
        return tuple(f"{name}={_text(x)}" for name, x in arguments.items())

    def _outputs(self, function, X) -> np.ndarray:
        x = features_for(self, X)
        network, model = self._trained
        encoder, model = load_model(network, model)
        return function(encoder, model, x)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # the argument `dtype` decides
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "_shape" in vars(self)


def _text(value: Any) -> str:
    """A value as the command line takes it: of several numbers with commas."""
    is_list = isinstance(value, list | tuple)
    return ",".join(map(str, value)) if is_list else str(value)


_CUSTOM = "custom"  # in files: an optimizer that was given as an object


def _arguments_of(settings: dict[str, Any], path: str | os.PathLike) -> dict[str, Any]:
    """The arguments of `FeatureEncoder` for the settings of a file.

    Raises:
      InputError: it has no such argument.
    """
    known = {*ENCODER_SETTINGS, *NETWORK_SETTINGS}
    if other := sorted(settings.keys() - known):
        raise InputError(
            f"{path} has settings that FeatureEncoder does not have, "
            f"{', '.join(f'`{name}`' for name in other)}: use `embedder embed`."
        )
    names = {"embedding_size": "vector_size", "rate_schedule": "schedule"}
    found = {names.get(name, name): value for name, value in settings.items()}
    for name in ("network_args", "objective_args"):
        if texts := found.pop(name, None):
            found[name] = dict(text.split("=", 1) for text in texts)
    return found
