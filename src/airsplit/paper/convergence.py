r"""The paper's convergence expression and its rule for the deepest split L̂.

The theorem behind them is not true as stated. Take K = 2 devices with one scalar layer that stays
personal (ℓ = L = 1) and the losses F₁(w) = (w - 1)²/2, F₂(w) = (w + 1)²/2. Each device reaches its
own optimum, so the mean global loss (F₁ + F₂)/2 at the K models stays ½ above its minimum, while
the right-hand side goes to zero as T grows. The proof uses F_k(w̄_k) ≥ F*, which holds for one
common w̄, not for K personal ones. So the expression has its own name and is never called a bound.
Its message holds in words: the deeper the split, the less is averaged.
"""

from __future__ import annotations

import math

from airsplit.core.errors import InvalidValue, require_integer, require_number


def split_limit(*, limit: float, phi_squared: float, devices: int, layers: int) -> int:
    r"""Return L̂ by the paper's rule: the largest ℓ ≤ `layers` with ℓ (1 - 1/K) Φ² ≤ Φ̂².

    With one device, this is `layers`.

    Args:
        limit: Φ̂², the limit of the gradient term.
        phi_squared: Φ² = Z² + σ².
        devices: K.
        layers: L.

    >>> split_limit(limit=8.0, phi_squared=1.0, devices=20, layers=20)
    8
    """
    require_number("limit", limit, above=0)
    require_number("phi_squared", phi_squared, above=0)
    require_integer("devices", devices, low=1)
    require_integer("layers", layers, low=1)
    if devices == 1:
        return layers

    growth = (1 - 1 / devices) * phi_squared
    # A limit that is a multiple of the growth except for rounding allows that layer.
    deepest = math.floor(min(layers, limit / growth * (1 + 1e-12)))
    if deepest < 1:
        raise InvalidValue(
            f"limit must be at least (1 - 1/K)·phi_squared = {growth:g} to allow the first split, "
            f"got {limit:g}; raise it"
        )
    return deepest


def paper_convergence_expression(
    *,
    iterations: int,
    split: int,
    layers: int,
    devices: int,
    iterations_per_round: int,
    smoothness: float,
    strong_convexity: float,
    gradient_squared: float,
    gradient_variance: float,
    heterogeneity: float,
    initial_distance_squared: float,
) -> float:
    r"""Return the right-hand side of the paper's theorem. It is not a bound, see the module.

        α/(γ + T) · [2P/μ + μ(γ + 1)/2 · Δ₁],   α = β/μ,  γ = max(8α, E),
        P = 2(E-1)² L Z² + 6βΓ + ℓZ² + (L-ℓ)Z²/K + ℓσ² + (L-ℓ)σ²/K

    As the theorem states it; the appendix has 4βΓ for 6βΓ, and γ - 1 for γ.

    Args:
        iterations: T.
        split: Deepest split, ℓ = max ℓ_k.
        layers: L.
        devices: K.
        iterations_per_round: E.
        smoothness: β.
        strong_convexity: μ.
        gradient_squared: Z².
        gradient_variance: σ².
        heterogeneity: Γ.
        initial_distance_squared: Δ₁.

    >>> paper_convergence_expression(
    ...     iterations=0,
    ...     split=1,
    ...     layers=1,
    ...     devices=2,
    ...     iterations_per_round=1,
    ...     smoothness=1.0,
    ...     strong_convexity=1.0,
    ...     gradient_squared=1.0,
    ...     gradient_variance=0.0,
    ...     heterogeneity=0.0,
    ...     initial_distance_squared=0.0,
    ... )
    0.25
    """
    require_integer("iterations", iterations, low=0)
    require_integer("layers", layers, low=1)
    require_integer("split", split, low=0, high=layers)
    require_integer("devices", devices, low=1)
    require_integer("iterations_per_round", iterations_per_round, low=1)
    beta = require_number("smoothness", smoothness, above=0)
    mu = require_number("strong_convexity", strong_convexity, above=0)
    Z_squared = require_number("gradient_squared", gradient_squared, low=0)
    sigma2 = require_number("gradient_variance", gradient_variance, low=0)
    Gamma = require_number("heterogeneity", heterogeneity, low=0)
    distance2 = require_number("initial_distance_squared", initial_distance_squared, low=0)
    if mu > beta:
        raise InvalidValue(f"strong_convexity must be at most smoothness, got {mu:g} > {beta:g}")

    # The paper's letters, as in the equation above.
    E = iterations_per_round
    K = devices
    L = layers
    ell = split
    alpha = beta / mu
    gamma = max(8 * alpha, E)
    # ℓZ² + (L-ℓ)Z²/K + ℓσ² + (L-ℓ)σ²/K: averaging divides only the terms of the common layers by K.
    averaging = (ell + (L - ell) / K) * (Z_squared + sigma2)
    P = 2 * (E - 1) ** 2 * L * Z_squared + 6 * beta * Gamma + averaging
    return alpha / (gamma + iterations) * (2 * P / mu + mu * (gamma + 1) / 2 * distance2)
