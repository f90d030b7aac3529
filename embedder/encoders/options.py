"""Settings of encoders."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from embedder.errors import InputError, InputTypeError
from embedder.settings import (
    Rule,
    integer,
    integers,
    number,
    positive_finite,
    read_interval,
    setting,
    text,
    validate,
)


def _arguments(section, name: str) -> None:
    """Texts that `parse_arguments` reads, which become a tuple."""
    _texts("a list of NAME=VALUE")(section, name)
    parse_arguments(getattr(section, name), name)


def _texts(rule: str) -> Rule:
    """A list of texts, which becomes a tuple."""

    def check(section, name: str) -> None:
        values = getattr(section, name)
        if not isinstance(values, list | tuple) or not all(
            isinstance(each, str) for each in values
        ):
            raise InputTypeError(f"`{name}` must be {rule}, got {values!r}.")
        object.__setattr__(section, name, tuple(values))

    return check


def _network_arguments(section, name: str) -> None:
    """Texts NAME=VALUE, which the network reads."""
    _texts("a list of NAME=VALUE")(section, name)
    for each in getattr(section, name):
        if not all(each.partition("=")):
            raise InputError(f"`{name}` must be NAME=VALUE, got {each!r}.")


def _warmup(section, name: str) -> None:
    """0, a number of updates, or of epochs."""
    value = getattr(section, name)
    message = (
        f"`{name}` must be a number of updates as 500, or of epochs as 1epoch, got "
        f"{value!r}."
    )
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputTypeError(message)
    object.__setattr__(section, name, str(value))
    if str(value) == "0":
        return
    try:
        found = read_interval(str(value))
    except InputError:
        raise InputError(message) from None
    if min(found.updates, found.epochs) == math.inf:
        raise InputError(message)


class Steps(NamedTuple):
    """When and how far the learning rate of `rate_schedule` step falls."""

    boundaries: tuple[float, ...] = ()  # epochs; (): 1/2 and 3/4 of the updates
    factor: float = 0.1  # of the rate at each of them


def read_steps(texts: Iterable[str]) -> Steps:
    """The arguments of `rate_schedule` step, such as boundaries=30,60 and factor=0.2.

    Raises:
      InputError: there is no such argument, or a value is out of range.
    """
    found = Steps()
    for each in texts:
        name, _, value = each.partition("=")
        try:
            numbers = tuple(float(x) for x in value.split(","))
        except ValueError:
            numbers = ()
        rises = all(a < b for a, b in itertools.pairwise((0.0, *numbers, math.inf)))
        if name == "boundaries" and numbers and rises:
            found = found._replace(boundaries=numbers)
        elif name == "factor" and len(numbers) == 1 and 0 < numbers[0] < 1:
            found = found._replace(factor=numbers[0])
        else:
            raise InputError(
                "`schedule_args` must be boundaries=, rising epochs above 0 such as "
                f"30,60, or factor=, a number in (0, 1), got {each!r}."
            )
    return found


def _steps(section, name: str) -> None:
    _texts("a list of NAME=VALUE")(section, name)
    read_steps(getattr(section, name))


ARCFACE_SCALE = 16.0
"""Scale of the cosines of `objective` arcface, if none is given."""


def _not_negative(x: float) -> bool:
    return 0 <= x < math.inf


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """An encoder: network, training, and columns of the data."""

    default_optimizer: ClassVar[str] = "adam"
    best_needs: ClassVar[str] = "validation_fraction"
    """The option that `result` best and `patience` need."""
    scored_by: ClassVar[tuple[str, ...]] = ("validation_fraction",)
    """The options with which networks are evaluated."""

    network: Literal["auto", "mlp", "conv-small", "resnet", "wide-resnet", "vit"] = (
        setting("auto")
    )
    """The architecture. auto: conv-small for images of 8 x 8 or larger, unless --layers
    are given; else mlp."""
    network_args: tuple[str, ...] = setting((), _network_arguments)
    """Arguments of the network, e.g. depth=28 width=10 dropout=0.3."""
    layers: tuple[int, ...] = setting((), integers(1))
    """Widths of an mlp, from features to classes, e.g. 784 512 10; none: one hidden
    layer of 128."""
    embedding_size: int = setting(0, integer(0), also="vector_size")
    """Values of an embedding: of a linear layer after the network's last hidden layer;
    for an mlp the width of that layer. 0: the layer before the classes. On the command
    line --vector-size is the same."""
    objective: Literal["softmax", "supcon", "arcface", "triplet", "simclr"] = setting(
        "softmax"
    )
    """What is learned. softmax: cross entropy of the classes. arcface: the same with an
    angular margin. supcon: examples of a class are near, others far. triplet: with
    semi-hard negatives. simclr: two augmented views are near; it needs no labels."""
    objective_args: tuple[str, ...] = setting((), _arguments)
    """Arguments of the objective, e.g. temperature=0.1, margin=0.3 or smoothing=0.1."""
    augment: tuple[str, ...] = setting((), _texts("a list of NAME or NAME=VALUE"))
    """Random changes of the images while training, e.g. crop=4 flip."""
    class_weights: Literal["equal", "balanced"] = setting("equal")
    """balanced: the loss of an example is weighted by n / (C n_c), with n_c of the n
    training examples of its class."""
    optimizer_args: tuple[str, ...] = setting((), _arguments, is_per_model=True)
    """Arguments of the optimizer, e.g. momentum=0.9 nesterov=true."""
    learning_rate: float | None = setting(
        None, number("a finite number > 0", positive_finite), is_per_model=True
    )
    """Learning rate, the highest of the schedule; none: 0.01 for sgd, 0.0001 for lion,
    0.001 for others."""
    rate_schedule: Literal["auto", "constant", "cosine", "linear", "step"] = setting(
        "auto", also="schedule"
    )
    """How the learning rate falls: cosine or linear to 0; step: divided by 10 after 1/2
    and 3/4 of the updates. auto: constant for an mlp, cosine for other networks. On the
    command line --schedule is the same."""
    schedule_args: tuple[str, ...] = setting((), _steps)
    """Arguments of the schedule step: boundaries=30,60 are the epochs after which the
    rate falls, and factor=0.1 is by what it is multiplied then."""
    warmup: str = setting("0", _warmup)
    """Updates (500) or epochs (1epoch) in which the learning rate rises to its
    highest."""
    weight_decay: float = setting(0.0, number("a number >= 0", _not_negative))
    """Decay of weights; biases and norms have none. adamw and lion apply it apart from
    the gradient, other rules add it to the gradient."""
    clip_norm: float = setting(0.0, number("a number >= 0", _not_negative))
    """Largest norm of the gradient of all parameters; 0: any."""
    average: float = setting(0.0, number("a number in [0, 1)", lambda x: 0 <= x < 1))
    """Decay of an exponential moving average of the parameters, e.g. 0.999, with which
    the encoder is evaluated and saved; 0: the parameters themselves."""
    batch_size: int = setting(32, integer(1))
    """Examples per update. The last update of an epoch may have fewer."""
    micro_batches: int = setting(1, integer(1))
    """Parts in which an update computes its examples, to need less memory; the
    gradient is of all of them. It divides `batch_size`."""
    compute_dtype: Literal["same", "bfloat16"] = setting("same")
    """Type of the network's arithmetic. bfloat16: faster on a GPU; parameters, their
    updates and losses stay in `dtype`."""
    validation_fraction: float = setting(
        0.0, number("a number in [0, 1)", lambda x: 0 <= x < 1)
    )
    """Share of the examples, from the end, that is held out for validation."""
    precision: Literal["default", "high", "highest"] = setting("highest")
    """Precision of matrix products. highest: full float32. default: less on a GPU."""
    label: str = setting("label", text)
    """Column of a parquet file, or array of an npz file, that has the labels."""
    key: str = setting("", text)
    """Column of a parquet file that has the names of the rows; none: row numbers."""
    init_network: str = setting("", text, also="init_from")
    """Start from the parameters of this run or model file, where module and shape are
    the same. On the command line --init-from is the same."""
    freeze_modules: str = setting("", text, also="freeze")
    """Modules of the network that stay as they are: a pattern such as stem* or block_*
    over their names. On the command line --freeze is the same."""
    image_size: tuple[int, ...] = setting((), integers(1))
    """Height and width to scale images to; none: all must have the same size."""
    channels: Literal["auto", "1", "3"] = setting("auto")
    """Channels of image files: 1 (grey) or 3 (RGB). auto: 1 if all files are grey, else
    3."""
    decode: Literal["auto", "once", "each"] = setting(
        "auto", changes_vectors=False, is_per_host=True
    )
    """Decode image files once, into the cache, or each time they are used. auto: once,
    unless that would take more than half of the free space there."""

    def __post_init__(self):
        validate(self)
        if self.layers and len(self.layers) < 3:
            raise InputError(
                "`layers` must be three widths or more, from features to classes, got "
                f"{self.layers}."
            )
        if self.schedule_args and self.rate_schedule != "step":
            raise InputError(
                "`schedule_args` applies only to `rate_schedule` step, got "
                f"{' '.join(self.schedule_args)} with {self.rate_schedule}."
            )
        if self.batch_size % self.micro_batches:
            raise InputError(
                f"`micro_batches` must divide `batch_size` {self.batch_size}, got "
                f"{self.micro_batches}."
            )
        if len(self.image_size) not in (0, 2):
            raise InputError(
                f"`image_size` must be height and width, got {self.image_size}."
            )

    @property
    def needs_labels(self) -> bool:
        """Whether examples without labels are refused."""
        return self.objective != "simclr"

    def check_best(self) -> None:
        """Nothing: `best_needs` is all that the best is told by."""

    def check_optimizer(self, name: str) -> None:
        """Nothing: `optimizer_by_name` checks it later, since it imports optax."""


def parse_arguments(
    texts: Iterable[str], setting: str = "optimizer_args"
) -> dict[str, float | bool]:
    """The arguments in texts such as momentum=0.9 and nesterov=true.

    Raises:
      ValueError: one is not NAME=NUMBER, true or false.
    """
    arguments: dict[str, float | bool] = {}
    for each in texts:
        name, _, value = str(each).partition("=")
        word = {"true": True, "false": False}.get(value.lower())
        try:
            arguments[name] = float(value) if word is None else word
        except ValueError:
            raise InputError(
                f"`{setting}` must be NAME=VALUE, a number, true or false, got "
                f"{each!r}."
            ) from None
    return arguments
