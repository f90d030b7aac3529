"""Rules of updates in optax: capped SGD and row-wise Adagrad; optimizers by name.

A rule of tables takes what changes from update to update as extra arguments, so that
one compiled update serves all of them. `update_rows` and `update_dense` of
`embedder.tokens.train_step` give:

  rate          the learning rate, a scalar
  weights       c of each row of the gradients: the pair terms that have it
                (`update_dense`)
  shares        `RowRule.share` of these weights, which is computed once for all updates
                of a call (`update_rows`)
  row_ids       of summed rows: the row of the table that each gradient belongs to
  mean_columns  the mean over the D columns of a table, of values [..., columns here]

Rules work on gradients of rows and of whole tables alike: every leaf is [..., D], a row
last. To add a rule of rows, write a function here that wraps a transformation in a
`RowRule`, and name it in `config.token_objectives.OPTIMIZERS`.
"""

import difflib
import functools
import inspect
import math
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from embedder.config.token_objectives import OPTIMIZERS
from embedder.errors import InputError


class RowArray(NamedTuple):
    """An array that a rule keeps for each table, [V] or [V, D]: a value for each row.

    Its name in files is `TABLE_NAME`, such as input_accumulator.
    """

    name: str
    field: str  # of the optax state: it holds the tree of the tables
    minimum: float = -math.inf  # of its values, which are finite

    def of(self, table: str) -> str:
        """Its name in files for one table."""
        return f"{table}_{self.name}"


class RowRule(NamedTuple):
    """A rule for the rows of tables: a transformation, and the gradients that it needs.

    A rule that is linear in the gradient may be given one gradient for each occurrence
    of a row: the deltas of a row add up to that of the sum. All others need the sum
    over the occurrences of each row, once for each distinct row.
    """

    transformation: optax.GradientTransformationExtraArgs
    sums_rows: bool  # whether it needs summed rows, with their `row_ids`
    row_arrays: tuple[RowArray, ...] = ()
    share: Callable[[jax.Array], jax.Array] | None = None  # of a gradient, by weight
    with_cap: Callable[[Any], "RowRule"] | None = None
    """This rule with another cap, a scalar that JAX may trace; None: it has none."""
    has_kernel: bool = False
    """Whether the kernel has it, by its name as an optimizer; see `tokens.cpu`."""

    def row_state(self, opt_state: optax.OptState) -> dict[str, Any]:
        """The row arrays in a state of this rule, by `TABLE_NAME`."""
        return {
            array.of(table): values
            for array in self.row_arrays
            for table, values in _of_tables(opt_state, array).items()
        }

    def with_row_state(
        self, opt_state: optax.OptState, row_state: Mapping[str, Any]
    ) -> optax.OptState:
        """`opt_state` with the arrays of `row_state`, which are by `TABLE_NAME`."""
        for array in self.row_arrays:
            tables = _of_tables(opt_state, array)
            by_table = {table: row_state[array.of(table)] for table in tables}
            opt_state = optax.tree.set(opt_state, **{array.field: {"tables": by_table}})
        return opt_state


def _of_tables(opt_state: optax.OptState, array: RowArray) -> dict[str, Any]:
    return optax.tree.get(opt_state, array.field)["tables"]


def capped_sgd(cap: Any) -> RowRule:
    """row_r <- row_r - rate min(1, cap / c_r) gradient_r.

    `update` takes `rate`, a scalar, and `weights` or `shares`, shaped as the gradients
    less their last axis.
    """
    rule = optax.chain(cap_rows(cap), scale_by_rate())
    share = functools.partial(_share, cap=cap)
    return RowRule(
        rule, sums_rows=False, share=share, with_cap=capped_sgd, has_kernel=True
    )


def rowwise_adagrad(eps: float = 1e-8) -> RowRule:
    """Adagrad with one accumulator for each row r, and G_r its summed gradient.

        a_r <- a_r + mean_d G_rd^2
        row_r <- row_r - rate G_r / (sqrt(a_r) + eps)

    References: Duchi, Hazan and Singer 2011, JMLR 12, section 1; one accumulator for a
    row as in the embedding tables of DLRM, arXiv:1906.00091.
    """
    rule = optax.chain(scale_by_rowwise_adagrad(eps), scale_by_rate())
    accumulator = RowArray("accumulator", field="accumulators", minimum=0)
    return RowRule(rule, sums_rows=True, row_arrays=(accumulator,), has_kernel=True)


def row_rule(name: str, cap: float | None = None) -> RowRule:
    """The rule of an `optimizer` of tables; `cap` is `max_pairs_per_row`, which some
    have; None: no cap."""
    optimizer = OPTIMIZERS[name]
    make = pkgutil.resolve_name(optimizer.implementation)
    if optimizer.limits_pairs:
        return make(math.inf if cap is None else cap)
    return make()


class RowwiseAdagradState(NamedTuple):
    """The state of `scale_by_rowwise_adagrad`."""

    accumulators: Any  # the tree of the tables, with a_r, [V], in place of each [V, D]


ASCENDING: dict[str, Any] = {
    "indices_are_sorted": True,
    "unique_indices": True,
    "wrap_negative_indices": False,  # a negative id is of no row here
}
"""Of scatters and gathers by ascending, distinct ids."""
_EVERY_ROW = slice(None)


