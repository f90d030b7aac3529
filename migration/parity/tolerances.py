"""How far the port may be from the oracle, each with its reason.

Integers, tables of draws and blocks are compared to the last bit, without a tolerance.
"""

TOLERANCE = {
    # Sums of some hundred terms, in another order: a few units in the last place
    # (2e-16, 1e-7) of values up to about 10.
    ("loss", "float64"): 1e-12,
    ("loss", "float32"): 2e-6,
    ("row gradients", "float64"): 1e-12,
    ("row gradients", "float32"): 2e-6,
    ("one update", "float64"): 1e-12,
    ("one update", "float32"): 1e-6,
    # Differences of one update are carried on, and grow where gradients are steep.
    ("100 updates", "float64"): 1e-10,
    ("100 updates", "float32"): 1e-5,
    # Rows of frequent tokens are updated in every other update, and no update forgets.
    # Measured on Wikipedia, largest entry after 2 M and 17 M words: float64 6e-14 and
    # 2e-13 (CBOW 2 M: 2e-13), float32 3e-5 and 9e-5 (CBOW 2 M: 1e-4). The two differ by
    # the ratio of their units in the last place, 5e8: rounding is all there is. 1e-9 is
    # what is promised; the bound of float32 is ten times the largest that was measured.
    ("whole epoch", "float64"): 1e-9,
    ("whole epoch", "float32"): 1e-3,
    ("resume", "float64"): 1e-9,
    ("resume", "float32"): 1e-3,
    # Encoders. Sums over a batch of some hundred products each; the loss is compared as
    # a mean, gradients as sums.
    ("encoder loss", "float64"): 1e-13,
    ("encoder loss", "float32"): 1e-5,
    ("encoder gradients", "float64"): 1e-12,
    ("encoder gradients", "float32"): 1e-5,
    # Differences of the loss over 2e-6: its rounding, 1e-13, and its bend, by that.
    ("finite differences", "float64"): 1e-6,
    ("encoder one update", "float64"): 1e-12,
    ("encoder one update", "float32"): 1e-6,
    # Where a unit is near 0 the two may take it for on and off: rounding grows.
    ("encoder 100 updates", "float64"): 1e-11,
    ("encoder 100 updates", "float32"): 1e-4,
    ("adam's loss", "float32"): 2e-2,
    ("encoder epoch", "float64"): 1e-9,
    ("encoder epoch", "float32"): 1e-3,
    # One matrix product of unit vectors.
    ("neighbours", "float64"): 1e-12,
    ("neighbours", "float32"): 1e-5,
}
