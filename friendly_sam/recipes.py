"""The methods by their names. Each only assembles a direction and a geometry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Unpack

from torch.optim import Optimizer

from friendly_sam.directions import BatchNoise, Gradient, Variant
from friendly_sam.geometries import DiagonalFisher, Euclidean, Geometry, ParameterScaled
from friendly_sam.optimizer import Options, SharpnessAware


class SAM(SharpnessAware):
    """Sharpness-Aware Minimization (Foret et al., 2021): ε = ρ g / ||g||.

    Args:
        base: the base optimizer.
        rho: the radius (0.05, davda54/sam; the F-SAM paper uses 0.1 on CIFAR-10 and 0.2 on
            CIFAR-100).
        options: `model`, `every`, `sync_ascent`, `replay_rng`, `fused` of `SharpnessAware`.

    Example:
        >>> import torch
        >>> from friendly_sam import SAM
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    """

    def __init__(self, base: Optimizer, rho: float = 0.05, **options: Unpack[Options]) -> None:
        super().__init__(base, rho, direction=Gradient(), geometry=Euclidean(), **options)


class ASAM(SharpnessAware):
    """Adaptive SAM (Kwon et al., 2021): ε = ρ T² g / ||T g|| with T = |w| + η.

    Args:
        base: the base optimizer.
        rho: the radius (0.5, SamsungLabs/ASAM on CIFAR-10; the F-SAM paper's 2 and 4 belong to
            η = 0).
        eta: η (0.01, SamsungLabs/ASAM).
        only: which parameters are scaled, a predicate on their names; by default all.
        options: `model`, `every`, `sync_ascent`, `replay_rng`, `fused` of `SharpnessAware`.

    Example:
        >>> import torch
        >>> from friendly_sam import ASAM
        >>> model = torch.nn.Linear(4, 2)
        >>> base = torch.optim.SGD(model.named_parameters(), lr=0.1)
        >>> optimizer = ASAM(base, only=lambda name: "weight" in name)  # as SamsungLabs does
    """

    def __init__(
        self,
        base: Optimizer,
        rho: float = 0.5,
        *,
        eta: float = 0.01,
        only: Callable[[str], bool] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            base, rho, direction=Gradient(), geometry=ParameterScaled(eta, only), **options
        )


class FisherSAM(SharpnessAware):
    """Fisher SAM (Kim et al., 2022): ε = ρ T² g / ||T g|| with T² = 1 / (1 + η g²).

    Args:
        base: the base optimizer.
        rho: the radius (0.1, the F-SAM paper's section 6.1).
        eta: η.
        options: `model`, `every`, `sync_ascent`, `replay_rng`, `fused` of `SharpnessAware`.

    Example:
        >>> import torch
        >>> from friendly_sam import FisherSAM
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = FisherSAM(torch.optim.AdamW(model.parameters()), model=model)
    """

    def __init__(
        self, base: Optimizer, rho: float = 0.1, *, eta: float = 1.0, **options: Unpack[Options]
    ) -> None:
        super().__init__(base, rho, direction=Gradient(), geometry=DiagonalFisher(eta), **options)


class FriendlySAM(SharpnessAware):
    """Friendly SAM (Li et al., 2024): climb along the noise of the batch, not the full gradient.

        m ← λ m + (1 - λ) g,   d = g - σ m,   ε = ρ d / ||d||      (the paper's algorithm 1)

    With another geometry it is F-ASAM or F-FisherSAM (appendix A4).

    Args:
        base: the base optimizer.
        rho: the radius (0.05; the paper uses SAM's: 0.1 on CIFAR-10, 0.2 on CIFAR-100, 0.075 on
            ImageNet and in transfer).
        sigma: σ, or "projection" (1.0, section 6.1).
        decay: λ (0.9; section 6.1 tunes it in {0.6, 0.9, 0.95}).
        variant: "paper", "authors" or "debiased", see `BatchNoise`.
        geometry: the shape of the ball.
        options: `model`, `every`, `sync_ascent`, `replay_rng`, `fused` of `SharpnessAware`.

    Example:
        >>> import torch
        >>> from friendly_sam import FriendlySAM, ParameterScaled
        >>> model = torch.nn.Linear(4, 2)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        >>> optimizer = FriendlySAM(base, rho=0.1, model=model)
        >>> f_asam = FriendlySAM(base, rho=2.0, geometry=ParameterScaled(eta=0.0))
    """

    def __init__(
        self,
        base: Optimizer,
        rho: float = 0.05,
        *,
        sigma: float | Literal["projection"] = 1.0,
        decay: float = 0.9,
        variant: Variant = "paper",
        geometry: Geometry = Euclidean(),  # noqa: B008 (holds settings only and is frozen)
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            base, rho, direction=BatchNoise(sigma, decay, variant), geometry=geometry, **options
        )