def scale_by_rowwise_adagrad(
    eps: float = 1e-8,
) -> optax.GradientTransformationExtraArgs:
    """Divides summed gradients G of rows by sqrt(a) + eps; see `rowwise_adagrad`.

    Accumulators start at 0. A row whose gradient is 0 keeps its accumulator, and its
    delta is 0. `update` takes, all with a default:

      row_ids: the tree of the gradients with the row of each, i32[M], distinct and
        ascending; ids out of range, negative ones too, have no row here: their
        accumulators are left out. None: gradients [V, D] of all rows.
      mean_columns: the mean over the columns of a table; None: all columns are here.
    """

    def init(params) -> RowwiseAdagradState:
        zeros = jax.tree.map(lambda table: jnp.zeros(len(table), table.dtype), params)
        return RowwiseAdagradState(zeros)

    def update(
        gradients, state, params=None, *, row_ids=None, mean_columns=None, **extra
    ):
        mean = mean_columns or (lambda values: values.mean(axis=-1))
        if row_ids is None:
            row_ids = jax.tree.map(lambda _: _EVERY_ROW, gradients)
        sums = jax.tree.map(
            lambda g, a, ids: plus_rows(a, ids, mean(g * g)),
            gradients,
            state.accumulators,
            row_ids,
        )
        scaled = jax.tree.map(
            lambda g, a, ids: g / (jnp.sqrt(rows_at(a, ids)) + eps)[..., jnp.newaxis],
            gradients,
            sums,
            row_ids,
        )
        return scaled, RowwiseAdagradState(sums)

    return optax.GradientTransformationExtraArgs(init, update)


def rows_at(array, ids):
    """`array[ids]` of ascending, distinct ids; 0 where one is out of range."""
    return array.at[ids].get(mode="fill", fill_value=0, **ASCENDING)


def plus_rows(array, ids, rows):
    """`array` with `rows` added at ascending, distinct ids; out of range: dropped."""
    return array.at[ids].add(rows, mode="drop", **ASCENDING)


def cap_rows(cap: Any) -> optax.GradientTransformationExtraArgs:
    """Scales the gradient of a row by min(1, cap / c).

    The weight c of a row is the number of pair terms that have it in this update: the
    sum of its gradients then counts as `cap` pairs at most. The extra argument
    `weights` holds c for each row of the gradients, or `shares` the factor.
    """

    def update(gradients, state, params=None, *, weights=None, shares=None, **extra):
        if shares is None:
            shares = jax.tree.map(lambda weight: _share(weight, cap), weights)

        def scale(gradient, share):
            return gradient * share.astype(gradient.dtype)[..., jnp.newaxis]

        return jax.tree.map(scale, gradients, shares), state

    return _stateless(update)


def _stateless(update: Callable) -> optax.GradientTransformationExtraArgs:
    return optax.GradientTransformationExtraArgs(
        lambda params: optax.EmptyState(), update
    )


def _share(weight, cap):
    return jnp.where(weight > cap, cap / weight, 1)


def scale_by_rate() -> optax.GradientTransformationExtraArgs:
    """Multiplies by minus the extra argument `rate`: gradients become deltas."""

    def update(gradients, state, params=None, *, rate, **extra):
        return jax.tree.map(lambda gradient: -rate * gradient, gradients), state

    return _stateless(update)


def linear_rate(progress, *, alpha: float, min_alpha: float):
    """Learning rate at `progress` in [0, 1], falling from `alpha` to `min_alpha`."""
    return alpha - (alpha - min_alpha) * progress


def optimizer_by_name(
    name: str, learning_rate: Any, arguments: Mapping[str, Any]
) -> optax.GradientTransformation:
    """optax.NAME(learning_rate, **arguments).

    Raises:
      ValueError: there is no such optimizer, or no such argument.
    """
    known = optimizers()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f", did you mean {near[0]!r}?" if near else f": {', '.join(known)}."
        raise InputError(f"`optimizer` must be one of optax, got {name!r}{hint}")
    parameters = inspect.signature(known[name]).parameters
    for argument in arguments:
        if argument not in parameters or argument == "learning_rate":
            names = ", ".join(n for n in parameters if n != "learning_rate")
            raise InputError(
                f"`optimizer_args` of {name!r} must be of {names}, got {argument!r}."
            )
    try:
        rule = known[name](learning_rate, **arguments)
    except (TypeError, ValueError) as error:
        raise InputError(f"`optimizer_args` of {name!r}: {error}") from error
    if callable(learning_rate):
        try:
            jax.eval_shape(rule.init, jnp.zeros(1))
        except TypeError as error:  # as of rprop, which makes an array of the rate
            raise InputError(
                f"`optimizer` {name!r} takes no schedule of its rate: give "
                "`rate_schedule` constant."
            ) from error
    return rule


_LEFT_OUT = "scale_by", "lbfgs", "noisy"
"""Parts of others; one that needs more than gradients; a state that is no arrays."""


def optimizers() -> dict[str, Callable[..., optax.GradientTransformation]]:
    """The functions of optax whose first argument, `learning_rate`, may be all.

    Without those that are parts of others, or ask for more than gradients.
    """
    by_name: dict[str, Callable[..., optax.GradientTransformation]] = {}
    for name, function in sorted(vars(optax).items()):
        if inspect.isfunction(function) and not name.startswith(_LEFT_OUT):
            first, *rest = [*inspect.signature(function).parameters.values(), None]
            needed = [p for p in rest if p and p.default is p.empty]
            if first and first.name == "learning_rate" and not needed:
                by_name[name] = function
    return by_name
