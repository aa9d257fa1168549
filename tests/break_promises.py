"""Break each promise of the core on purpose and see that its test fails: `make mutants`.

Works on a copy of the package and of the tests, in which the named tests pass before anything is
broken. Prints one line a promise and exits with 1 if some break goes unnoticed. Words after the
command choose breaks by the beginning of their name: `python tests/break_promises.py 5 "14 t"`.
"""

import os
import shutil
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch.distributed.checkpoint  # noqa: F401 (imported once, for all children)

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Break:
    """In `file` of friendly_sam `old` becomes `new`, and then `test` fails."""

    promise: str
    file: str
    old: str
    new: str
    test: str


BREAKS = [
    # -- 1 exact restore
    Break(
        "1 exact restore",
        "perturbation.py",
        "            torch._foreach_copy_(*pair)\n",
        "            torch._foreach_add_(pair[0], torch._foreach_sub(*reversed(pair)))\n",
        "test_restore.py::test_the_weights_come_back_bit_for_bit_in_the_same_storage[SAM-dtype2]",
    ),
    Break(
        "1 same storage",
        "perturbation.py",
        "        for pair in back.values():\n            torch._foreach_copy_(*pair)\n",
        "        for parameter, backup in self._away:\n"
        "            parameter.data = backup.clone()\n",
        "test_restore.py::test_the_weights_come_back_bit_for_bit_in_the_same_storage[SAM-dtype0]",
    ),
    Break(
        "1 replaced data",
        "perturbation.py",
        "            self._away = self._ascend(self._moved)\n            self._moved.clear()\n",
        "            self._ascend(self._moved)\n",
        "test_core_defects.py::"
        "test_weights_come_back_where_their_data_was_replaced_inside[complex-a clone]",
    ),
    Break(
        "1 the others come back",
        "perturbation.py",
        "                lost.append((parameter, backup))\n                continue\n",
        "                raise RuntimeError(self._name(parameter))\n",
        "test_core_defects.py::test_a_weight_that_cannot_come_back_is_named_and_the_others_do",
    ),
    # -- 2 nothing lost on error
    Break(
        "2 an exception inside",
        "perturbation.py",
        "            self.end()\n        else:\n            self.give_up()\n",
        "            self.end()\n",
        "test_restore.py::test_an_exception_inside_perturbed_leaves_the_weights",
    ),
    Break(
        "2 a fault in the ascent",
        "ascent.py",
        "            moved.append((block.w, block.b))\n"
        "            inverse, skip = scale.on(block.w.device)\n"
        "            block.w.add_scaled_(u, inverse * block.rho, skip)\n",
        "            inverse, skip = scale.on(block.w.device)\n"
        "            block.w.add_scaled_(u, inverse * block.rho, skip)\n"
        "            moved.append((block.w, block.b))\n",
        "test_restore.py::test_a_fault_at_any_operation_of_the_ascent_leaves_the_weights[SAM-True]",
    ),
    Break(
        "2 an EMA is never half-updated",
        "perturbation.py",
        "            self._guard.holding = True\n"
        "            self._guard.on()\n"
        "            self.active = True\n",
        "            self.active = True\n",
        "test_restore.py::test_ctrl_c_during_the_ascent_leaves_the_weights_and_a_whole_average",
    ),
    Break(
        "2 every signal",
        "_machinery/interrupts.py",
        "            for number in _SIGNALS:\n",
        "            for number in (signal.SIGINT,):\n",
        "test_signals.py::"
        "test_a_signal_at_any_opcode_of_leaving_a_context_leaves_everything_as_it_was"
        "[perturbed()-SIGUSR1]",
    ),
    Break(
        "2 a signal on the way out",
        "_machinery/interrupts.py",
        "        if self.holding or _in_sealed(frame):\n",
        "        if self.holding:\n",
        "test_signals.py::"
        "test_a_signal_at_any_opcode_of_leaving_a_context_leaves_everything_as_it_was"
        "[perturbed()-SIGINT]",
    ),
    Break(
        "2 flags while entering",
        "batchnorm.py",
        "    @sealed\n    def __enter__(self) -> None:\n        try:\n"
        "            self._guard.holding = True\n",
        "    def __enter__(self) -> None:\n        try:\n",
        "test_signals.py::"
        "test_a_signal_at_any_opcode_of_entering_a_context_leaves_everything_as_it_was",
    ),
    Break(
        "2 handlers are put back",
        "_machinery/interrupts.py",
        "            if _handler(number) is self._wrapper:\n",
        "            if _handler(number) is handler:\n",
        "test_restore.py::test_ctrl_c_waits_until_the_weights_are_whole",
    ),
    # -- 3 complete state
    Break(
        "3 EMA",
        "_machinery/memory.py",
        "                parameter: tensor.detach().to(parameter.device, copy=True)\n",
        "                parameter: tensor.detach().to(parameter.device, copy=True).zero_()\n",
        "test_state.py::test_every_method_resumes_bit_for_bit[SGD-F-SAM]",
    ),
    Break(
        "3 count of updates",
        "_machinery/memory.py",
        "        self.updates, self._skipped, self._skipped_before = dict(updates), {}, {}\n",
        "        self.updates, self._skipped, self._skipped_before = {}, {}, {}\n",
        "test_state.py::test_every_method_resumes_bit_for_bit[SGD-F-SAM debiased]",
    ),
    Break(
        "3 clock",
        "_machinery/wrapper.py",
        "                group.setdefault(key, value)\n",
        "                group[key] = value\n",
        "test_relatives.py::test_what_looksam_and_a_policy_remember_resumes_bit_for_bit[LookSAM]",
    ),
    Break(
        "3 EMA dtype",
        "_machinery/memory.py",
        "tensor.detach().to(parameter.device, copy=True)",
        "tensor.detach().to(parameter, copy=True)",
        "test_state.py::test_the_average_is_loaded_in_the_dtype_it_was_saved_in",
    ),
    Break(
        "3 refused whole",
        "_machinery/wrapper.py",
        "        loaded = split_state_dict(state_dict, self.base, own)\n",
        "        self.memory.replace({}, {})\n"
        "        loaded = split_state_dict(state_dict, self.base, own)\n",
        "test_state.py::test_a_state_dict_that_does_not_fit_changes_nothing",
    ),
    Break(
        "3 a bare step creates the EMA",
        "optimizer.py",
        "        Gradients(self).create_memory()\n",
        "",
        "test_state.py::test_a_bare_step_creates_the_averages_and_takes_nothing_in[SGD]",
    ),
    Break(
        "3 DCP drops what a template lacks",
        "_machinery/memory.py",
        "            if EMA in own:\n",
        "            if EMA in own and parameter in self.updates:\n",
        "test_state.py::test_a_bare_step_creates_the_averages_and_takes_nothing_in[AdamW]",
    ),
    Break(
        "3 saving changes nothing",
        "optimizer.py",
        "        if not counts and not self.groups.only_creates_state():\n",
        "        if not counts:\n",
        "test_distributed.py::test_saving_a_fresh_optimizer_changes_nothing",
    ),
    Break(
        "3 what relatives remember",
        "_machinery/memory.py",
        "VECTORS = (EMA, PREVIOUS, COMPONENT)\n",
        "VECTORS = (EMA, PREVIOUS)\n",
        "test_relatives.py::test_what_looksam_and_a_policy_remember_resumes_bit_for_bit[LookSAM]",
    ),
    # -- 4 reductions
    Break(
        "4 rho = 0 is the base",
        "optimizer.py",
        "        if not any(self.groups.radius(group) > 0 for group in self.param_groups):\n",
        "        if not any(self.groups.radius(group) >= 0 for group in self.param_groups):\n",
        "test_reductions.py::test_radius_zero_is_the_base_optimizer[SAM-SGD]",
    ),
    Break(
        "4 sigma = 0 is SAM",
        "directions.py",
        "        return g.sub_(used, alpha=self._sigma(t, products))\n",
        "        return g.sub_(used, alpha=self._sigma(t, products) + 1e-15)\n",
        "test_reductions.py::test_sigma_zero_is_sam[SGD-geometry0-paper]",
    ),
    Break(
        "4 alpha = 0 is SAM",
        "descents.py",
        ".sub_(g, alpha=self.alpha)\n",
        ".sub_(g, alpha=self.alpha + 1e-15)\n",
        "test_relatives.py::test_special_settings_are_sam_bit_for_bit[alpha 0-SGD]",
    ),
    Break(
        "4 gamma = 1/2 is SAM",
        "descents.py",
        "        p.lerp_(g, 1 - k)\n",
        "        p.mul_(k).add_(g, alpha=1 - k + 1e-15)\n",
        "test_relatives.py::test_special_settings_are_sam_bit_for_bit[gamma 1/2-SGD]",
    ),
    # -- 5 golden, and the relatives
    Break(
        "5 F-SAM",
        "directions.py",
        "        weight = 1 - self.decay\n",
        "        weight = 1 - self.decay + 1e-8\n",
        "test_golden.py::test_golden_trajectory[friendly-sgd]",
    ),
    Break(
        "5 the authors' previous m",
        "directions.py",
        '        used = m.clone() if self.variant == "authors" else m\n',
        "        used = m\n",
        "test_golden.py::test_golden_trajectory[authors-friendly-sgd]",
    ),
    Break(
        "5 MSAM's sign",
        "_machinery/gradients.py",
        'source == "momentum" or group.get("maximize", False) else rho\n',
        'group.get("maximize", False) else rho\n',
        "test_golden.py::test_golden_trajectories_of_the_relatives",
    ),
    Break(
        "5 GSAM's projection",
        "descents.py",
        "        _, gp, pp = products\n",
        "        pp, gp, _ = products\n",
        "test_golden.py::test_golden_trajectories_of_the_relatives",
    ),
    Break(
        "5 LookSAM's skipped step",
        "descents.py",
        "        g.add_(v, alpha=self.alpha * _ratio(gg, vv).sqrt())\n",
        "        g.add_(v, alpha=self.alpha)\n",
        "test_golden.py::test_golden_trajectories_of_the_relatives",
    ),
    Break(
        "5 From",
        "policies.py",
        "        return step >= self.step\n",
        "        return step > self.step\n",
        "test_golden.py::test_golden_trajectories_of_the_relatives",
    ),
    Break(
        "5 Stale",
        "_machinery/gradients.py",
        "            self._descend()\n        self._at_w = {}\n        self._remember_gradient()\n",
        "            self._descend()\n        self._at_w = {}\n",
        "test_perturbation.py::"
        "test_a_stale_direction_is_that_of_the_gradient_the_previous_step_descended_by[False]",
    ),
    Break(
        "5 Randomly",
        "policies.py",
        '        return random.Random(f"{self.seed}-{step}").random() < self.p\n',
        "        return random.random() < self.p\n",
        "test_relatives.py::test_random_steps_are_the_same_on_every_process_and_after_a_resume",
    ),
    Break(
        "5 LargeGradients",
        "_machinery/gradients.py",
        "                group[MEAN], group[VARIANCE] = mean, variance\n",
        "                group[MEAN] = mean\n",
        "test_relatives.py::test_large_gradients_are_those_some_deviations_above_their_mean",
    ),
    Break(
        "5 davda54's norm",
        "compat.py",
        "    counts_radius_0 = True\n",
        "    counts_radius_0 = False\n",
        "test_first_edition_defects.py::"
        "test_the_groups_of_compat_are_those_of_davda54_or_refused[setting0]",
    ),
    # -- 6 geometry
    Break(
        "6 on the ball",
        "ascent.py",
        "        vv = squared_norm(v)\n        u = v.mul_(stretch)\n",
        "        u = v.mul_(stretch)\n        vv = squared_norm(u)\n",
        "test_perturbation.py::test_the_perturbation_is_that_of_the_reference[gradient-parameter]",
    ),
    Break(
        "6 tiny gradients",
        "_machinery/reductions.py",
        "not _SAFE[0] < found < _SAFE[1]:",
        "not found < _SAFE[1]:",
        "test_first_edition_defects.py::"
        "test_the_norm_is_the_radius_for_gradients_of_any_finite_size[SAM--23]",
    ),
    Break(
        "6 huge gradients",
        "_machinery/reductions.py",
        "not _SAFE[0] < found < _SAFE[1]:",
        "not _SAFE[0] < found:",
        "test_first_edition_defects.py::"
        "test_the_norm_is_the_radius_for_gradients_of_any_finite_size[SAM-20]",
    ),
    Break(
        "6 low precision",
        "_machinery/reductions.py",
        "torch._foreach_norm(tensors, 2, dtype=_widest(tensors.device))",
        "torch._foreach_norm(tensors, 2)",
        "test_perturbation.py::test_norms_of_low_precision_gradients_are_taken_in_float32[dtype0]",
    ),
    Break(
        "6 rounding is no direction",
        "ascent.py",
        "        known = known & (dd > noise)\n",
        "        pass\n",
        "test_odd_gradients.py::test_a_direction_that_is_rounding_noise_counts_as_zero[dtype0]",
    ),
    Break(
        "6 what is more than rounding is one",
        "ascent.py",
        "ROUNDING = 2\n",
        "ROUNDING = 16\n",
        "test_first_edition_defects.py::test_a_direction_in_bf16_is_kept_while_it_is_one[0.06]",
    ),
    # -- 7 odd gradients
    Break(
        "7 shared memory",
        "_machinery/blocks.py",
        "            alone[span[3]] = alone[last[3]] = False\n",
        "            pass\n",
        "test_odd_gradient_table.py::"
        "test_an_odd_gradient_does_what_a_clone_of_it_would_do[F-SAM-shared by autograd-plain]",
    ),
    Break(
        "7 conjugated",
        "_machinery/blocks.py",
        "torch.view_as_real(tensor.resolve_conj())",
        "torch.view_as_real(torch._conj_physical(tensor.resolve_conj()))",
        "test_odd_gradient_table.py::"
        "test_an_odd_gradient_does_what_a_clone_of_it_would_do[F-SAM-conjugated-plain]",
    ),
    Break(
        "7 not finite",
        "ascent.py",
        "        if looks and not finite:\n",
        "        if False:\n",
        "test_odd_gradients.py::"
        "test_a_first_gradient_that_is_not_finite_moves_neither_weights_nor_average[nan-F-SAM]",
    ),
    Break(
        "7 not finite on a skipped step",
        "_machinery/gradients.py",
        "        elif not squared.isfinite():\n            return\n",
        "",
        "test_odd_gradients.py::test_an_average_does_not_take_in_a_gradient_that_is_not_finite_on_"
        "a_skipped_step[paper]",
    ),
    Break(
        "7 zero direction",
        "ascent.py",
        "    known = (vv > _smallest(blocks)) & (vv + uu < INFINITY)\n",
        "    known = vv + uu < INFINITY\n",
        "test_odd_gradient_table.py::test_a_zero_gradient_perturbs_nothing[SAM-plain]",
    ),
    Break(
        "7 sparse",
        "_machinery/gradients.py",
        "            if gradient.layout != torch.strided:\n",
        "            if False:\n",
        "test_odd_gradients.py::test_a_sparse_gradient_is_refused_with_the_way_out",
    ),
    # -- 8 groups
    Break(
        "8 groups with rho 0",
        "_machinery/gradients.py",
        "            if gradient is None or (rho == 0 and not self.optimizer.counts_radius_0):\n",
        "            if gradient is None:\n",
        "test_groups.py::"
        "test_a_group_with_radius_zero_is_neither_moved_nor_counted_nor_averaged[F-SAM]",
    ),
    Break(
        "8 a radius set to 0 drops its EMA",
        "_machinery/gradients.py",
        "        self.memory.forget_all_but(self._kept())\n",
        "",
        "test_core_defects.py::test_a_radius_that_is_set_to_zero_drops_its_ema",
    ),
    Break(
        "8 several devices",
        "_machinery/tensors.py",
        "        if not self._tensors:\n",
        "        if True:\n",
        "test_first_edition_defects.py::test_parameters_may_lie_on_several_devices[F-SAM]",
    ),
    # -- 9 BatchNorm
    Break(
        "9 once a step",
        "optimizer.py",
        "            away = self._perturbed(freeze_statistics=ascent is None, rewind=rewind)\n",
        "            away = self._perturbed(freeze_statistics=False, rewind=rewind)\n",
        "test_batchnorm.py::test_the_pass_at_w_moves_the_statistics_and_the_other_does_not[SAM]",
    ),
    Break(
        "9 with ascent=",
        "optimizer.py",
        "frozen_statistics(self.model).run(torch.enable_grad()(ascent))",
        "torch.enable_grad()(ascent)()",
        "test_batchnorm.py::"
        "test_with_another_ascent_only_the_descent_pass_moves_the_statistics[SAM]",
    ),
    Break(
        "9 flags restored",
        "perturbation.py",
        "        self._statistics.thaw()\n",
        "",
        "test_batchnorm.py::test_flags_come_back_after_an_exception[2]",
    ),
    # -- 10 dropout
    Break(
        "10 dropout",
        "optimizer.py",
        "                rewind()\n",
        "                pass\n",
        "test_randomness.py::test_replay_gives_both_passes_the_same_masks[SAM]",
    ),
    # -- 11 mixed precision
    Break(
        "11 true gradients",
        "_machinery/gradients.py",
        "block.g.mul_(inverse) if block.owned else block.g.mul(inverse)\n",
        "block.g\n",
        "test_mixed_precision.py::test_a_scale_that_changes_makes_no_difference[F-SAM]",
    ),
    Break(
        "11 a skipped step loses nothing",
        "ascent.py",
        "            outcome.finite = False\n            return outcome\n",
        "            outcome.finite = False\n"
        "            for block in blocks:\n"
        "                direction.update(block.m, block.g, block.updates)\n"
        "            return outcome\n",
        "test_mixed_precision.py::test_an_overflow_loses_nothing[F-SAM-1]",
    ),
    Break(
        "11 unscale_ before",
        "_machinery/scaling.py",
        '        state["stage"] = OptState.READY\n',
        "        pass\n",
        "test_core_defects.py::test_unscaling_before_perturbed_is_right_or_refused",
    ),
    # -- 12 schedulers, clipping, accumulation
    Break(
        "12 schedulers",
        "_machinery/wrapper.py",
        "{**base.defaults, groups.key: float(rho), CLOCK: 0}",
        "{groups.key: float(rho), CLOCK: 0}",
        "test_training_loop.py::test_any_scheduler_drives_the_wrapper_as_it_drives_the_base"
        "[OneCycleLR-AdamW]",
    ),
    Break(
        "12 accumulation",
        "_machinery/gradients.py",
        "            parameter.grad = None\n",
        "            pass\n",
        "test_training_loop.py::test_a_closure_over_micro_batches_is_one_large_batch"
        "[SAM-settings0]",
    ),
    Break(
        "12 maximize",
        "_machinery/gradients.py",
        '"momentum" or group.get("maximize", False) else rho\n',
        '"momentum" else rho\n',
        "test_first_edition_defects.py::"
        "test_maximising_minus_the_loss_is_minimising_the_loss[SAM-SGD]",
    ),
    Break(
        "12 before_step",
        "optimizer.py",
        "            self.skip()\n        if before_step is not None:\n            before_step()\n",
        "            if before_step is not None:\n"
        "                before_step()\n"
        "            self.skip()\n"
        "            before_step = None\n"
        "        if before_step is not None:\n"
        "            before_step()\n",
        "test_first_edition_defects.py::"
        "test_an_ema_takes_in_gradients_that_are_not_clipped_on_skipped_steps_too[before_step]",
    ),
    Break(
        "12 skip() before clipping",
        "optimizer.py",
        "            self.last, self._seen = LastStep(), True\n",
        "            self.last, self._seen = LastStep(), False\n",
        "test_first_edition_defects.py::"
        "test_an_ema_takes_in_gradients_that_are_not_clipped_on_skipped_steps_too[skip]",
    ),
    # -- 13 distributed
    Break(
        "13 DDP global",
        "optimizer.py",
        "        apart = not self.sync_ascent and self.ascent_due\n",
        "        apart = self.ascent_due and hasattr(self.model, 'no_sync')\n",
        "test_distributed.py::"
        "test_ddp_with_the_global_perturbation_is_one_process_on_the_joined_batch",
    ),
    Break(
        "13 DDP local",
        "optimizer.py",
        "        apart = not self.sync_ascent and self.ascent_due\n",
        "        apart = False\n",
        "test_distributed.py::"
        "test_ddp_with_local_perturbations_keeps_equal_weights_and_averages_of_its_own",
    ),
    Break(
        "13 DDP local is refused for shards",
        "_machinery/checks.py",
        "    if any(is_sharded(parameter) for",
        "    if any(parameter is None for",
        "test_distributed.py::test_local_ascent_is_refused_for_sharded_parameters",
    ),
    Break(
        "13 FSDP2",
        "_machinery/reductions.py",
        "            torch.distributed.all_reduce(value, group=process_group)\n",
        "            pass\n",
        "test_distributed.py::test_fsdp2_is_the_unsharded_run",
    ),
    # -- 14 lean
    Break(
        "14 no needless sums",
        "ascent.py",
        "squared_norm(d) if stretch is None or direction.cancels else None",
        "squared_norm(d)",
        "test_lean.py::test_on_a_cpu_nothing_is_added_up_that_nobody_needs[ASAM-2]",
    ),
    Break(
        "14 a step makes nobody wait",
        "ascent.py",
        '    looks = not any(kind != "cpu" for kind in _kinds(blocks, device))\n',
        "    looks = True\n",
        "test_accelerator.py::"
        "test_a_step_makes_nobody_wait_and_takes_the_promised_memory[F-SAM-float32]",
    ),
    Break(
        "14 nor does a skipped one",
        "_machinery/gradients.py",
        '        if squared.device.type != "cpu":\n',
        '        if squared.device.type != "cpu" and squared.isfinite():\n',
        "test_accelerator.py::test_a_skipped_step_makes_nobody_wait[F-SAM]",
    ),
    Break(
        "14 temporaries",
        "ascent.py",
        "        scratch = [block.b] if block.b and not looks else []\n",
        "        scratch = []\n",
        "test_accelerator.py::"
        "test_a_step_makes_nobody_wait_and_takes_the_promised_memory[F-ASAM-float32]",
    ),
    Break(
        "14 layouts that a kernel refuses",
        "_machinery/tensors.py",
        "    if any(a.stride() != b.stride() for a, b in zip(x, y, strict=True)):\n",
        "    if False:\n",
        "test_accelerator.py::"
        "test_gradients_that_lie_otherwise_than_their_weights_are_taken[F-SAM-transposed]",
    ),
    Break(
        "14 memory between the passes",
        "_machinery/gradients.py",
        "        if self.descent.needs_gradient:\n            self._at_w =",
        "        if True:\n            self._at_w =",
        "test_lean.py::"
        "test_between_the_passes_there_are_only_the_copies_that_were_promised[SAM-1.0]",
    ),
    Break(
        "14 memory over steps",
        "_machinery/memory.py",
        "        backup, weight = self._backups.get(parameter), local(parameter)\n",
        "        backup, weight = self._backups.get(parameter), local(parameter)\n"
        "        self._vectors.setdefault(str(id(object())) + str(len(self._vectors)), {})\n",
        "test_lean.py::test_memory_does_not_grow_over_steps[SAM]",
    ),
    # -- 15 errors
    Break(
        "15 a number that is not finite",
        "_machinery/checks.py",
        "        not math.isfinite(number)\n        or (at_least",
        "        (at_least",
        "test_errors.py::test_a_bad_argument_is_refused",
    ),
    Break(
        "15 refused before the base is touched",
        "_machinery/assembled.py",
        "        checks.check_base(base)\n",
        "        checks.check_base(base)\n        super().__init__(base, rho)\n",
        "test_errors.py::test_a_refused_construction_leaves_the_base_as_it_was",
    ),
]


