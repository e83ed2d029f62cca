"""Which splits can be left out before any search."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airsplit.core.arrays import Floats, Ints


def pareto_front(costs: Floats, always: NDArray[np.bool_]) -> Ints:
    """Columns of a (criteria × splits) table that no other column beats or equals in every criterion.

    Of equal columns the first stays.  A later column may replace an earlier one only where it is `always` allowed.

    >>> pareto_front(np.array([[1, 2, 3], [9, 9, 4]]), np.ones(3, dtype=bool)).tolist()
    [0, 2]
    """
    at = np.arange(costs.shape[1])
    no_worse = (costs[:, :, None] <= costs[:, None, :]).all(axis=0)
    better = (costs[:, :, None] < costs[:, None, :]).any(axis=0)
    earlier = at[:, None] < at[None, :]
    replaces = no_worse & (earlier | (better & always[:, None]))
    np.fill_diagonal(replaces, False)
    return np.flatnonzero(~replaces.any(axis=0))


def lower_hull(x: Floats, y: Floats) -> Ints:
    """Indices of the lower convex hull of points sorted by x, left to right.

    >>> lower_hull(np.array([0.0, 1, 2, 3]), np.array([9.0, 5, 4, 0])).tolist()
    [0, 1, 3]
    """
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) >= 2:
            o, p = hull[-2], hull[-1]
            if (x[p] - x[o]) * (y[i] - y[o]) - (y[p] - y[o]) * (x[i] - x[o]) > 0:
                break
            hull.pop()
        hull.append(i)
    return np.array(hull)
