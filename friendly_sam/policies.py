"""Policies: on which steps the weights are perturbed; on the others the base steps alone.

    Every            steps 0, k, 2k, ...                   SAM every k-th step
    From             steps n, n + 1, ...                   SAM in the late phase
    Randomly         each step with probability p          RST, SS-SAM
    LargeGradients   where ||g||² is large for its time    AE-SAM

A policy holds settings; what it has to remember is in the optimizer's parameter groups.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from friendly_sam._machinery.checks import check_count, check_number


class Policy(ABC):
    """On which steps the weights are perturbed."""

    looks_at_gradient: ClassVar[bool] = False
    """Whether it decides by ||g||², after the first pass; the host then waits for the device."""

    @abstractmethod
    def due(self, step: int) -> bool:
        """Whether the weights may be perturbed on this step, counted from 0."""

    def observe(
        self, squared_norm: float, mean: float, variance: float
    ) -> tuple[bool, float, float]:
        """Decide by ||g||²; return the decision and the new mean and variance."""
        return True, mean, variance

    @property
    def always(self) -> bool:
        """Whether every step is perturbed: what a captured graph can repeat."""
        return False


@dataclass(frozen=True)
class Every(Policy):
    """Steps 0, k, 2k, ...

    Args:
        k: the period; 1 is every step.

    Example:
        >>> from friendly_sam import Every
        >>> [step for step in range(7) if Every(3).due(step)]
        [0, 3, 6]
    """

    k: int = 1

    def __post_init__(self) -> None:
        check_count("k", self.k)

    def due(self, step: int) -> bool:
        """Whether k divides the step."""
        return step % self.k == 0

    @property
    def always(self) -> bool:
        """For k = 1."""
        return self.k == 1


@dataclass(frozen=True)
class From(Policy):
    """All steps from one on: SAM late in training (Zhou et al., 2024, arXiv 2410.10373).

    Args:
        step: the first step that is perturbed, counted from 0.

    Example:
        >>> from friendly_sam import From
        >>> From(100).due(99), From(100).due(100)
        (False, True)
    """

    step: int

    def __post_init__(self) -> None:
        check_count("step", self.step, at_least=0)

    def due(self, step: int) -> bool:
        """Whether the step is late enough."""
        return step >= self.step


@dataclass(frozen=True)
class Randomly(Policy):
    """Each step with probability p: RST and SS-SAM (Zhao et al., 2022).

    The draw depends on seed and step alone, so that all processes agree and a resumed run draws
    what the uninterrupted one does.

    Args:
        p: the probability (0.5, the value of its experiments).
        seed: the seed of the draws.

    Example:
        >>> from friendly_sam import Randomly
        >>> sum(Randomly(0.25).due(step) for step in range(1000))
        262
    """

    p: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("p", self.p, at_least=0, at_most=1)
        check_count("seed", self.seed, at_least=0)

    def due(self, step: int) -> bool:
        """Draw."""
        return random.Random(f"{self.seed}-{step}").random() < self.p


@dataclass(frozen=True)
class LargeGradients(Policy):
    """Where the gradient is large for its time: AE-SAM (Jiang et al., 2023).

        μ ← δ μ + (1 - δ) ||g||²,   s² ← δ s² + (1 - δ) (||g||² - μ)²
        perturb where ||g||² ≥ μ + c s

    AE-SAM moves c from 1 to -1 in the course of training; here it is constant. μ starts as the
    first ||g||².

    Args:
        c: how many deviations above the mean (0.0).
        decay: δ in [0, 1) (0.9, the value of its experiments).

    Example:
        >>> from friendly_sam import LargeGradients
        >>> LargeGradients(c=1.0)
        LargeGradients(c=1.0, decay=0.9)
    """

    c: float = 0.0
    decay: float = 0.9

    looks_at_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("c", self.c)
        check_number("decay", self.decay, at_least=0, below=1)

    def due(self, step: int) -> bool:
        """Any step may be perturbed."""
        return True

    def observe(
        self, squared_norm: float, mean: float, variance: float
    ) -> tuple[bool, float, float]:
        """Whether ||g||² ≥ μ + c s, and the new μ and s²."""
        if mean < 0:  # nothing was seen yet
            mean = squared_norm
        mean += (1 - self.decay) * (squared_norm - mean)
        variance += (1 - self.decay) * ((squared_norm - mean) ** 2 - variance)
        return squared_norm >= mean + self.c * variance**0.5, mean, variance
