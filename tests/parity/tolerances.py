"""How far the port may be from the oracle, each with its reason.

Integers, tables of draws and blocks are compared to the last bit, without a tolerance.
"""

TOLERANCE = {
    # One pass of sums of some hundred terms, in another order: a few units in the last
    # place (2e-16) of values up to about 10.
    ("gradient", "float64"): {"rtol": 1e-12, "atol": 1e-12},
    ("gradient", "float32"): {"rtol": 1e-5, "atol": 1e-6},
    ("update", "float64"): {"rtol": 1e-12, "atol": 1e-12},
    ("update", "float32"): {"rtol": 1e-5, "atol": 1e-6},
    # Differences of one update are carried on, and grow where gradients are steep.
    ("100 updates", "float64"): {"rtol": 1e-10, "atol": 1e-10},
    ("100 updates", "float32"): {"rtol": 1e-3, "atol": 1e-4},
}
