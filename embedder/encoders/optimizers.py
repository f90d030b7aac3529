"""The optimizer of an encoder: a rule of optax, its schedule, decay and clipping."""

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.encoders.options import EncoderOptions, parse_arguments, read_steps
from embedder.engine.rules import optimizer_by_name, optimizers
from embedder.settings import read_interval

RATES = {"sgd": 0.01, "lion": 1e-4}
"""Learning rate of a rule, if none is given."""

_RATE = 1e-3  # of every other rule

_STEPS = (0.5, 0.75)  # shares of the run after which `step` divides the rate by 10
_FINAL = 0.0  # of cosine and linear, as a share of the rate


def learning_rate(options: EncoderOptions, optimizer: str) -> float:
    """The highest learning rate: that of the settings, or the default of the rule."""
    if options.learning_rate is not None:
        return options.learning_rate
    return RATES.get(optimizer, _RATE)


class Schedule:
    """The share of the learning rate at each update."""

    def __init__(self, options: EncoderOptions, num_updates: int, epoch_updates: int):
        """Args:
        num_updates: of the whole run.
        epoch_updates: of an epoch.
        """
        interval = read_interval(options.warmup) if options.warmup != "0" else None
        warmup = 0.0
        if interval is not None:
            updates, epochs = interval.updates, interval.epochs
            warmup = updates if updates < float("inf") else epochs * epoch_updates
        self.kind = options.rate_schedule
        self.warmup = int(min(warmup, num_updates))
        self.num_updates = max(1, num_updates)
        boundaries, self.factor = read_steps(options.schedule_args)
        self.boundaries = tuple(x * epoch_updates for x in boundaries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple:
        steps = self.boundaries, self.factor
        return (self.kind, self.warmup, self.num_updates, *steps)

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


def make_optimizer(
    name: str,
    rate: Any,
    arguments: Mapping[str, Any],
    options: EncoderOptions,
    schedule: Schedule | None = None,
) -> optax.GradientTransformation:
    """The rule `name` of optax, after clipping and with weight decay.

    Weight decay applies to weights, arrays of two axes or more; biases and scales of
    norms have none. Rules that have a decay of their own (adamw, lion) get it; for
    others it is added to the gradient.

    Raises:
      InputError: there is no such rule, or no such argument.
    """
    given: Any = rate
    if schedule is not None and not schedule.is_constant:
        given = lambda count: rate * schedule.share(count)  # noqa: E731
    if not (options.weight_decay and _has_decay(name)):
        return after_options(optimizer_by_name(name, given, arguments), options)
    decay = {"weight_decay": options.weight_decay, "mask": is_weight}
    rule = optimizer_by_name(name, given, {**arguments, **decay})
    return _after_clipping(rule, options)


def after_options(
    rule: optax.GradientTransformation, options: EncoderOptions
) -> optax.GradientTransformation:
    """`rule` after clipping and with the weight decay of the settings, which is added
    to the gradient."""
    if options.weight_decay:
        rule = optax.chain(
            optax.add_decayed_weights(options.weight_decay, is_weight), rule
        )
    return _after_clipping(rule, options)


def _after_clipping(
    rule: optax.GradientTransformation, options: EncoderOptions
) -> optax.GradientTransformation:
    if not options.clip_norm:
        return rule
    return optax.chain(optax.clip_by_global_norm(options.clip_norm), rule)


def _has_decay(name: str) -> bool:
    """Whether a rule has weight decay, with a mask, of its own."""
    rule = optimizers().get(name)
    names = inspect.signature(rule).parameters if rule else {}
    return {"weight_decay", "mask"} <= {*names}


def is_weight(params: Any) -> Any:
    """Whether each array is a matrix or a kernel: True for those that decay."""
    return jax.tree.map(lambda array: array.ndim > 1, params)


def arguments_of(options: EncoderOptions) -> dict[str, float | bool]:
    """The arguments of the rule in the settings."""
    return parse_arguments(options.optimizer_args)
