"""How early can the radius be chosen? From the sweeps that `fsam reproduce` left behind.

    fsam reproduce table1 table2 figure3 --scale mini
    python benchmarks/half_way.py runs/reproduce/mini/runs

For each sweep (a task, a network, a method; three radii or more) and each seed, the radius that is
best on validation images after some share of training is taken, and its test accuracy at the end is
compared with that of the best radius in hindsight (by the mean over seeds). Beside it: one radius
for everything.
"""

import argparse
import statistics
from collections import defaultdict
from pathlib import Path

from friendly_sam.lab.records.run import is_run, read_run

SHARES = (0.1, 0.25, 0.5, 1.0)
FIXED = (0.05, 0.1, 0.2)


def sweeps(folders):
    """Runs by what they have in common, then by radius, then by seed."""
    found = defaultdict(lambda: defaultdict(dict))
    for folder in folders:
        for path in sorted(Path(folder).iterdir()):
            if not is_run(path):
                continue
            run = read_run(path)
            data, method = run.config.data, run.config.method
            plain = method.ascent_fraction == 1 and method.ascent_batches == method.every == 1
            plain = plain and method.layers == "all" and method.average == "full"
            if not run.finished or method.name not in ("sam", "fsam") or not plain:
                continue
            if method.name == "fsam" and method.decay != 0.9:
                continue
            size = (data.train_size, data.label_noise, data.batch_size)
            decay = run.config.base.weight_decay
            task = (data.name, *size, decay, run.config.model.name, method.name)
            found[task][method.rho][run.config.seed] = run
    return {task: sweep for task, sweep in found.items() if len(sweep) > 2}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", help="folders of runs")
    regret = defaultdict(list)
    for task, sweep in sweeps(parser.parse_args().folders).items():
        seeds = set.intersection(*(set(runs) for runs in sweep.values()))
        if not seeds:
            continue

        def end(rho, seed, sweep=sweep):
            return sweep[rho][seed].final("test_accuracy")

        mean = {rho: statistics.mean(end(rho, seed) for seed in seeds) for rho in sweep}
        best = max(mean.values())
        line = [" ".join(map(str, task)), f"n={len(seeds)}"]
        line += [f"{rho:g}: {value:.1f}" for rho, value in sorted(mean.items())]
        for share in SHARES:
            ends = []
            for seed in seeds:
                looks = {rho: sweep[rho][seed].series("validation_accuracy") for rho in sweep}
                at = max(1, round(share * len(next(iter(looks.values()))))) - 1
                ends.append(end(max(sorted(looks), key=lambda rho: looks[rho][at]), seed))
            regret[f"chosen after {share:.0%}"].append(statistics.mean(ends) - best)
        for rho in FIXED:
            if rho in mean:
                regret[f"always {rho:g}"].append(mean[rho] - best)
        print("  ".join(line))
    print(f"\n{'':20}{'mean':>8}{'worst':>8}{'sweeps':>8}   points against the best radius")
    for name, values in regret.items():
        mean, worst = statistics.mean(values), min(values)
        print(f"{name:20}{mean:8.1f}{worst:8.1f}{len(values):8}")


if __name__ == "__main__":
    main()
