"""The optimizer's own arithmetic, on chosen networks: `fsam bench arithmetic` without its files.

For example: `python benchmarks/ascent.py --networks resnet18 --threads 1`.
"""

import argparse

import torch

from friendly_sam.lab.bench.arithmetic import measure_arithmetic
from friendly_sam.lab.bench.report import text
from friendly_sam.lab.bench.shapes import TITLES


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--networks", nargs="+", choices=TITLES, default=["resnet18", "vit_s"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    found = measure_arithmetic(options.networks, rounds=options.rounds, threads=options.threads)
    print(text({"arithmetic": found}))


if __name__ == "__main__":
    main()
