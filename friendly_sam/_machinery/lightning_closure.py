"""Lightning hands `step` a closure of its own, which clips and has one micro-batch: say so."""

from __future__ import annotations

from functools import partial
from typing import Any

from friendly_sam._machinery.warn import warn

FROM = ("lightning.", "pytorch_lightning.")


def warn_of_lightning(closure: Any, told: set[str]) -> None:
    """Warn at the first step where Lightning's own closure makes one of the two passes wrong."""
    module = _module_behind(closure)
    if module is None or not module.automatic_optimization:
        return
    trainer, wrong = module.trainer, []
    if trainer.accumulate_grad_batches > 1:
        count = trainer.accumulate_grad_batches
        wrong.append(f"accumulate_grad_batches={count}: the second pass sees one batch of {count}")
    own = not type(module).configure_gradient_clipping.__module__.startswith(FROM)
    if own or trainer.gradient_clip_val is not None:
        what = "configure_gradient_clipping" if own else "gradient_clip_val"
        wrong.append(f"{what}: the gradient at w is clipped too, and with it the EMA")
    if wrong:
        name = type(module).__name__
        warn(
            f"Lightning without SharpnessAwareMixin is wrong with {'; '.join(wrong)}. Write "
            f"`class {name}(SharpnessAwareMixin, LightningModule)`, with the mix-in of "
            "friendly_sam.integrations.lightning.",
            told,
        )


def _module_behind(closure: Any) -> Any:
    """Return the LightningModule of a closure that a precision plug-in made; `None` otherwise."""
    if not isinstance(closure, partial) or not closure.args:
        return None
    plugin = getattr(closure.func, "__self__", None)
    if not type(plugin).__module__.startswith(FROM):
        return None
    module = closure.args[0]
    return module if hasattr(module, "automatic_optimization") else None
