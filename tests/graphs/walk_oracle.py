"""Walks in plain Python, by the equations of ALGORITHM.md, with the same draws."""

import bisect
import itertools

import numpy as np

MASK = 2**64 - 1


def mix(x: int) -> int:
    """The output function of SplitMix64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def keys_of(seed: int, epoch: int) -> list[int]:
    """(60)."""
    sequence = np.random.SeedSequence([seed, epoch], spawn_key=(4,))
    return [int(key) for key in sequence.generate_state(5, np.uint64)]


def draws(key: int):
    """(60): all draws of the walk with this key."""
    for n in itertools.count(1):
        yield (mix((key + n * 0x9E3779B97F4A7C15) & MASK) >> 11) / 2**53


def start(number: int, num_nodes: int, per_node: int, keys: list[int]) -> int:
    """(61)."""
    total = num_nodes * per_node
    half = 1
    while 4**half < total:
        half += 1
    while True:
        left, right = number >> half, number % 2**half
        for key in keys:
            left, right = right, left ^ mix((key + right) & MASK) % 2**half
        number = left * 2**half + right
        if number < total:
            return number % num_nodes


def walk(
    rows: dict[int, dict[int, float]],
    node: int,
    length: int,
    p: float,
    q: float,
    key: int,
) -> list[int]:
    """(62) and (63); `rows` is node -> neighbour -> weight."""
    found, stream = [node], draws(key)
    while len(found) < length and rows[found[-1]]:
        row = rows[found[-1]]
        names = sorted(row)
        if len(found) == 1 or p == q == 1:
            found.append(names[propose(row, names, next(stream))])
            continue
        bias = biases(rows, names, found[-2], p, q)
        most, excess = max(1, 1 / q), 0.0
        if 1 / p > most:
            excess = row.get(found[-2], 0) * (1 / p - most)
        total = most * sum(row[name] for name in names)
        for _ in range(max(16, 2 * len(names))):
            draw = next(stream)
            if excess:
                draw = draw * (total + excess) - excess
                if draw < 0:
                    found.append(found[-2])
                    break
                draw /= total
            k = propose(row, names, draw)
            if next(stream) * most < bias[k]:
                found.append(names[k])
                break
        else:
            ends = [
                *itertools.accumulate(
                    row[x] * b for x, b in zip(names, bias, strict=True)
                )
            ]
            found.append(names[bisect.bisect(ends, next(stream) * ends[-1])])
    return found


def propose(row: dict[int, float], names: list[int], draw: float) -> int:
    """(62), by weights whose sums have no rounding errors."""
    ends = [*itertools.accumulate(row[name] for name in names)]
    return min(bisect.bisect(ends, draw * ends[-1]), len(ends) - 1)


def biases(rows, names: list[int], previous: int, p: float, q: float) -> list[float]:
    """(63): of each neighbour after `previous`."""
    return [
        1 / p if name == previous else 1 if name in rows[previous] else 1 / q
        for name in names
    ]
