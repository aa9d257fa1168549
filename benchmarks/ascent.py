"""The optimizer's own arithmetic: entering and leaving `perturbed()`, against a plain loop.

    python benchmarks/ascent.py

Both sides run interleaved in one process on the same gradients; the ratio of medians is what
counts, for times depend on the machine. With `--threads 1` it is CPU time that is measured, so
that what else the machine does matters little.
"""

import argparse
import statistics
import time

import torch
from shapes import shapes

from friendly_sam import SAM, FriendlySAM


class PlainLoop:
    """F-SAM's ascent and restore, parameter by parameter, as the authors' code goes about it."""

    def __init__(self, parameters, rho, sigma=None, decay=0.9):
        self.parameters, self.rho, self.sigma, self.decay = parameters, rho, sigma, decay
        self.m, self.old = {}, {}

    @torch.no_grad()
    def run(self):
        for p in self.parameters:
            if self.sigma is None:
                continue
            gradient = p.grad.clone()
            if p in self.m:
                p.grad -= self.m[p] * self.sigma
                self.m[p] = self.m[p] * self.decay + gradient * (1 - self.decay)
            else:
                self.m[p] = gradient
        norm = torch.stack([p.grad.norm() for p in self.parameters]).norm()
        scale = self.rho / (norm + 1e-12)
        for p in self.parameters:
            self.old[p] = p.data.clone()
            p.add_(p.grad * scale)
        for p in self.parameters:
            p.data = self.old[p]


def library(optimizer):
    def run():
        with optimizer.perturbed():
            pass

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--networks", nargs="+", default=["resnet18", "vit_s"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    print(f"torch {torch.__version__}, {arguments.threads} threads, {arguments.rounds} rounds")
    header = ("network", "method", "parameters", "plain loop", "this library", "ratio")
    print("{:10}{:8}{:>12}{:>12}{:>14}{:>8}".format(*header))
    for network in arguments.networks:
        parameters = [torch.nn.Parameter(torch.randn(s) * 0.01) for s in shapes(network)]
        count = sum(p.numel() for p in parameters)
        base = torch.optim.SGD(parameters, lr=0.1)
        for name, ours, theirs in (
            ("SAM", SAM(base, 0.05), PlainLoop(parameters, 0.05)),
            ("F-SAM", FriendlySAM(base, 0.05), PlainLoop(parameters, 0.05, sigma=1.0)),
        ):
            gradients = [torch.randn_like(p) for p in parameters]
            times = {"plain": [], "ours": []}
            for _ in range(arguments.rounds + 3):
                for side, run in (("plain", theirs.run), ("ours", library(ours))):
                    for p, g in zip(parameters, gradients, strict=True):
                        p.grad = g.clone()
                    start = clock()
                    run()
                    times[side].append(clock() - start)
            plain, own = (1e3 * statistics.median(times[s][3:]) for s in ("plain", "ours"))
            print(f"{network:10}{name:8}{count:12,}{plain:9.1f} ms{own:11.1f} ms{own / plain:8.2f}")


if __name__ == "__main__":
    main()
