"""What a training loop may want to log of a step."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from friendly_sam.ascent import Outcome


class LastStep:
    """The last step, to read after it; nothing waits for the device before somebody looks."""

    def __init__(self) -> None:
        self.ascended = False
        """Whether the weights were perturbed, or would have been had there been a direction."""
        self.loss: Any = None
        """What the pass at w returned; None where there was none, or the loop ran it itself."""
        self.perturbed_loss: Any = None
        """What the pass at w + ε returned; None likewise."""
        self.outcome: Outcome | None = None

    def note(self, loss: Any, perturbed_loss: Any) -> None:
        """Keep what the passes returned, without their graphs."""
        self.loss, self.perturbed_loss = (
            value.detach() if isinstance(value, Tensor) else value
            for value in (loss, perturbed_loss)
        )

    @property
    def perturbation_norm(self) -> float:
        """||ε||; 0 where the weights were not perturbed."""
        return 0.0 if self.outcome is None else self.outcome.norm

    def __repr__(self) -> str:
        return (
            f"LastStep(ascended={self.ascended}, perturbation_norm={self.perturbation_norm:g}, "
            f"loss={self.loss}, perturbed_loss={self.perturbed_loss})"
        )
