"""Settings of encoders."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from embedder.config.settings import (
    Refusal,
    Rule,
    integer,
    integers,
    number,
    positive_finite,
    read_instance,
    read_interval,
    rule,
    setting,
    text,
    validate,
)
from embedder.errors import InputError


def _arguments(section, name: str) -> None:
    """Texts that `parse_arguments` reads, which become a tuple."""
    _texts("a list of NAME=VALUE")(section, name)
    parse_arguments(getattr(section, name), name)


def _texts(words: str) -> Rule:
    """A list of texts, which becomes a tuple."""
    return rule(
        words,
        lambda x: tuple(read_instance(y, str) for y in read_instance(x, list | tuple)),
    )


def _network_arguments(section, name: str) -> None:
    """Texts NAME=VALUE, which the network reads."""
    _texts("a list of NAME=VALUE")(section, name)
    for each in getattr(section, name):
        if not all(each.partition("=")):
            raise InputError(f"`{name}` must be NAME=VALUE, got {each!r}.")


def _widths(section, name: str) -> None:
    """Three integers or more, or none."""
    integers(1)(section, name)
    value = getattr(section, name)
    if value and len(value) < 3:
        raise InputError(
            f"`{name}` must be three widths or more, from features to classes, got "
            f"{value}."
        )


def _height_and_width(section, name: str) -> None:
    """Two integers, or none."""
    integers(1)(section, name)
    if len(value := getattr(section, name)) not in (0, 2):
        raise InputError(f"`{name}` must be height and width, got {value}.")


def _warmup(value: Any) -> str:
    """0, a number of updates, or of epochs."""
    if isinstance(value, bool):
        raise TypeError
    value = str(read_instance(value, str | int))
    if value != "0":
        interval = read_interval(value)
        if min(interval.updates, interval.epochs) == math.inf:
            raise ValueError
    return value


class Steps(NamedTuple):
    """When and how far the learning rate of `rate_schedule` step falls."""

    boundaries: tuple[float, ...] = ()  # epochs; (): 1/2 and 3/4 of the updates
    factor: float = 0.1  # of the rate at each of them


def read_steps(texts: Iterable[str]) -> Steps:
    """The arguments of `rate_schedule` step, such as boundaries=30,60 and factor=0.2.

    Raises:
      InputError: there is no such argument, or a value is out of range.
    """
    steps = Steps()
    for each in texts:
        name, _, value = each.partition("=")
        try:
            numbers = tuple(float(x) for x in value.split(","))
        except ValueError:
            numbers = ()
        rises = all(a < b for a, b in itertools.pairwise((0.0, *numbers, math.inf)))
        if name == "boundaries" and numbers and rises:
            steps = steps._replace(boundaries=numbers)
        elif name == "factor" and len(numbers) == 1 and 0 < numbers[0] < 1:
            steps = steps._replace(factor=numbers[0])
        else:
            raise InputError(
                "`schedule_args` must be boundaries=, rising epochs above 0 such as "
                f"30,60, or factor=, a number in (0, 1), got {each!r}."
            )
    return steps


def _steps(section, name: str) -> None:
    _texts("a list of NAME=VALUE")(section, name)
    read_steps(getattr(section, name))


_NETWORKS_PACKAGE = "embedder.encoders.networks"
NETWORKS = {
    "mlp": f"{_NETWORKS_PACKAGE}.mlp:MLP",
    "conv-small": f"{_NETWORKS_PACKAGE}.conv_small:ConvSmall",
    "resnet": f"{_NETWORKS_PACKAGE}.resnet:ResNet",
    "wide-resnet": f"{_NETWORKS_PACKAGE}.resnet:WideResNet",
    "vit": f"{_NETWORKS_PACKAGE}.vit:ViT",
}
"""The values of `network`, and their classes as `pkgutil.resolve_name` reads them."""


class EncoderObjective(NamedTuple):
    """What settings know of an objective of encoders."""

    implementation: str  # its class, as `pkgutil.resolve_name` reads it
    needs_labels: bool = True
    takes_mixtures: bool = False  # whether targets may be shares of classes, of mixup


OBJECTIVES = {
    "softmax": EncoderObjective(
        "embedder.encoders.objectives:Softmax", takes_mixtures=True
    ),
    "supcon": EncoderObjective("embedder.encoders.objectives:SupCon"),
    "arcface": EncoderObjective("embedder.encoders.objectives:ArcFace"),
    "triplet": EncoderObjective("embedder.encoders.objectives:Triplet"),
    "simclr": EncoderObjective("embedder.encoders.objectives:SimCLR", False),
}
"""The values of `objective`."""

if TYPE_CHECKING:
    _Network = str
    _Objective = str
else:
    _Network = Literal[("auto", *NETWORKS)]
    _Objective = Literal[tuple(OBJECTIVES)]


_MIXUP_OF_CLASSES = Refusal(
    lambda s: (
        not OBJECTIVES[s.objective].takes_mixtures
        and any(each.partition("=")[0] == "mixup" for each in s.augment)
    ),
    "`{name}` mixup applies only to `objective` softmax, got {s.objective}.",
)
_STEPS_ONLY = Refusal(
    lambda s: s.rate_schedule != "step",
    "`{name}` applies only to `rate_schedule` step, got {text} with {s.rate_schedule}.",
)
_DIVIDES_BATCH = Refusal(
    lambda s: s.batch_size % s.micro_batches,
    "`{name}` must divide `batch_size` {s.batch_size}, got {value}.",
)
_LABELS_NEEDED = Refusal(
    lambda s: not s.label and s.needs_labels,
    "`{name}` must be a name with `objective` {s.objective}, got ''.",
)


def _not_negative(x: float) -> bool:
    return 0 <= x < math.inf


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """An encoder: network, training, and columns of the data."""

    groups: ClassVar = {
        "network": "encoder: network",
        "objective": "encoder: what is learned",
        "optimizer_args": "encoder: updates",
        "validation_fraction": "encoder: validation, precision, labels",
        "init_network": "encoder: start from a network",
        "image_size": "encoder: images",
    }
    default_optimizer: ClassVar[str] = "adam"
    scored_by: ClassVar[tuple[str, ...]] = ("validation_fraction",)
    """The options with which networks are evaluated."""

    network: _Network = setting("auto")
    """The architecture. auto: conv-small for images of 8 x 8 or larger, unless --layers
    are given; else mlp."""
    network_args: tuple[str, ...] = setting((), _network_arguments)
    """Arguments of the network, e.g. depth=28 width=10 dropout=0.3."""
    layers: tuple[int, ...] = setting((), _widths)
    """Widths of an mlp, from features to classes, e.g. 784 512 10; none: one hidden
    layer of 128."""
    embedding_size: int = setting(0, integer(0), also="vector_size")
    """Values of an embedding: of a linear layer after the network's last hidden layer;
    for an mlp the width of that layer. 0: the layer before the classes."""
    objective: _Objective = setting("softmax")
    """What is learned. softmax: cross entropy of the classes. arcface: the same with an
    angular margin. supcon: examples of a class are near, others far. triplet: with
    semi-hard negatives. simclr: two augmented views are near; it needs no labels.
    Equations (23), (82) to (86)."""
    objective_args: tuple[str, ...] = setting((), _arguments)
    """Arguments of the objective, e.g. temperature=0.1, margin=0.3 or smoothing=0.1."""
    augment: tuple[str, ...] = setting(
        (), _texts("a list of NAME or NAME=VALUE"), refusals=(_MIXUP_OF_CLASSES,)
    )
    """Random changes of the images while training, e.g. crop=4 flip."""
    class_weights: Literal["equal", "balanced"] = setting("equal")
    """balanced: the loss of an example is weighted by n / (C n_c), with n_c of the n
    training examples of its class. Equation (82)."""
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
    and 3/4 of the updates. auto: constant for an mlp, cosine for other networks."""
    schedule_args: tuple[str, ...] = setting((), _steps, refusals=(_STEPS_ONLY,))
    """Arguments of the schedule step: boundaries=30,60 are the epochs after which the
    rate falls, and factor=0.1 is by what it is multiplied then."""
    warmup: str = setting(
        "0", rule("a number of updates as 500, or of epochs as 1epoch", _warmup)
    )
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
    micro_batches: int = setting(1, integer(1), refusals=(_DIVIDES_BATCH,))
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
    label: str = setting("label", text, refusals=(_LABELS_NEEDED,))
    """Column of a parquet file, or array of an npz file, that has the labels."""
    key: str = setting("", text)
    """Column of a parquet file that has the names of the rows; none: row numbers."""
    init_network: str = setting("", text, also="init_from")
    """Start from the parameters of this run or model file, where module and shape are
    the same."""
    freeze_modules: str = setting("", text, also="freeze")
    """Modules of the network that stay as they are: a pattern such as stem* or block_*
    over their names."""
    image_size: tuple[int, ...] = setting((), _height_and_width)
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

    @property
    def needs_labels(self) -> bool:
        """Whether examples without labels are refused."""
        return OBJECTIVES[self.objective].needs_labels

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
