"""Profile a model of your own, cut it anywhere, and check that both parts equal the whole."""

import torch
from torch import nn

import airsplit as air


class Residual(nn.Module):
    """A network with a shortcut, which nn.Sequential cannot express."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = x + torch.relu(self.body(x))
        return self.head(x.mean(dim=(2, 3)))


model = Residual()
images = torch.randn(4, 3, 32, 32)
profile = air.profile(model, (3, 32, 32))

for split, name in enumerate(profile.names, start=1):
    front, back = air.cut(model, split, input_shape=(3, 32, 32))
    activations = front(images)  # more than one tensor, if the cut crosses the shortcut
    same = torch.equal(back(*activations), model(images))
    macs = profile.macs[split - 1]
    elements = profile.activation_elements[split - 1]
    print(f"{name:8} {macs:9,} MAC on the device, {elements:6,} elements sent, same: {same}")
