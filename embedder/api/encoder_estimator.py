"""FeatureEncoder: an encoder as a scikit-learn estimator, the port of `legacy`'s."""

import functools
import inspect
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

from embedder.api.feature_ensemble import DTYPES, FeatureEnsemble, features_for, flat
from embedder.api.fitting import CallbackArgument, Fitting, fitting
from embedder.base.threads import in_turn
from embedder.config import Config, replicas_of, with_options
from embedder.config.settings import integer
from embedder.data.examples.examples import UNLABELLED, Examples, warn_of_pixels
from embedder.encoders.artefact import (
    ENCODER_SETTINGS,
    NETWORK_SETTINGS,
    EncoderFile,
    read_encoder,
    settings_of,
    write_encoder,
)
from embedder.encoders.networks.network import Layer, Model, Network
from embedder.encoders.outputs import embed, load_model, probabilities, scores
from embedder.encoders.plan import TrainingInputs, plan
from embedder.encoders.predictor import Predictor
from embedder.encoders.start import Start, read_start
from embedder.encoders.train_step import model_of
from embedder.encoders.trainer import EncoderTrainer
from embedder.engine.replicas import stack_states, unstack_states
from embedder.engine.rules import optimizer_by_name
from embedder.errors import InputError, InputTypeError

if TYPE_CHECKING:
    from embedder.report.page import Report


