"""The top five Hessian eigenvalues of a ResNet-8, against curvlinops with scipy used plainly.

    pip install curvlinops-for-pytorch==3.0.1
    python benchmarks/eigenvalues.py --root CIFAR10_FOLDER

Same weights (one epoch of SGD), images, batches, start vector and tolerance (both sides stop
at ||H v - λ v|| <= tolerance |λ|). First single products, taken in turns, whose medians tell
what one costs; then whole computations, in turns, with their products counted. Times are of the
processor (all threads of this process), which hardly depend on what else the machine does.
"""

import argparse
import statistics
import time
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F

from friendly_sam.lab.data import Batches, load
from friendly_sam.lab.models import build
from friendly_sam.sharpness import Objective, top_eigenpairs


def problem(root, images, size):
    data = load("cifar10", root=root, train_size=images, test_size=10, image_size=size)
    torch.manual_seed(0)
    model = build("resnet8", classes=10, in_channels=3, image_size=data.image_size)
    stream = Batches(data.train, data, batch_size=128, train=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in stream.epoch(0):
        optimizer.zero_grad()
        F.cross_entropy(model(batch.images), batch.labels).backward()
        optimizer.step()
    plain = Batches(data.train, data, batch_size=250, train=False)
    return model.eval(), [(batch.images, batch.labels) for batch in plain.epoch(0)]


class Plain:
    """curvlinops' operator, handed to scipy's eigsh as its documentation shows."""

    def __init__(self, model, batches):
        from curvlinops import HessianLinearOperator

        parameters = [p for p in model.parameters() if p.requires_grad]
        loss = torch.nn.CrossEntropyLoss()
        self.operator = HessianLinearOperator(model, loss, parameters, batches)
        self.hessian = self.operator.to_scipy()

    def product(self, vector):
        return self.hessian @ vector.numpy()

    def eigenvalues(self, start, tolerance):
        from scipy.sparse.linalg import LinearOperator, eigsh

        count = 0

        def product(vector):
            nonlocal count
            count += 1
            return self.hessian @ vector

        size = self.hessian.shape[0]
        counted = LinearOperator((size, size), matvec=product, dtype=self.hessian.dtype)
        values, _ = eigsh(counted, k=5, which="LA", tol=tolerance, v0=start.numpy())
        return sorted(values.tolist(), reverse=True), count


def timed(function):
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="folder with CIFAR-10")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--products", type=int, default=5, help="single products a side")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")  # curvlinops scripts functions, which torch deprecates

    model, batches = problem(arguments.root, arguments.images, arguments.image_size)
    objective = Objective(model, F.cross_entropy, batches)
    plain = Plain(model, batches)
    start = objective.random_vector(torch.Generator().manual_seed(0))
    print(f"resnet8, {objective.dimension:,} weights, {objective.samples:,} images", flush=True)

    own_times, plain_times = [], []
    for _ in range(arguments.products):
        ours, seconds = timed(lambda: objective.hessian_product(start))
        own_times.append(seconds)
        theirs, seconds = timed(lambda: plain.product(start))
        plain_times.append(seconds)
    apart = float((ours - torch.from_numpy(theirs)).norm() / ours.norm())
    own, other = statistics.median(own_times), statistics.median(plain_times)
    print(
        f"one product: friendly_sam {own:.2f} s, curvlinops {other:.2f} s, "
        f"ratio {own / other:.2f}; results differ by {apart:.1e}",
        flush=True,
    )
    for round_ in range(1, arguments.rounds + 1):
        found, own = timed(lambda: top_eigenpairs(objective, 5, tolerance=arguments.tolerance))
        print(
            f"round {round_}: friendly_sam {own:.1f} s, {found.products} products, "
            f"converged {found.converged}: {_show(found.values.tolist())}",
            flush=True,
        )
        (values, count), other = timed(lambda: plain.eigenvalues(start, arguments.tolerance))
        print(
            f"round {round_}: curvlinops + scipy {other:.1f} s, {count} products: {_show(values)}\n"
            f"round {round_}: ratio of times {own / other:.2f}, of products "
            f"{found.products / count:.2f}",
            flush=True,
        )


def _show(values):
    return " ".join(f"{value:.5g}" for value in values)


if __name__ == "__main__":
    main()
