"""The optimizer of an encoder: a rule of optax, its schedule, decay and clipping."""

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.config import Config
from embedder.config.encoder_options import EncoderOptions, parse_arguments, read_steps
from embedder.config.settings import read_interval
from embedder.engine.rules import optimizer_by_name, optimizers
from embedder.errors import InputError

RATES = {"sgd": 0.01, "lion": 1e-4}
"""Learning rate of a rule, if none is given."""

_OTHER_RATE = 1e-3  # of every other rule
_RATE = "learning_rate"
_STEPS = (0.5, 0.75)  # shares of the run after which `step` divides the rate by 10


def learning_rate(options: EncoderOptions, optimizer: str) -> float:
    """The highest learning rate: that of the settings, or the default of the rule."""
    if options.learning_rate is not None:
        return options.learning_rate
    return RATES.get(optimizer, _OTHER_RATE)


@dataclass(frozen=True)
class Schedule:
    """The share of the learning rate at each update."""

    kind: str
    warmup: int  # updates
    num_updates: int  # of the whole run, at least 1
    boundaries: tuple[float, ...]  # updates, of the kind `step`; (): `_STEPS`
    factor: float

    @classmethod
    def of(
        cls, options: EncoderOptions, num_updates: int, epoch_updates: int
    ) -> "Schedule":
        """That of the settings.

        Args:
          num_updates: of the whole run.
          epoch_updates: of an epoch.
        """
        warmup = 0.0
        if options.warmup != "0":
            interval = read_interval(options.warmup)
            updates, epochs = interval.updates, interval.epochs
            warmup = updates if updates < float("inf") else epochs * epoch_updates
        boundaries, factor = read_steps(options.schedule_args)
        return cls(
            *(options.rate_schedule, int(min(warmup, num_updates))),
            *(max(1, num_updates), tuple(x * epoch_updates for x in boundaries)),
            factor,
        )

    @property
    def is_constant(self) -> bool:
        """Whether the share is 1 at each update."""
        return self.kind == "constant" and not self.warmup

    def share(self, count: Any) -> Any:
        """The share before update `count`, from 0: by JAX, which may trace it, or of a
        number by NumPy, which compiles nothing.

        cosine: (1 + cos(pi x)) / 2 (Loshchilov and Hutter 2016, arXiv:1608.03983,
        without restarts) and linear: 1 - x, with x the part of the updates after
        warm-up that is done. step: 1, 0.1 and 0.01, from 1/2 and 3/4 of them on; or
        `factor` for each of the `boundaries` that are passed, updates of the whole run.
        In the warm-up it rises linearly to 1.
        """
        xp: Any = jnp if isinstance(count, jax.Array) else np
        count = xp.asarray(count, xp.result_type(float))
        rest = max(1, self.num_updates - self.warmup)
        done = xp.clip((count - self.warmup) / rest, 0, 1)
        match self.kind:
            case "cosine":
                share = (1 + xp.cos(xp.pi * done)) / 2
            case "linear":
                share = 1 - done
            case "step":
                passed = [done >= x for x in _STEPS]
                if self.boundaries:
                    passed = [count >= x for x in self.boundaries]
                share = self.factor ** xp.stack(passed).sum()
            case _:
                share = xp.ones_like(done)
        if not self.warmup:
            return share
        return xp.where(count < self.warmup, (count + 1) / self.warmup, share)


