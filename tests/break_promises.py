"""Break each promise of the core on purpose and see that its test fails: `make mutants`.

Works on a copy of the package and of the tests. Prints one line a promise and exits with 1 if
some break goes unnoticed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Break:
    promise: str
    file: str
    old: str
    new: str
    test: str


BREAKS = [
    Break(
        "1 exact restore",
        "perturbation.py",
        "        torch._foreach_copy_(*moved[-1])\n",
        "        for w, b in zip(*moved[-1]):\n            w.add_((w - b).neg())\n",
        "test_restore.py::test_the_weights_come_back_bit_for_bit_in_the_same_storage",
    ),
    Break(
        "1 same storage",
        "perturbation.py",
        "        torch._foreach_copy_(*moved[-1])\n",
        "        for w, b in zip(*moved[-1]):\n            w.data = b.clone()\n",
        "test_restore.py::test_the_weights_come_back_bit_for_bit_in_the_same_storage",
    ),
    Break(
        "2 nothing lost on error",
        "optimizer.py",
        "                yield\n            self._ascended = True\n        finally:\n",
        "                yield\n            self._ascended = True\n"
        "        except ZeroDivisionError:\n            raise\n        else:\n",
        "test_restore.py::test_an_exception_inside_perturbed_leaves_the_weights",
    ),
    Break(
        "2 a fault in the ascent",
        "perturbation.py",
        "        moved.append((block.weights, block.backups))\n"
        "        _add_scaled_(block.weights, block.gradients, scale)\n",
        "        _add_scaled_(block.weights, block.gradients, scale)\n"
        "        moved.append((block.weights, block.backups))\n",
        "test_restore.py::test_a_fault_at_any_operation_of_the_ascent_leaves_the_weights",
    ),
    Break(
        "2 never half-updated",
        "perturbation.py",
        "    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))\n",
        "",
        "test_restore.py::test_ctrl_c_during_the_ascent_leaves_the_weights_and_a_whole_average",
    ),
    Break(
        "2 Ctrl-C before it is held back",
        "optimizer.py",
        "                self._come_back()  # where Ctrl-C came before it was held back\n",
        "                pass\n",
        "test_restore.py::test_ctrl_c_at_any_line_leaves_the_weights",
    ),
    Break(
        "2 Ctrl-C before the context is left",
        "optimizer.py",
        "            self._come_back()  # where Ctrl-C came before the context could\n",
        "            pass\n",
        "test_restore.py::test_ctrl_c_at_any_line_leaves_the_weights",
    ),
    Break(
        "3 complete state: EMA",
        "memory.py",
        "                memory.averages[parameter] = average.detach().to"
        "(parameter.device, copy=True)\n",
        "                memory.averages[parameter] = average.detach() * 0\n",
        "test_state.py::test_a_run_resumed_in_a_new_process_is_the_run_that_did_not_stop",
    ),
    Break(
        "3 complete state: counters",
        "memory.py",
        "                memory.updates[parameter] = int(updates)\n",
        "                memory.updates[parameter] = 0\n",
        "test_state.py::test_every_method_resumes_bit_for_bit",
    ),
    Break(
        "3 complete state: EMA dtype",
        "memory.py",
        "average.detach().to(parameter.device, copy=True)",
        "average.detach().to(parameter, copy=True)",
        "test_state.py::test_the_average_is_loaded_in_the_dtype_it_was_saved_in",
    ),
    Break(
        "3 saving changes nothing",
        "optimizer.py",
        "        if not self._ascended and not self._only_creates_state():\n",
        "        if not self._ascended:\n",
        "test_distributed.py::test_fsdp2_saves_and_resumes_through_dcp",
    ),
    Break(
        "3 DCP: a bare step creates the EMA",
        "optimizer.py",
        "            self._climbers(self._climbing())  # loading goes into what is there\n",
        "            pass\n",
        "test_state.py::test_a_bare_step_creates_the_averages_and_takes_nothing_in",
    ),
    Break(
        "4 rho = 0 is the base",
        "optimizer.py",
        "            and any(self._radius(group) > 0 for group in groups)\n",
        "",
        "test_reductions.py::test_radius_zero_is_the_base_optimizer",
    ),
    Break(
        "4 sigma = 0 is SAM",
        "directions.py",
        "        torch._foreach_add_(gradients, away, alpha=-coefficient)\n",
        "        torch._foreach_add_(gradients, away, alpha=-coefficient - 1e-15)\n",
        "test_reductions.py::test_sigma_zero_is_sam",
    ),
    Break(
        "5 golden",
        "directions.py",
        "torch._foreach_lerp_(averages, gradients, 1 - self.decay)",
        "torch._foreach_lerp_(averages, gradients, 1 - self.decay + 1e-8)",
        "test_perturbation.py::test_the_perturbation_is_that_of_the_reference",
    ),
    Break(
        "6 geometry",
        "perturbation.py",
        "        td_squared = inner_product(block.gradients, t_squared)",
        "        td_squared = inner_product(t_squared, t_squared)",
        "test_perturbation.py::test_the_perturbation_lies_on_the_ball_and_climbs_most",
    ),
    Break(
        "7 zero direction",
        "perturbation.py",
        "    is_direction = (d_squared > noise_squared) & (td_squared > 0)\n",
        "    is_direction = td_squared > 0\n",
        "test_odd_gradients.py::test_a_direction_that_is_rounding_noise_counts_as_zero",
    ),
    Break(
        "7 not finite",
        "perturbation.py",
        "bool(sums.isfinite().all().item())",
        "bool(sums.isfinite().all().item()) or True",
        "test_odd_gradients.py::"
        "test_a_first_gradient_that_is_not_finite_moves_neither_weights_nor_average",
    ),
    Break(
        "7 low-precision norms",
        "blocks.py",
        "    return torch.promote_types(dtype, torch.float32)\n",
        "    return dtype\n",
        "test_perturbation.py::test_norms_of_low_precision_gradients_are_taken_in_float32",
    ),
    Break(
        "8 groups with rho 0",
        "optimizer.py",
        '            for parameter in group["params"] if rho > 0 else ():\n',
        '            for parameter in group["params"]:\n',
        "test_groups.py::test_a_group_with_radius_zero_is_neither_moved_nor_counted_nor_averaged",
    ),
    Break(
        "9 BatchNorm once a step",
        "optimizer.py",
        "        self._second_pass(closure, rewind=rewind, freeze_statistics=ascent is None)\n",
        "        self._second_pass(closure, rewind=rewind, freeze_statistics=False)\n",
        "test_batchnorm.py::test_the_pass_at_w_moves_the_statistics_and_the_other_does_not",
    ),
    Break(
        "9 BatchNorm with ascent=",
        "optimizer.py",
        "                first_pass.enter_context(frozen_statistics(self.model))\n",
        "",
        "test_batchnorm.py::test_with_another_ascent_only_the_descent_pass_moves_the_statistics",
    ),
    Break(
        "9 flags restored",
        "batchnorm.py",
        "    finally:\n",
        "    except ZeroDivisionError:\n        pass\n    else:\n",
        "test_batchnorm.py::test_flags_come_back_after_an_exception",
    ),
    Break(
        "10 dropout",
        "optimizer.py",
        "                rewind()\n",
        "                pass\n",
        "test_randomness.py::test_replay_gives_both_passes_the_same_masks",
    ),
    Break(
        "11 mixed precision",
        "perturbation.py",
        "            torch._foreach_mul_(block.gradients, inverse_scale.to(block.device))\n",
        "            pass\n",
        "test_mixed_precision.py::test_a_scale_that_changes_makes_no_difference",
    ),
    Break(
        "12 schedulers",
        "optimizer.py",
        "{**base.defaults, self.radius_key: float(rho), CLOCK: 0}",
        "{self.radius_key: float(rho), CLOCK: 0}",
        "test_training_loop.py::test_any_scheduler_drives_the_wrapper_as_it_drives_the_base",
    ),
    Break(
        "12 accumulation",
        "optimizer.py",
        "            parameter.grad = None\n",
        "            pass\n",
        "test_training_loop.py::test_a_closure_over_micro_batches_is_one_large_batch",
    ),
    Break(
        "13 DDP local",
        "optimizer.py",
        "                first_pass.enter_context(self.model.no_sync())",
        "                pass",
        "test_distributed.py::"
        "test_ddp_with_local_perturbations_keeps_equal_weights_and_averages_of_its_own",
    ),
    Break(
        "13 FSDP2",
        "blocks.py",
        "                torch.distributed.all_reduce(everywhere, group=process_group)\n",
        "                pass\n",
        "test_distributed.py::test_fsdp2_is_the_unsharded_run",
    ),
    Break(
        "14 one synchronisation",
        "perturbation.py",
        "    coefficient = direction.coefficient(blocks, inner)\n",
        "    coefficient = direction.coefficient(blocks, inner)\n    g_squared.item()\n",
        "test_lean.py::test_a_step_synchronises_with_the_host_at_most_once",
    ),
    Break(
        "14 memory between the passes",
        "perturbation.py",
        "        moved.append((block.weights, block.backups))\n",
        "        moved.append((block.weights, block.backups))\n"
        "        climb.kept = [*getattr(climb, 'kept', []), *block.gradients]\n",
        "test_lean.py::test_between_the_passes_there_are_only_the_copies_that_were_promised",
    ),
    Break(
        "15 clear errors",
        "checks.py",
        "    if not math.isfinite(value) or (at_least is not None and value < at_least):\n",
        "    if at_least is not None and value < at_least:\n",
        "test_errors.py::test_a_bad_argument_is_refused",
    ),
]


def is_noticed(change: Break) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "friendly_sam", copy / "friendly_sam")
        shutil.copytree(ROOT / "tests", copy / "tests")
        shutil.copy(ROOT / "pyproject.toml", copy)
        file = copy / "friendly_sam" / change.file
        text = file.read_text()
        if change.old not in text:
            raise SystemExit(f"{change.promise}: {change.file} has no longer {change.old!r}")
        file.write_text(text.replace(change.old, change.new))
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider"]
        run = subprocess.run(
            [*command, f"tests/{change.test}"],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
        )
        if run.returncode not in (0, 1):
            raise SystemExit(f"{change.promise}: the test did not run\n{run.stdout}{run.stderr}")
        return run.returncode == 1


def main() -> int:
    chosen = sys.argv[1:]
    unnoticed = 0
    for change in BREAKS:
        if chosen and not any(change.promise.startswith(word) for word in chosen):
            continue
        noticed = is_noticed(change)
        unnoticed += not noticed
        verdict = "fails, as it must" if noticed else "PASSES: the break goes unnoticed"
        print(f"{change.promise:36} {change.test.partition('::')[2]:88} {verdict}", flush=True)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
