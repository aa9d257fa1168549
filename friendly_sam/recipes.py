"""The methods by their names. Each only assembles components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Unpack

from torch.optim import Optimizer

from friendly_sam.descents import Reused, SurrogateGap, Weighted
from friendly_sam.directions import Average, BatchNoise, Gradient, Variant
from friendly_sam.geometries import DiagonalFisher, Euclidean, Geometry, ParameterScaled
from friendly_sam.one_pass import Momentum
from friendly_sam.optimizer import Options, SharpnessAware
from friendly_sam.policies import Every


class SAM(SharpnessAware):
    """Sharpness-Aware Minimization (Foret et al., 2021): ε = ρ g / ||g||.

    Args:
        base: the base optimizer.
        rho: the radius (0.05, davda54/sam; the F-SAM paper uses 0.1 on CIFAR-10 and 0.2 on
            CIFAR-100).
        options: `model`, `when`, `sync_ascent`, `replay_rng` of `SharpnessAware`.

    Example:
        >>> import torch
        >>> from friendly_sam import SAM
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    """

    def __init__(self, base: Optimizer, rho: float = 0.05, **options: Unpack[Options]) -> None:
        super().__init__(base, rho, direction=Gradient(), **options)


class ASAM(SharpnessAware):
    """Adaptive SAM (Kwon et al., 2021): ε = ρ T² g / ||T g|| with T = |w| + η.

    Args:
        base: the base optimizer.
        rho: the radius (0.5, SamsungLabs/ASAM on CIFAR-10; the F-SAM paper's 2 and 4 belong to
            η = 0).
        eta: η (0.01, SamsungLabs/ASAM).
        only: which parameters are scaled, a predicate on their names; by default all.
        options: `model`, `when`, `sync_ascent`, `replay_rng` of `SharpnessAware`.

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
        geometry = ParameterScaled(eta, only)
        super().__init__(base, rho, direction=Gradient(), geometry=geometry, **options)


class FisherSAM(SharpnessAware):
    """Fisher SAM (Kim et al., 2022): ε = ρ T² g / ||T g|| with T² = 1 / (1 + η g²).

    Args:
        base: the base optimizer.
        rho: the radius (0.1, the F-SAM paper's section 6.1).
        eta: η.
        options: `model`, `when`, `sync_ascent`, `replay_rng` of `SharpnessAware`.

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
    """Friendly SAM (Li et al., 2024): along the noise of the batch, not the full gradient.

        m ← λ m + (1 - λ) g,   d = g - σ m,   ε = ρ d / ||d||      (the paper's algorithm 1)

    With another geometry it is F-ASAM or F-FisherSAM (appendix A4).

    Args:
        base: the base optimizer.
        rho: the radius (0.05; the paper uses SAM's: 0.1 on CIFAR-10, 0.2 on CIFAR-100, 0.075 on
            ImageNet and in transfer).
        sigma: σ, or "projection" (1.0, section 6.1).
        decay: λ (0.9; section 6.1 tunes it in {0.6, 0.9, 0.95}).
        variant: "paper", "authors" or "debiased", see `BatchNoise`.
        geometry: the neighbourhood.
        options: `model`, `when`, `sync_ascent`, `replay_rng` of `SharpnessAware`.

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
        direction = BatchNoise(sigma, decay, variant)
        super().__init__(base, rho, direction=direction, geometry=geometry, **options)


class VaSSO(SharpnessAware):
    """VaSSO (Li and Giannakis, 2023): along the EMA of the gradient, variance suppressed.

        m ← (1 - θ) m + θ g,   ε = ρ m / ||m||

    Args:
        base: the base optimizer.
        rho: the radius (0.1, the value of its experiments on CIFAR).
        theta: θ (0.4, likewise).
        options: `model`, `when`, `sync_ascent`, `replay_rng` of `SharpnessAware`.

    Example:
        >>> import torch
        >>> from friendly_sam import VaSSO
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = VaSSO(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    """

    def __init__(
        self, base: Optimizer, rho: float = 0.1, *, theta: float = 0.4, **options: Unpack[Options]
    ) -> None:
        super().__init__(base, rho, direction=Average(theta), **options)


class MSAM(SharpnessAware):
    """Momentum-SAM (Becker et al., 2024): against the base's momentum, in one pass.

        ε = -ρ v / ||v||,   v the momentum buffer of the base

    The closure is called once, at w + ε; by hand it is `with optimizer.perturbed(): ...` and
    `step()`, without a backward pass before.

    Args:
        base: the base optimizer, one with momentum.
        rho: the radius (0.3, the default of its code).
        options: `model`, `when`, `replay_rng` of `SharpnessAware`.

    Example:
        >>> import torch
        >>> from friendly_sam import MSAM
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = MSAM(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    """

    def __init__(self, base: Optimizer, rho: float = 0.3, **options: Unpack[Options]) -> None:
        super().__init__(base, rho, direction=Momentum(), **options)


class GSAM(SharpnessAware):
    """GSAM (Zhuang et al., 2022): SAM that also lowers the surrogate gap.

        u = g' - α (g - (<g,g'>/||g'||²) g')

    GSAM also ties the radius to the learning rate; `RadiusSchedule` can do that.

    Args:
        base: the base optimizer.
        rho: the radius (0.05, davda54/sam).
        alpha: α (0.4, the example of its code). 0 is SAM.
        options: `model`, `when`, `replay_rng` of `SharpnessAware`.

    Example:
        >>> import torch
        >>> from friendly_sam import GSAM
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = GSAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    """

    def __init__(
        self, base: Optimizer, rho: float = 0.05, *, alpha: float = 0.4, **options: Unpack[Options]
    ) -> None:
        super().__init__(base, rho, direction=Gradient(), descent=SurrogateGap(alpha), **options)


class WSAM(SharpnessAware):
    """WSAM (Yue et al., 2023), the coupled form: sharpness with a weight of its own.

        u = k g' + (1 - k) g,   k = γ/(1 - γ)

    Args:
        base: the base optimizer.
        rho: the radius (0.05, atorch).
        gamma: γ (0.9, atorch). 1/2 is SAM.
        options: `model`, `when`, `replay_rng` of `SharpnessAware`.

    Example:
        >>> import torch
        >>> from friendly_sam import WSAM
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = WSAM(torch.optim.SGD(model.parameters(), lr=0.1), gamma=0.8, model=model)
    """

    def __init__(
        self, base: Optimizer, rho: float = 0.05, *, gamma: float = 0.9, **options: Unpack[Options]
    ) -> None:
        super().__init__(base, rho, direction=Gradient(), descent=Weighted(gamma), **options)


class LookSAM(SharpnessAware):
    """LookSAM (Liu et al., 2022): an ascent every k-th step serves the steps between.

    Args:
        base: the base optimizer.
        rho: the radius (0.05, davda54/sam).
        every: k (5, the value of its main experiments).
        alpha: α (0.7, likewise).
        options: `model`, `replay_rng` of `SharpnessAware`; `when` in the place of `every`.

    Example:
        >>> import torch
        >>> from friendly_sam import LookSAM
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = LookSAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    """

    def __init__(
        self,
        base: Optimizer,
        rho: float = 0.05,
        *,
        every: int = 5,
        alpha: float = 0.7,
        **options: Unpack[Options],
    ) -> None:
        options.setdefault("when", Every(every))
        super().__init__(base, rho, direction=Gradient(), descent=Reused(alpha), **options)