class Optimizer(NamedTuple):
    """A rule of optax after clipping and with weight decay; a key of caches.

    Networks trained side by side may differ in numbers of it, which a program reads
    from its batches. The others are constants, as in the program of a single network.
    """

    name: str
    learning_rate: float | None  # None: it is one of `varied`
    arguments: tuple[str, ...] = ()  # of the rule, without `varied`
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    schedule: Schedule | None = None  # None: the learning rate is constant
    varied: tuple[str, ...] = ()  # names of the P numbers that batches have
    custom: optax.GradientTransformation | None = None  # in place of the rule `name`

    def rule(self, rates: Any = ()) -> optax.GradientTransformation:
        """The optimizer with these `varied`, f[P]; JAX may trace them.

        Weight decay applies to weights, arrays of two axes or more; biases and scales
        of norms have none. Rules that have a decay of their own (adamw, lion) get it;
        for others it is added to the gradient.

        Raises:
          InputError: there is no such rule, or no such argument.
        """
        constructor = optimizers().get(self.name) if self.custom is None else None
        parameters = signature(constructor).parameters if constructor else {}
        has_decay = {"weight_decay", "mask"} <= {*parameters}
        rule, decay = self.custom, self.weight_decay
        if rule is None:
            arguments: dict[str, Any] = {**parse_arguments(self.arguments)}
            arguments |= zip(self.varied, rates, strict=True)
            rate, schedule = self.learning_rate, self.schedule
            rate = arguments.pop(_RATE) if rate is None else rate
            of_step: Any = rate
            if schedule is not None:
                of_step = lambda count: rate * schedule.share(count)  # noqa: E731
            if decay and has_decay:
                arguments |= {"weight_decay": self.weight_decay, "mask": is_weight}
            rule = optimizer_by_name(self.name, of_step, arguments)
        if decay and not has_decay:
            rule = optax.chain(optax.add_decayed_weights(decay, is_weight), rule)
        if self.clip_norm:
            rule = optax.chain(optax.clip_by_global_norm(self.clip_norm), rule)
        return rule


def is_weight(params: Any) -> Any:
    """Whether each array is a matrix or a kernel: True for those that decay."""
    return jax.tree.map(lambda array: array.ndim > 1, params)


def make_optimizer(
    config: Config,
    schedule: Schedule | None = None,
    varied: tuple[str, ...] = (),
    custom: optax.GradientTransformation | None = None,
) -> Optimizer:
    """The optimizer of the settings; of numbers that are `varied` it has none.

    Args:
      custom: in place of the rule that the settings name.
    """
    options, name = config.encoder, config.run.optimizer
    if schedule is not None and schedule.is_constant:
        schedule = None
    return Optimizer(
        name,
        None if _RATE in varied else learning_rate(options, name),
        tuple(x for x in options.optimizer_args if x.partition("=")[0] not in varied),
        *(options.weight_decay, options.clip_norm, schedule, varied, custom),
    )


def varied_rates(models: Sequence[Config]) -> dict[str, list[float]]:
    """The numbers in which the optimizers of K models differ, by name K each.

    Raises:
      InputError: they have other arguments, or numbers that cannot be traced.
    """
    each = [_numbers(model) for model in models]
    first = each[0]
    for numbers in each:
        if _kinds(numbers) != _kinds(first):
            raise InputError(
                "`optimizer_args` of networks trained side by side must have the same "
                f"names, got {first} and {numbers}."
            )
    names = [name for name in first if any(x[name] != first[name] for x in each)]
    if names:
        _check_traceable(make_optimizer(models[0], varied=tuple(names)))
    return {name: [x[name] for x in each] for name in names}


def _numbers(model: Config) -> dict[str, float | bool]:
    rate = learning_rate(model.encoder, model.run.optimizer)
    return {_RATE: rate, **parse_arguments(model.encoder.optimizer_args)}


def _kinds(numbers: dict[str, float | bool]) -> dict[str, bool | None]:
    """Numbers by their name; True and False, which change the program, by value."""
    return {n: x if isinstance(x, bool) else None for n, x in numbers.items()}


def _check_traceable(optimizer: Optimizer) -> None:
    def update(rates):
        rule, params = optimizer.rule(rates), {"w": jnp.zeros((4, 4))}
        return rule.update(params, rule.init(params), params)

    try:
        jax.eval_shape(update, jnp.zeros(len(optimizer.varied)))
    except (TypeError, ValueError) as error:
        names = " and ".join(f"`{name}`" for name in optimizer.varied)
        raise InputError(
            f"{names} of {optimizer.name!r} cannot differ between networks trained "
            "side by side: give --side-by-side 1."
        ) from error