def copy_into(folder: Path) -> Path:
    """Copy what the tests need, with the reference data where they look for it."""
    copy = folder / "main"
    for name in ("friendly_sam", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    if (ROOT.parent / "shared").is_dir():
        (folder / "shared").symlink_to(ROOT.parent / "shared")
    return copy


def run_tests(copy: Path, *tests: str) -> tuple[int, str]:
    """The exit code of pytest and what it printed, in a child that has torch already."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            code = 3
            try:
                code = _pytest(copy, *tests)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read()


def _pytest(copy: Path, *tests: str) -> int:
    os.chdir(copy)
    # With CI hypothesis tries the same examples each time. A file is broken and mended within
    # a second, so that its bytecode could be taken for that of the other.
    os.environ |= {"PYTHONPATH": str(copy), "CI": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    sys.path[0] = str(copy)
    return pytest.main(
        ["-x", "-rs", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]
    )


def is_noticed(change: Break, copy: Path) -> bool:
    file = copy / "friendly_sam" / change.file
    text = file.read_text()
    if text.count(change.old) != 1:
        raise SystemExit(f"{change.promise}: {change.file} has not once {change.old!r}")
    file.write_text(text.replace(change.old, change.new))
    try:
        code, output = run_tests(copy, change.test)
    finally:
        file.write_text(text)
    if code not in (0, 1) or (code == 1 and "1 failed" not in output):
        raise SystemExit(f"{change.promise}: the test did not run\n{output}")
    return code == 1


def main(breaks: list[Break]) -> int:
    words = tuple(sys.argv[1:])
    chosen = [change for change in breaks if not words or change.promise.startswith(words)]
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_into(Path(folder))
        code, output = run_tests(copy, *dict.fromkeys(change.test for change in chosen))
        if code != 0 or "SKIPPED" in output:
            raise SystemExit(f"a test does not pass before anything is broken\n{output}")
        for change in chosen:
            noticed = is_noticed(change, copy)
            unnoticed += not noticed
            verdict = "fails, as it must" if noticed else "PASSES: the break goes unnoticed"
            print(f"{change.promise:36} {change.test.partition('::')[2]:108} {verdict}", flush=True)
    print(f"{len(chosen)} breaks, {unnoticed} of them unnoticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(BREAKS))
