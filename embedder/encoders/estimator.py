"""FeatureEncoder: an encoder as a scikit-learn estimator, the port of `legacy`'s."""

import math
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
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
    EncoderFile,
    read_encoder,
    write_encoder,
)
from embedder.encoders.examples import Examples
from embedder.encoders.feature_ensemble import FeatureEnsemble
from embedder.encoders.networks.mlp import (
    MLP,
    Layer,
    arrays_of,
    layers_in,
    layers_of,
)
from embedder.encoders.outputs import embed, load_encoder, probabilities, scores
from embedder.encoders.predictor import Predictor
from embedder.encoders.training import EncoderTraining
from embedder.encoders.update import model_of
from embedder.encoders.validation import DTYPES, features_for, flat
from embedder.engine.epochs import Status, run_epochs
from embedder.engine.replicas import stack_states, unstack_states
from embedder.errors import InputError, InputTypeError
from embedder.settings import integer
from embedder.threads import in_turn


class FeatureEncoder(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator
):
    """A ReLU network that classifies; `transform` returns its last hidden layer.

    Args:
      layers: widths of all layers, from features to classes, as (784, 512, 10); None:
        one hidden layer of 128.
      optimizer, optimizer_args: an optimizer of optax by name, and its arguments.
      learning_rate: of every update.
      batch_size: examples of an update; the last of an epoch may have fewer.
      epochs: passes over the training examples.
      validation_fraction: fraction of the examples to validate on, the last ones.
      seed: of the initial weights and the order of examples.
      workers: ignored; `legacy` has it for its processes.
      dtype: "float32" or "float64", of parameters and arithmetic.

    Attributes:
      classes_: the classes, sorted. n_features_in_: number of features.
      layers_: weights [in, out] and biases [out] of each layer.
      history_: train_loss, train_accuracy, val_loss, val_accuracy of each epoch; in
        training before each update, and None without validation.
      ensemble_: after `fit_ensemble`, all its networks.
    """

    def __init__(
        self,
        layers: tuple[int, ...] | None = None,
        *,
        optimizer: str = "sgd",
        optimizer_args: dict[str, float] | None = None,
        learning_rate: float = 0.01,
        batch_size: int = 32,
        epochs: int = 5,
        validation_fraction: float = 0.0,
        seed: int = 1,
        workers: int = 1,
        dtype: str = "float32",
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

    @in_turn
    def fit(self, X, y) -> "FeatureEncoder":
        """Trains from initial weights; X [n, ...] of numbers, y [n] of labels.

        Features of uint8, such as pixels, are scaled to 0 to 1. An error leaves the
        estimator unchanged.

        Raises:
          InputError, InputTypeError: an argument breaks its rule, or X and y do not
            fit each other.
          FloatingPointError: training diverged.
        """
        return self._fit_or_restore(X, y, replicas=1, bootstrap=False)

    @in_turn
    def fit_ensemble(
        self, X, y, replicas: int = 10, *, bootstrap: bool = False
    ) -> "FeatureEncoder":
        """Trains `replicas` networks side by side from initial weights.

        The k-th, from 0, is the network that `fit` trains with `seed` + k. All of them
        are `ensemble_` then; everything else is of the first, but for `history_`, which
        has their means.

        Args:
          X, y: as for `fit`.
          replicas: number of networks, at least 2.
          bootstrap: each trains on its own resample of the training examples.

        Raises:
          as `fit`; InputError, InputTypeError: `replicas` is no integer >= 2.
        """
        integer(2)(given := SimpleNamespace(replicas=replicas), "replicas")
        return self._fit_or_restore(X, y, given.replicas, bootstrap)

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

    def _fit_or_restore(self, X, y, replicas: int, bootstrap: bool) -> "FeatureEncoder":
        before = dict(self.__dict__)
        try:
            return self._fit(X, y, replicas, bootstrap)
        except BaseException:  # validate_data has set attributes
            for name in self.__dict__.keys() - before.keys():
                delattr(self, name)
            self.__dict__.update(before)
            raise

    def _fit(self, X, y, replicas: int, bootstrap: bool) -> "FeatureEncoder":
        config = self._config(replicas=replicas, bootstrap=bootstrap)
        x, y = validate_data(self, flat(X), y, dtype=DTYPES)
        is_deep = isinstance(X, np.ndarray) and X.ndim > 2
        shape = X.shape[1:] if is_deep else x.shape[1:]
        check_classification_targets(y)
        if type_of_target(y) == "continuous":
            raise InputError(f"Unknown label type: {type_of_target(y)}")
        classes, labels = np.unique(y, return_inverse=True)
        names = [str(each) for each in classes]
        keys = [str(i) for i in range(len(x))]
        examples = Examples(x, labels.astype(np.int32), names, keys)
        training = EncoderTraining(config, examples, range(self.epochs))
        history: list[dict[str, float | None]] = []

        def keep(status: Status) -> None:
            if status.is_epoch_end:
                history.append(status.metrics)

        end = run_epochs(training, training.initial_state(), keep)
        self.classes_, self.history_ = classes, history
        if not training.has_replicas:
            self._set([layers_of(end.state.params)], shape, x.dtype.name, None)
            return self
        params = unstack_states(end.state.params)
        encoder = training.program.encoder
        predictor = Predictor(encoder, model_of(end.state), True)
        rotations = predictor.rotations(x)
        self._set([*map(layers_of, params)], shape, x.dtype.name, rotations)
        return self

    def predict(self, X) -> np.ndarray:
        """The most probable class of each row of X, [n]."""
        best = self._outputs(scores, X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, [n, C] in `dtype`."""
        return self._outputs(probabilities, X)

    def transform(self, X) -> np.ndarray:
        """The embedding of each row, [n, layers[-2]]: the last hidden layer."""
        return self._outputs(embed, X)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the fitted encoder to one `.npz` file, which `legacy` reads too.

        After `fit_ensemble` the file has all networks; `legacy` reads no such file.
        """
        check_is_fitted(self)
        settings = {name: getattr(self, name) for name in ENCODER_SETTINGS}
        settings["dtype"] = self._dtype
        arrays, rotations = arrays_of(self.layers_), None
        ensemble = vars(self).get("_ensemble")  # not in former pickles
        if ensemble is not None:
            members, rotations = ensemble.members, ensemble.rotations
            settings["replicas"] = len(members)
            arrays = stack_states([arrays_of(each.layers_) for each in members])
        model = EncoderFile(
            settings,
            self.classes_,
            arrays,
            self.history_,
            self._shape,
            self._kind,
            rotations,
        )
        write_encoder(Path(path), model)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "FeatureEncoder":
        """The encoder in a file that `save` of this package or of `legacy` wrote.

        So is model.npz of a run. A file of replicas gives what `fit_ensemble` leaves.

        Raises:
          InputNotFoundError: there is no such file.
          InputError: it is not an encoder file, it is damaged, or its network is not an
            `MLP`.
        """
        model = read_encoder(Path(path))
        model.settings.pop("replicas", None)  # the number of its networks
        if other := sorted(model.settings.keys() - set(ENCODER_SETTINGS)):
            raise InputError(
                f"{path} has a network that FeatureEncoder does not have, by "
                f"{', '.join(f'`{name}`' for name in other)}: use `embedder embed`."
            )
        encoder = cls(**model.settings)
        encoder.classes_, encoder.history_ = model.classes, model.history
        encoder.n_features_in_ = math.prod(model.example_shape)
        layers = [layers_in(each) for each in model.replicas]
        shape, kind = model.example_shape, model.example_dtype
        encoder._set(layers, shape, kind, model.rotations)
        return encoder

    @property
    def _n_features_out(self) -> int:
        return self.layers_[-1][0].shape[0]

    @property
    def _dtype(self) -> str:
        """The dtype of the layers; the argument may have changed since."""
        return self.layers_[0][0].dtype.name

    def _set(
        self,
        networks: list[list[Layer]],
        shape: tuple[int, ...],
        kind: str,
        rotations: np.ndarray | None,
    ) -> None:
        """Keeps the layers of one network; with `rotations`, those of an ensemble."""
        self.layers_, self._shape, self._kind = networks[0], shape, kind
        self._ensemble: FeatureEnsemble | None = None
        if rotations is not None:
            config = self._config(replicas=len(networks))
            seeds = (each.run.seed for each in replicas_of(config))
            members = map(self._member, seeds, networks)
            self._ensemble = FeatureEnsemble([*members], rotations)

    def _member(self, seed: int, layers: list[Layer]) -> "FeatureEncoder":
        """The encoder of one network of the ensemble."""
        member = clone(self).set_params(seed=seed)
        for name in ("classes_", "history_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(member, name, getattr(self, name))
        member._set([layers], self._shape, self._kind, None)
        return member

    def _config(self, replicas: int = 1, bootstrap: bool = False) -> Config:
        arguments = {} if self.optimizer_args is None else self.optimizer_args
        if not isinstance(arguments, dict):
            raise InputTypeError(
                "`optimizer_args` must be a dict of values by their names, got "
                f"{arguments!r}."
            )
        return with_options(
            Config(),
            model="encoder",
            loader="memory",
            layers=() if self.layers is None else self.layers,
            optimizer=self.optimizer,
            optimizer_args=tuple(f"{k}={v}" for k, v in arguments.items()),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            epochs=self.epochs,
            validation_fraction=self.validation_fraction,
            seed=self.seed,
            workers=self.workers,
            dtype=self.dtype,
            replicas=replicas,
            bootstrap=bootstrap,
        )

    def _outputs(self, function, X) -> np.ndarray:
        x = features_for(self, X)
        arrays = arrays_of(self.layers_)
        return function(*load_encoder(MLP.of_arrays(arrays), arrays), x)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # the argument `dtype` decides
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "layers_")
