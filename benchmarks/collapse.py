"""Why sharpness-aware fine-tuning collapses with frozen BatchNorm at the usual radius.

    python benchmarks/collapse.py ../shared/data/oxford-pets

SAM fine-tunes the last five blocks and the head of EfficientNet-Lite0 with BatchNorm frozen and in
training mode. For some radii it prints what the perturbation does to one batch, before training and
after some steps: the loss at w and at w + ε, the share of ReLU6 units at 0 and at 6, the root mean
square of the last features at w and how much larger it is at w + ε, and the parameters with most of
||ε||²; in the end the training loss and how many classes are still predicted.
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from friendly_sam import SAM
from friendly_sam.lab.data import Batches, load
from friendly_sam.lab.models.efficientnet_lite import (
    PIXEL_MEAN,
    PIXEL_STD,
    ConvNorm,
    efficientnet_lite0,
)
from friendly_sam.lab.models.freezing import freeze_batch_norm


class Watch:
    """Counts units at the ends of ReLU6, and the size of the activations, in one pass."""

    def __init__(self, network):
        self.layers = [m for m in network.modules() if isinstance(m, ConvNorm) and m.active]
        self.hooks = [m.register_forward_hook(self.look) for m in self.layers]
        self.reset()

    def reset(self):
        self.dead, self.full, self.sizes = [], [], []

    def look(self, module, inputs, output):
        self.dead.append((output <= 0).float().mean().item())
        self.full.append((output >= 6).float().mean().item())
        self.sizes.append(output.pow(2).mean().sqrt().item())


def measure(network, optimizer, images, labels, watch):
    """Print what the optimizer's perturbation does to a batch."""
    optimizer.zero_grad()
    watch.reset()
    loss = F.cross_entropy(network(images), labels)
    loss.backward()
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    dead, full, sizes = watch.dead, watch.full, watch.sizes
    watch.reset()
    with optimizer.perturbed():
        at_perturbed = F.cross_entropy(network(images), labels)
        at_perturbed.backward()
        moved = {n: (p.detach() - before[n]).norm().item() for n, p in network.named_parameters()}
    ratios = torch.tensor(watch.sizes) / torch.tensor(sizes)
    total = sum(value**2 for value in moved.values())
    shares = sorted(((v**2 / total, name) for name, v in moved.items()), reverse=True)[:3]
    norms = sum(s for s, name in ((v**2 / total, n) for n, v in moved.items()) if "norm" in name)
    print(
        f"    loss {loss:6.2f} -> {at_perturbed:8.2f}   at 0 {100 * mean(dead):4.1f} -> "
        f"{100 * mean(watch.dead):4.1f} %   at 6 {100 * mean(full):4.1f} -> "
        f"{100 * mean(watch.full):4.1f} %   last features {sizes[-1]:.3f}, x "
        f"{ratios[-1]:.2f}   BatchNorm {100 * norms:.0f} % of ||ε||²; "
        + ", ".join(f"{name} {100 * share:.0f} %" for share, name in shares)
    )
    optimizer.zero_grad()


def mean(values):
    return sum(values) / len(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, help="a folder of images or parquet files")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--blocks", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = load("pets", root=chosen.root, image_size=96, in_memory=True, train_size=480)
    data = type(data)(**{**vars(data), "mean": (PIXEL_MEAN,) * 3, "std": (PIXEL_STD,) * 3})
    batches = list(
        Batches(data.train, data, batch_size=32, train=True, channels_last=True).epoch(0)
    )
    for mode in ("frozen", "training"):
        for rho in (0.01, 0.05, 0.2):
            torch.manual_seed(0)
            whole = efficientnet_lite0(classes=len(data.classes))
            if mode == "frozen":
                freeze_batch_norm(whole)
            whole.train_only(chosen.blocks)
            whole.to(memory_format=torch.channels_last).train()
            whole[-1].dropout.p = 0.0
            features = [whole.features(batch.images) for batch in batches]
            network: nn.Module = whole.upper
            optimizer = SAM(
                torch.optim.AdamW(network.parameters(), lr=1e-3), rho=rho, model=network
            )
            watch = Watch(network)
            print(f"BatchNorm {mode}, radius {rho}")
            measure(network, optimizer, features[0], batches[0].labels, watch)
            for step in range(chosen.steps):
                turn = step % len(batches)

                def closure(turn=turn, network=network, optimizer=optimizer, features=features):
                    optimizer.zero_grad()
                    loss = F.cross_entropy(network(features[turn]), batches[turn].labels)
                    loss.backward()
                    return loss

                loss = optimizer.step(closure)
            measure(network, optimizer, features[0], batches[0].labels, watch)
            for hook in watch.hooks:
                hook.remove()
            network.eval()
            with torch.no_grad():
                found = torch.cat([network(feature).argmax(1) for feature in features[:4]])
            print(
                f"    after {chosen.steps} steps: training loss {loss:.2f}, "
                f"{len(found.unique())} classes predicted of {len(data.classes)}"
            )


if __name__ == "__main__":
    main()
