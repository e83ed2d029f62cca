"""ResponseNorm is torch's LocalResponseNorm, only quicker."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from airsplit.models.zoo.response_norm import ResponseNorm


@settings(max_examples=40)
@given(
    st.integers(1, 9), st.integers(1, 12), st.sampled_from([0.75, 0.5, 1.0]), st.integers(0, 2**31)
)
def test_it_computes_and_differentiates_what_torch_does(size, channels, beta, seed):
    rng = torch.Generator().manual_seed(seed)
    x = (3 * torch.randn(2, channels, 3, 4, generator=rng, dtype=torch.float64)).requires_grad_()
    y = x.detach().clone().requires_grad_()
    weights = torch.randn(2, channels, 3, 4, generator=rng, dtype=torch.float64)
    ours, theirs = (
        ResponseNorm(size, 0.1, beta, 2.0)(x),
        nn.LocalResponseNorm(size, 0.1, beta, 2.0)(y),
    )
    torch.testing.assert_close(ours, theirs)
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_it_can_be_vmapped():
    x = torch.randn(3, 2, 6, 4, 4)
    norm = ResponseNorm(5)
    torch.testing.assert_close(torch.vmap(norm)(x), torch.stack([norm(part) for part in x]))
    gradient = torch.func.vmap(torch.func.grad(lambda part: norm(part).sin().sum()))(x)
    torch.testing.assert_close(
        gradient,
        torch.stack([torch.func.grad(lambda part: norm(part).sin().sum())(part) for part in x]),
    )


@pytest.mark.parametrize("shape", [(2, 5, 7), (1, 1, 3, 3), (2, 4, 3, 3, 3)])
def test_it_takes_as_many_axes_as_torch(shape):
    x = torch.randn(shape)
    torch.testing.assert_close(ResponseNorm(3)(x), nn.LocalResponseNorm(3)(x))
