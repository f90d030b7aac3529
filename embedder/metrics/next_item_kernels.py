"""The loops of scores of what comes next, which Numba compiles."""

import numpy as np

from embedder.disk.compiled import compiled


@compiled
def nth_smallest(values, n):
    """values[n] if they were sorted; they are put in another order.

    Hoare 1961, Algorithm 65: find. `np.partition` takes seconds to compile.
    """
    low, high = 0, len(values) - 1
    while low < high:
        limit = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < limit:
                left += 1
            while values[right] > limit:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if n <= right:
            high = right
        elif n >= left:
            low = left
        else:
            break
    return values[n]


@compiled
def scores_of_nearest(
    sessions, queries, weights, norms, factors, by_distance, of_items, k, sample
):
    """The scores of `near_sessions`, as rows of a sparse matrix: their ends i64[m + 1],
    items i32[n] and values f32[n], >= 0.

    Args:
      sessions: a `near_sessions.Sessions`.
      queries: a `near_sessions.Queries`, of N items in all.
      weights: of the items of queries, f64[N], > 0.
      norms: what similarities of each query are divided by, f64[m].
      factors: of similarities with each session, f64[S].
      by_distance: factors by the distance from the last item in common in the session,
        f64[L]; of 0 items: a session counts 1 / step, see `VSKNN`.
      of_items: factors of each item, f64[V].
    """
    num_sessions, num_items, num_queries = len(factors), len(of_items), len(norms)
    is_by_step = len(by_distance) == 0
    product = np.zeros(num_sessions)
    place = np.empty(num_sessions, np.int32)  # of the newest item in common
    near = np.empty(num_sessions, np.int64)
    total, found = np.zeros(num_items), np.empty(num_items, np.int32)
    ends = np.zeros(num_queries + 1, np.int64)
    items, scores = np.empty(2**10, np.int32), np.empty(2**10, np.float32)
    for query in range(num_queries):
        count = 0
        for n in range(queries.ends[query], queries.ends[query + 1]):
            last = sessions.ends_having[queries.items[n] + 1]
            first = max(sessions.ends_having[queries.items[n]], last - sample)
            for entry in range(first, last):
                session = sessions.having[entry, 0]
                here = -queries.ages[n]
                if not is_by_step:
                    here = sessions.having[entry, 1]
                if product[session] == 0:
                    near[count] = session
                    count += 1
                    place[session] = here
                product[session] += weights[n]
                place[session] = max(place[session], here)
        if count > sample:
            newest = nth_smallest(near[:count].copy(), count - sample)
            all_found, count = count, 0
            for n in range(all_found):
                session = near[n]
                if session >= newest:
                    near[count] = session
                    count += 1
                else:
                    product[session] = 0
        similarity, keys = np.empty(count, np.float32), np.empty(count, np.int64)
        bits = similarity.view(np.int32)  # of positive floats, in the same order
        for n in range(count):
            session = near[n]
            similarity[n] = product[session] / norms[query] * factors[session]
            keys[n] = (np.int64(bits[n]) << 32) + session
            product[session] = 0
        least = np.int64(0)
        if count > k:
            least = nth_smallest(keys.copy(), count - k)
        touched, num_near = 0, 0
        for n in range(count):
            if keys[n] >= least:
                near[num_near], similarity[num_near] = near[n], similarity[n]
                num_near += 1
                touched += sessions.items[sessions.ends[near[n]], 0]
        # Here misses of the cache overlap, and in the loop below they would not, so all
        # takes half the time. This never breaks: without a use they would not be read.
        if touched < 0:
            break
        num_found = 0
        for n in range(num_near):
            session = near[n]
            for entry in range(sessions.ends[session], sessions.ends[session + 1]):
                if is_by_step:
                    value = similarity[n] / (1.0 - place[session])
                else:
                    distance = abs(sessions.items[entry, 1] - place[session])
                    value = similarity[n] * by_distance[distance]
                item = sessions.items[entry, 0]
                if total[item] == 0:
                    found[num_found] = item
                    num_found += 1
                total[item] += max(value, 1e-300)
        start = ends[query]
        while start + num_found > len(items):
            items = np.concatenate((items, np.empty_like(items)))
            scores = np.concatenate((scores, np.empty_like(scores)))
        for n in range(num_found):
            items[start + n] = found[n]
            scores[start + n] = total[found[n]] * of_items[found[n]]
            total[found[n]] = 0
        ends[query + 1] = start + num_found
    return ends, items[: ends[-1]], scores[: ends[-1]]


@compiled
def is_among_largest(columns, values, num):
    """Which of f32[n], > 0, are the `num` largest, of equal ones those with the lowest
    columns, bool[n]."""
    if len(values) <= num:
        return np.ones(len(values), np.bool_)
    keys = np.empty(len(values), np.int64)
    bits = values.view(np.int32)  # of positive floats, in the same order
    for n in range(len(values)):
        keys[n] = (np.int64(bits[n]) << 32) - columns[n]
    return keys >= nth_smallest(keys.copy(), len(values) - num)


@compiled
def largest_of_rows(ends, columns, values, num):
    """Which values of each row of a sparse matrix are its `num` largest, bool[n]."""
    is_kept = np.empty(len(values), np.bool_)
    for row in range(len(ends) - 1):
        part = slice(ends[row], ends[row + 1])
        is_kept[part] = is_among_largest(columns[part], values[part], num)
    return is_kept


@compiled
def two_steps(rows, ends, columns, values, num):
    """Of some rows of A A the `num` largest values, divided by their sum: ends
    i64[m + 1], columns i32[n] and values f32[n].

    Args:
      rows: i64[m].
      ends, columns, values: of the square sparse matrix A.
    """
    total = np.zeros(len(ends) - 1, np.float32)
    found = np.empty(len(ends) - 1, np.int32)
    ends_found = np.zeros(len(rows) + 1, np.int64)
    columns_found = np.empty(len(rows) * num, np.int32)
    values_found = np.empty(len(rows) * num, np.float32)
    size = 0
    for n in range(len(rows)):
        count = 0
        for first in range(ends[rows[n]], ends[rows[n] + 1]):
            between = columns[first]
            for second in range(ends[between], ends[between + 1]):
                column, value = columns[second], values[first] * values[second]
                if total[column] == 0 and value > 0:  # not found twice
                    found[count] = column
                    count += 1
                total[column] += value
        reached = total[found[:count]]
        total[found[:count]] = 0
        is_kept = is_among_largest(found[:count], reached, num)
        whole = reached[is_kept].sum()
        for place in range(count):
            if is_kept[place]:
                columns_found[size] = found[place]
                values_found[size] = reached[place] / whole
                size += 1
        ends_found[n + 1] = size
    return ends_found, columns_found[:size], values_found[:size]


@compiled
def add_to_rows(scores, ends, columns, values):
    """Adds the values of a sparse matrix, f32[n], to scores f[m, V]."""
    for row in range(len(ends) - 1):
        for n in range(ends[row], ends[row + 1]):
            scores[row, columns[n]] += values[n]