class FeatureEncoder(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator
):
    """A network that classifies; `transform` returns its embeddings.

    Its defaults are those of `legacy.FeatureEncoder`: an MLP, trained by SGD. Equations
    are those of ALGORITHM.md.

    Args:
      layers: widths of all layers of an MLP, from features to classes, as (784, 512,
        10); None: one hidden layer of 128.
      optimizer: a rule of optax by name, or any `optax.GradientTransformation`, which
        has a learning rate of its own.
      optimizer_args: arguments of a rule by name.
      learning_rate: the highest of the schedule; None: the default of the rule; or a
        schedule of optax, a function of the number of the update.
      batch_size: Examples per update. The last update of an epoch may have fewer.
      epochs: Passes over the data; 0 writes the initial vectors.
      validation_fraction: Share of the examples, from the end, that is held out for
        validation.
      seed: Seed of all random numbers: initial vectors, order, sampling, noise.
      workers: ignored; `legacy` has it for its processes.
      dtype: "float32" or "float64". Type of the vectors and of all arithmetic on them.
      network: "mlp", or for images [n, h, w] or [n, h, w, c] "conv-small", "resnet",
        "wide-resnet" or "vit".
      network_args: its arguments by name, as {"depth": 28}.
      vector_size: Values of an embedding: of a linear layer after the network's last
        hidden layer; for an mlp the width of that layer. 0: the layer before the
        classes.
      objective: "softmax" or "supcon" or "arcface" or "triplet" or "simclr". What is
        learned. softmax: cross entropy of the classes. arcface: the same with an
        angular margin. supcon: examples of a class are near, others far. triplet: with
        semi-hard negatives. simclr: two augmented views are near; it needs no labels.
        Equations (23), (82) to (86).
      objective_args: arguments of the objective by name, as {"temperature": 0.1}.
      augment: Random changes of the images while training, e.g. crop=4 flip.
      schedule: "auto" or "constant" or "cosine" or "linear" or "step". How the learning
        rate falls: cosine or linear to 0; step: divided by 10 after 1/2 and 3/4 of the
        updates. auto: constant for an mlp, cosine for other networks.
      warmup: Updates (500) or epochs (1epoch) in which the learning rate rises to its
        highest.
      weight_decay: Decay of weights; biases and norms have none. adamw and lion apply
        it apart from the gradient, other rules add it to the gradient.
      clip_norm: Largest norm of the gradient of all parameters; 0: any.
      average: Decay of an exponential moving average of the parameters, e.g. 0.999,
        with which the encoder is evaluated and saved; 0: the parameters themselves.
      class_weights: "equal" or "balanced". balanced: the loss of an example is weighted
        by n / (C n_c), with n_c of the n training examples of its class. Equation (82).
      micro_batches: Parts in which an update computes its examples, to need less
        memory; the gradient is of all of them. It divides `batch_size`.
      schedule_args: arguments of the schedule "step" by name, as {"boundaries": (30,
        60)}.
      compute_dtype: "same" or "bfloat16". Type of the network's arithmetic. bfloat16:
        faster on a GPU; parameters, their updates and losses stay in `dtype`.
      precision: "default" or "high" or "highest". Precision of matrix products.
        highest: full float32. default: less on a GPU.
      init_from: Start from the parameters of this run or model file, where module and
        shape are the same.
      freeze: Modules of the network that stay as they are: a pattern such as stem* or
        block_* over their names.
      eval_every: Interval between evaluations: a number of updates (100), a time (30s,
        10min, 2h), a number of epochs (1epoch), or never. The end of the run is always
        evaluated.
      patience: End the run after this many evaluations in a row without a better score
        (tokens: by `best_by` or `holdout`, encoder: by validation); 0: train all
        epochs.
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
        self,
        X,
        y=None,
        *,
        verbose: bool | None = None,
        callbacks: CallbackArgument = (),
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
        callbacks: CallbackArgument = (),
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
        integer(2)(numbers := SimpleNamespace(replicas=replicas), "replicas")
        with fitting(verbose, callbacks) as run:
            return self._fit_or_restore(run, X, y, numbers.replicas, bootstrap)

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
        if isinstance(X, np.ndarray):
            warn_of_pixels(X, "`X`")
        is_deep = isinstance(X, np.ndarray) and X.ndim > 2
        shape = X.shape[1:] if is_deep else x.shape[1:]
        check_classification_targets(y)
        if type_of_target(y) == "continuous":
            raise InputError(f"Unknown label type: {type_of_target(y)}")
        classes, labels = np.unique(y, return_inverse=True)
        names = [str(each) for each in classes]
        keys = [str(i) for i in range(len(x))]
        features = x.reshape(len(x), *shape)  # networks of images need the shape
        columns = tuple(vars(self).get("feature_names_in_", ()))
        examples = Examples(features, labels.astype(np.int32), names, keys, columns)
        inputs = TrainingInputs(
            config=config,
            examples=examples,
            start=self._start(),
            optimizer=self._rule(),
            call_limit=run.callbacks.updates_per_call,
        )
        training = EncoderTrainer(plan(inputs))
        end = run.run(training)
        self.classes_ = classes
        self.history_ = [
            dict(zip(training.metrics, each, strict=True))
            for each in end.position.history
        ]
        self._lines, self._times = run.after((), ())
        model, rotations = model_of(end.state), None
        models = [model]
        if training.has_replicas:
            predictor = Predictor(training.program.encoder, model, True)
            rotations, models = predictor.rotations(features), unstack_states(model)
        self._set(training.network, models, shape, x.dtype.name, rotations)
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
        from embedder.api.estimator_report import encoder_report

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
        parameters = jax.tree.leaves(model.params)  # `dtype` may be another one now
        settings |= {"dtype": parameters[0].dtype.name}
        settings |= settings_of(network, self._config().encoder)
        arrays, rotations = network.to_arrays(model), None
        if self._ensemble is not None:
            members, rotations = self._ensemble.members, self._ensemble.rotations
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
            tuple(vars(self).get("feature_names_in_", ())),
        )
        write_encoder(Path(path), file)

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
        if file.columns:
            encoder.feature_names_in_ = np.array(file.columns, object)
        about = file.example_shape, file.example_dtype, file.rotations
        encoder._set(file.network, file.models, *about)
        return encoder

    @property
    def _n_features_out(self) -> int:
        return self._trained[0].vector_size

    @property
    def _trained(self) -> tuple[Network, Model]:
        """The network and its model."""
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
        if (layers := network.linear_layers(models[0])) is not None:
            self.layers_ = layers
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
            embedding_size=self.vector_size,
            rate_schedule=self.schedule,
            freeze_modules=self.freeze,
            replicas=replicas,
            bootstrap=bootstrap,
            **{name: self._texts(name) for name in _TEXTS},
            **{name: getattr(self, name) for name in _SETTINGS},
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
            arguments = tuple((self.optimizer_args or {}).items())
            is_function = inspect.isfunction(self.learning_rate)  # no state changes
            make = _with_schedule if is_function else _with_schedule.__wrapped__
            return make(self.optimizer, self.learning_rate, arguments)
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


@functools.lru_cache(maxsize=8)
def _with_schedule(
    name: str, rate: optax.Schedule, arguments: tuple[tuple[str, float], ...]
) -> optax.GradientTransformation:
    """The rule with a schedule; the same object each time, which compiles once."""
    return optimizer_by_name(name, rate, dict(arguments))


def _text(value: Any) -> str:
    """A value as the command line takes it: of several numbers with commas."""
    is_list = isinstance(value, list | tuple)
    return ",".join(map(str, value)) if is_list else str(value)


_TEXTS = ("network_args", "objective_args", "schedule_args")
_SETTINGS = (
    *("network", "objective", "augment", "warmup", "weight_decay", "clip_norm"),
    *("average", "class_weights", "micro_batches", "compute_dtype", "precision"),
    *("eval_every", "patience", "result", "batch_size", "epochs"),
    *("validation_fraction", "seed", "workers", "dtype"),
)
"""Arguments of `FeatureEncoder` that are settings of the same name."""

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
    arguments = {names.get(name, name): value for name, value in settings.items()}
    for name in ("network_args", "objective_args"):
        if texts := arguments.pop(name, None):
            arguments[name] = dict(text.split("=", 1) for text in texts)
    return arguments
