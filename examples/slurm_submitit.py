"""A grid of trainings as Slurm jobs through submitit.

`python examples/slurm_submitit.py` runs them as processes of this machine;
`python examples/slurm_submitit.py --cluster slurm --partition gpu` queues them as one job array.
The folder must be one that all machines see. Needs the extras lab and cluster.
"""

import argparse
import itertools

import cloudpickle
import digits
import plain_torch
import submitit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", choices=("local", "slurm"), default="local")
    parser.add_argument("--partition", help="the Slurm partition")
    parser.add_argument("--folder", default="runs/submitit", help="for logs and results")
    parser.add_argument("--at-once", type=int, default=2, help="jobs of the array at a time")
    parser.add_argument("--epochs", type=int, default=digits.EPOCHS)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()

    for module in (digits, plain_torch):  # not installed, so jobs could not import them
        cloudpickle.register_pickle_by_value(module)
    executor = submitit.AutoExecutor(folder=options.folder, cluster=options.cluster)
    executor.update_parameters(timeout_min=30)
    if options.cluster == "slurm":
        executor.update_parameters(
            cpus_per_task=2,
            slurm_partition=options.partition,
            slurm_array_parallelism=options.at_once,
        )
    grid = list(itertools.product((0.0, 0.2, 0.4), range(options.seeds)))
    radii, seeds = zip(*grid, strict=True)
    if options.cluster == "slurm":
        jobs = executor.map_array(plain_torch.train, radii, [options.epochs] * len(grid), seeds)
        results = [job.result() for job in jobs]
    else:  # the local executor starts everything at once, so hand it few jobs at a time
        results = []
        for start in range(0, len(grid), options.at_once):
            part = grid[start : start + options.at_once]
            jobs = [
                executor.submit(plain_torch.train, rho, options.epochs, seed) for rho, seed in part
            ]
            results += [job.result() for job in jobs]
    for rho, group in itertools.groupby(zip(grid, results, strict=True), lambda each: each[0][0]):
        values = [result for _, result in group]
        name = f"F-SAM, rho {rho}" if rho else "SGD"
        print(f"{name}: {sum(values) / len(values):.1f} % right (n={len(values)})")


if __name__ == "__main__":
    main()
