"""Would a pruner have chosen as well as the full search? From the trials that are recorded.

    fsam reproduce table1 cheaper --scale mini
    python benchmarks/pruning.py runs/reproduce/mini table1 cheaper

The trials of every contender are replayed in their order: after each epoch the mean validation
accuracy of the two seeds is reported to a pruner of Optuna, which may end the trial. What the
pruned search would choose is compared with what the full search chose: by validation accuracy at
the end (the full search is best by definition), and by the share of epochs that it would cost.
"""

import argparse
import statistics
from pathlib import Path

import optuna

from friendly_sam.lab.paper.experiments import experiment
from friendly_sam.lab.paper.results import collect
from friendly_sam.lab.paper.tuning import search

HALVING = optuna.pruners.SuccessiveHalvingPruner


PRUNERS = {
    "successive halving, first look after an eighth of training": lambda epochs: HALVING(
        min_resource=epochs // 8, reduction_factor=2
    ),
    "after a quarter": lambda epochs: HALVING(min_resource=epochs // 4, reduction_factor=2),
    "after half": lambda epochs: HALVING(min_resource=epochs // 2, reduction_factor=2),
    "median of the others, after a quarter": lambda epochs: optuna.pruners.MedianPruner(
        3, epochs // 4
    ),
    "after half of training": lambda epochs: optuna.pruners.MedianPruner(3, epochs // 2),
}


def curves(name, folder):
    """By task and contender, the mean validation accuracy of each trial over the epochs."""
    found = {}
    trials = search(experiment(name), "mini", folder / "runs")
    for cell in collect(trials, "mini", folder / "runs").cells:
        if cell.complete:
            lines = [run.series("validation_accuracy") for run in cell.runs.values()]
            mean = [statistics.fmean(values) for values in zip(*lines, strict=True)]
            found.setdefault((cell.cell.panel, cell.cell.method), []).append(mean)
    return found


def replay(trials, pruner):
    """Return the final accuracy of the trial that is chosen, and the share of epochs done."""
    study = optuna.create_study(direction="maximize", pruner=pruner(len(trials[0])))
    done, best = 0, 0.0
    for values in trials:
        trial = study.ask()
        for epoch, value in enumerate(values, start=1):
            trial.report(value, epoch)
            done += 1
            if epoch < len(values) and trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            study.tell(trial, values[-1])
            best = max(best, values[-1])
    return best, done / sum(map(len, trials))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("experiments", nargs="+")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found = {}
    for name in options.experiments:
        found |= curves(name, options.folder)
    found = {key: trials for key, trials in found.items() if len(trials) > 3}
    if not found:
        raise SystemExit(f"{options.folder} holds no finished search of {options.experiments}")
    print(f"{len(found)} searches, {sum(map(len, found.values()))} trials\n")
    print("| pruner | loses, mean | worst | chooses the same | epochs |\n|---|---:|---:|---:|---:|")
    for name, pruner in PRUNERS.items():
        pairs = [(max(t[-1] for t in trials), *replay(trials, pruner)) for trials in found.values()]
        losses = [full - best for full, best, _ in pairs]
        same = sum(loss == 0 for loss in losses)
        cost = statistics.fmean(share for *_, share in pairs)
        print(
            f"| {name} | {statistics.fmean(losses):.2f} | {max(losses):.2f} "
            f"| {same} of {len(pairs)} | {cost:.0%} |"
        )


if __name__ == "__main__":
    main()
