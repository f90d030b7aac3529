"""Tolerances of the differences between port and oracle, each with its reason.

Integers, sampling tables and blocks are bit-exact and have no tolerance.
"""

TOLERANCE = {
    # Sums of some hundred terms in another order: a few units in the last place (2e-16,
    # 1e-7) of values up to about 10.
    ("loss", "float64"): 1e-12,
    ("loss", "float32"): 2e-6,
    ("row gradients", "float64"): 1e-12,
    ("row gradients", "float32"): 2e-6,
    ("one update", "float64"): 1e-12,
    ("one update", "float32"): 1e-6,
    # Differences of one update propagate, and grow where gradients are steep.
    ("100 updates", "float64"): 1e-10,
    ("100 updates", "float32"): 1e-5,
    # The same from the initial tables, in every replica.
    ("replicas", "float64"): 1e-10,
    ("replicas", "float32"): 1e-5,
    ("bootstrap", "float64"): 1e-10,
    ("bootstrap", "float32"): 1e-5,
    # Factors multiply the differences of an update, and are at most 1.
    ("row factors", "float64"): 1e-10,
    ("row factors", "float32"): 1e-5,
    ("model update", "float64"): 1e-10,
    ("model update", "float32"): 1e-5,
    # One mean of rows, in float64, which is rounded; all others are copies.
    ("start", "float64"): 1e-15,
    ("start", "float32"): 1e-7,
    # Rows of frequent tokens change in every second update, so rounding accumulates.
    # Measured on Wikipedia, largest difference after 2 M and 17 M words: float64 6e-14
    # and 2e-13 (CBOW 2 M: 2e-13), float32 3e-5 and 9e-5 (CBOW 2 M: 1e-4). The ratio of
    # the two is that of their units in the last place, 5e8: all of it is rounding. 1e-9
    # is promised for float64; float32 has ten times the largest measured difference.
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
    # Differences of the loss divided by 2e-6: its rounding error, 1e-13, and its
    # curvature.
    ("finite differences", "float64"): 1e-6,
    ("encoder one update", "float64"): 1e-12,
    ("encoder one update", "float32"): 1e-6,
    # Products of some ten terms, exponentials and roots; gradients have arcface's
    # 1 / sin(theta), which amplifies rounding for scores of nearly 1.
    ("objectives", "float64"): 1e-12,
    ("objectives", "float32"): 1e-4,
    # Relative to the largest value. Measured: in float64 1e-12 in the gradients of a
    # resnet of 50 layers, which pass 53 normalisations, and 3e-15 in the other small
    # networks; in float32 3e-6 there, which grows with the depth.
    ("networks", "float64"): 1e-11,
    ("networks", "float32"): 1e-3,
    # A unit near 0 may be active in one program only: rounding errors grow.
    ("encoder 100 updates", "float64"): 1e-11,
    ("encoder 100 updates", "float32"): 1e-4,
    ("adam's loss", "float32"): 2e-2,
    ("encoder epoch", "float64"): 1e-9,
    ("encoder epoch", "float32"): 1e-3,
    # One matrix product of unit vectors.
    ("neighbours", "float64"): 1e-12,
    ("neighbours", "float32"): 1e-5,
}
