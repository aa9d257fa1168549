"""`fused=True`: the ascent in two passes over memory, compiled.

The foreach path reads and writes some tensors more often than the mathematics asks for. For large
tensors two kernels, compiled by `torch.compile`, do with the least:

    measure   reads g, m (and w where T needs it), gives ||g||², ||d||² and ||T d||²
    move      reads g, m, w and writes m, the backup of w, and w + ε

That is 32 bytes a parameter for F-SAM in float32. `measure` writes nothing, so gradients that are
not finite leave the averages alone.

Before it is used, each kernel is compared with what it was compiled from, and the backup bit for
bit: torch 2.13 compiles `backup.copy_(w); w.add_(...)` to a kernel that stores w + ε in both. So
the backup is w times a one that the compiler does not know to be one.

The kernels see a tensor as rows of `WIDTH` numbers: one compilation serves every length, and the
sum of a row needs no summation tree. A call costs as much as some hundred kilobytes of arithmetic,
so there are kernels for several tensors (`TOGETHER`). Small tensors, what does not fill a row,
plain SAM, and steps that have no kernel go the foreach way.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any

import torch
import torch._dynamo
from torch import Tensor
from torch.nn import Parameter

from friendly_sam.blocks import WIDTH, Block, Climber, local
from friendly_sam.directions import Direction, Gradient
from friendly_sam.geometries import Euclidean, Geometry
from friendly_sam.perturbation import Moved
from friendly_sam.warn import warn

Tensors = list[Tensor]
Averages = list[Tensor] | list[None]

LEAST = 2**16
"""Elements below which the call of a kernel costs more than it saves."""

MOST = 2**31
"""Elements from which on a kernel for a GPU would need longer indices."""

TOGETHER = (8, 1)
"""How many tensors one call can take: most first."""


class Kernel:
    """A function of lists of tensors, compiled; the last list holds constants.

    It is called without torch.compile's look at every argument, which takes twice as long as the
    rest of the call. So whoever calls sees to it that nothing but the lengths differs from the
    tensors it was compiled with: `Kernels.take` and `_key` do.
    """

    def __init__(self, function: Callable[..., Any], *lists: Sequence[Tensor | None]) -> None:
        """Compile by a call with tensors that nobody needs.

        Row i of each list has the length of row i of the first, and no other row has it.
        """
        from torch._inductor.compile_fx import compile_fx

        calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

        def backend(graph: Any, inputs: Any) -> Callable[..., Any]:
            # Lengths are compared below, in a third of the time.
            compiled: Any = compile_fx(graph, inputs, config_patches={"size_asserts": False})

            def noted(*arguments: Any) -> Any:
                calls.append((compiled, arguments))
                return compiled(*arguments)

            return noted

        for tensor in (tensor for tensors in lists[:-1] for tensor in tensors):
            if tensor is not None:
                torch._dynamo.mark_dynamic(tensor, 0)
        # torch.compile counts recompilations by code object: each kernel gets one of its own.
        own = FunctionType(
            function.__code__.replace(), function.__globals__, function.__name__, None,
            function.__closure__,
        )  # fmt: skip
        torch.compile(own, fullgraph=True, backend=backend)(*lists)
        if not calls:
            raise SwitchedOffError("torch.compile is switched off")
        self._compiled, arguments = calls[0]
        calls.clear()  # torch.compile keeps `noted`, and that the tensors
        place = {id(row): (n, i) for n, rows in enumerate(lists) for i, row in enumerate(rows)}
        lengths, numbers = len(lists), len(lists) + 1  # two more lists, see __call__
        place |= {len(row): (lengths, i) for i, row in enumerate(lists[0]) if row is not None}
        self._numbers: list[Any] = []
        """Numbers of a direction or a geometry, where torch.compile made arguments of them."""
        self._places: list[tuple[int, int]] = []
        """Of each argument of the compiled function, its list and its place there."""
        for argument in arguments:
            key = argument if isinstance(argument, int) else id(argument)
            if key not in place:
                place[key] = (numbers, len(self._numbers))
                self._numbers.append(argument)
            self._places.append(place[key])

    def __call__(self, *lists: Sequence[Any]) -> Any:
        """The tensors that the function gives, in one list."""
        lengths = [row.size(0) for row in lists[0]]
        for rows in lists[1:-1]:
            if rows[0] is not None and [row.size(0) for row in rows] != lengths:
                raise RuntimeError("tensors that belong together have different lengths")
        found = (*lists, lengths, self._numbers)
        return self._compiled(*[found[n][i] for n, i in self._places])


class SwitchedOffError(RuntimeError):
    """torch.compile compiles nothing, because somebody said so."""


Pair = tuple[Kernel, Kernel]
"""The two passes: measure and move."""


class Kernels:
    """The two passes for one direction and one geometry, compiled for what comes along."""

    def __init__(self, direction: Direction, geometry: Geometry) -> None:
        self._direction, self._geometry = direction, geometry
        self._settings = _plain_settings(direction, geometry)
        self._made: dict[tuple[Any, ...], dict[int, Pair] | None] = {}
        # SAM itself (norm, backup, sum) has nothing to fuse: foreach is as quick, or quicker.
        self._plain = type(direction) is Gradient and type(geometry) is Euclidean
        self._has_form = _up_to_date(geometry, ("squared_of",), ("squared",))
        self._turns = _up_to_date(
            direction, ("constant", "turned"), ("coefficient", "turn_", "take_in")
        )
        if not self._has_form:
            warn(
                f"fused=True: {type(geometry).__name__} has no fused form (`squared_of`), so the "
                "foreach path is used"
            )

    def still_fit(self, direction: Direction, geometry: Geometry) -> bool:
        """Whether these are the direction and the geometry, with the settings they had."""
        now = (direction, geometry)
        same = now == (self._direction, self._geometry)
        return same and _plain_settings(*now) == self._settings

    def take(self, climber: Climber) -> bool:
        """Whether there is a kernel for this parameter on this step."""
        weight = local(climber.parameter)
        if not LEAST <= weight.numel() < MOST:
            return False
        if weight.dtype not in (torch.float32, torch.float64):
            return False
        if self._plain or not self._has_form or not self._turns or self._settings is None:
            return False
        if self._direction.constant(climber.updates) is None:
            return False
        gradient, backup = local(climber.gradient), climber.backup
        average = None if climber.average is None else local(climber.average)
        if gradient.dtype != weight.dtype:
            return False
        for row in (weight, gradient, backup, *(() if average is None else (average,))):
            # A wrapper has no memory of its own, and foreach says best what is wrong with a size.
            if type(row) not in (Tensor, Parameter) or row.shape != weight.shape:
                return False
        key = _key(weight, average, climber.scaled)
        if key not in self._made:
            self._made[key] = self._make(weight, average, climber.scaled)
        return self._made[key] is not None

    def surroundings(self) -> tuple[object, ...]:
        """Where these differ, other kernels are needed."""
        devices = dict.fromkeys(key[0] for key in self._made)
        return tuple(_surroundings(device) for device in devices)

    def measure(self, block: Block, inverse_scale: Tensor | None) -> Tensor:
        """||g||², ||d||² and ||T d||² over the block; nothing is written."""
        made, averages, by = self._for(block), _averages(block), self._by(block, inverse_scale)
        sums: Tensors = []
        for rows, count in _calls(len(block.weights)):
            measure, _ = made[count]
            sums += measure(block.gradients[rows], averages[rows], block.weights[rows], [by])
        kinds = len(sums) // len(block.weights)
        squares = [torch.cat(sums[kind::kinds]).sum() for kind in range(kinds)]
        return torch.stack(squares if kinds == 3 else [*squares, squares[1]])  # T = 1

    def move(
        self, block: Block, inverse_scale: Tensor | None, scale: Tensor, moved: list[Moved]
    ) -> None:
        """Take in g, keep w in the backup and go to w + scale T² d, tensor by tensor.

        From the last to the first: what `measure` read last may still be in the cache.
        """
        made, averages, by = self._for(block), _averages(block), self._by(block, inverse_scale)
        constants = [by, scale.to(block.dtype)]
        for rows, count in reversed(_calls(len(block.weights))):
            weights, backups = block.weights[rows], block.backups[rows]
            _, move = made[count]
            move(block.gradients[rows], averages[rows], weights, backups, constants)
            moved.append((weights, backups))

    def _for(self, block: Block) -> dict[int, Pair]:
        average = block.averages[0] if block.averages else None
        made = self._made[_key(block.weights[0], average, block.scaled)]
        assert made is not None
        return made

    def _by(self, block: Block, inverse_scale: Tensor | None) -> Tensor:
        """What g is multiplied with, the c of d = g - c r, and the one that w is."""
        constant = self._direction.constant(block.updates)
        by = torch.tensor([1.0, constant, 1.0], dtype=block.dtype, device=block.device)
        if inverse_scale is not None:
            by[0] = inverse_scale.to(block.device)
        return by

    def _make(self, weight: Tensor, average: Tensor | None, scaled: bool) -> dict[int, Pair] | None:
        """Compile and try on tensors that nobody needs, before any real one is touched."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the compiler's own, about its own code
                return {count: self._pair(count, weight, average, scaled) for count in TOGETHER}
        except SwitchedOffError as error:
            line = f"fused=True: {error}. The foreach path is used instead."
        except Exception as error:
            reason = getattr(error, "inner_exception", error)
            said = str(reason).strip().partition("\n")[0]
            line = (
                f"fused=True: torch.compile gave no kernel ({type(reason).__name__}: {said}). The "
                "foreach path is used instead; what is missing most often is a C++ compiler."
            )
        warn(line)
        return None

    def _pair(self, count: int, weight: Tensor, average: Tensor | None, scaled: bool) -> Pair:
        """The kernels for `count` tensors, compared with what they were compiled from."""
        measure, move = _passes(self._direction, self._geometry, scaled)
        constants = [weight.new_tensor([0.5, 0.9, 1.0]), weight.new_tensor(0.1)]
        lengths = range(16, 16 + count)  # all different, or they would be taken for equal
        g, m, w, backups = _drawn(lengths, weight, average)
        fast_measure = Kernel(measure, g, m, w, constants[:1])
        fast_move = Kernel(move, g, m, w, backups, constants)

        g, m, w, backups = _drawn([3 * length for length in reversed(lengths)], weight, average)
        before, expected_m, expected_w = _copied(w), _copied(m), _copied(w)
        sums = fast_measure(g, m, w, constants[:1])
        fast_move(g, m, w, backups, constants)
        bits = torch.int32 if weight.dtype == torch.float32 else torch.int64
        for backup, old in zip(backups, before, strict=True):
            if not torch.equal(backup.view(bits), old.view(bits)):
                raise RuntimeError("the backup of its kernel is not exact")
        expected_sums = measure(g, expected_m, expected_w, constants[:1])
        move(g, expected_m, expected_w, backups, constants)
        torch.testing.assert_close(
            [sums, w, None if average is None else m],
            [expected_sums, expected_w, None if average is None else expected_m],
        )
        return fast_measure, fast_move


def _passes(
    direction: Direction, geometry: Geometry, scaled: bool
) -> tuple[Callable[..., Tensors], Callable[..., None]]:
    """What is compiled: the two passes over some tensors that belong together row by row."""

    def perturbation(
        gradient: Tensor, average: Tensor | None, weight: Tensor, by: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        g = gradient * by[0]
        d, new_average = direction.turned(g, average, by[1])
        t_squared = geometry.squared_of(weight, g) if scaled else None
        return g, d, new_average, None if t_squared is None else d * t_squared

    def measure(
        gradients: Tensors, averages: Averages, weights: Tensors, constants: Tensors
    ) -> Tensors:
        (by,) = constants
        sums = []
        for gradient, average, weight in zip(gradients, averages, weights, strict=True):
            g, d, _, t_squared_d = perturbation(gradient, average, weight, by)
            squares = [g * g, d * d] + ([] if t_squared_d is None else [d * t_squared_d])
            sums += [square.sum(1) for square in squares]
        return sums

    def move(
        gradients: Tensors,
        averages: Averages,
        weights: Tensors,
        backups: Tensors,
        constants: Tensors,
    ) -> None:
        by, scale = constants
        rows = zip(gradients, averages, weights, backups, strict=True)
        for gradient, average, weight, backup in rows:
            _, d, new_average, t_squared_d = perturbation(gradient, average, weight, by)
            backup.copy_(weight * by[2])
            weight.add_((d if t_squared_d is None else t_squared_d) * scale)
            if average is not None and new_average is not None:
                average.copy_(new_average)

    return measure, move


def _drawn(
    lengths: Sequence[int], weight: Tensor, average: Tensor | None
) -> tuple[Tensors, Averages, Tensors, Tensors]:
    """Gradients, averages, weights and backups to try kernels on, with odd numbers among them."""
    generator = torch.Generator().manual_seed(0)
    gradients, averages, weights = (
        [
            torch.randn(length, WIDTH, dtype=weight.dtype, generator=generator).to(weight.device)
            for length in lengths
        ]
        for _ in range(3)
    )
    limits = torch.finfo(weight.dtype)
    odd = [-0.0, limits.max, limits.tiny, limits.smallest_normal / 2, limits.eps]
    weights[0][0, : len(odd)] = weight.new_tensor(odd)
    backups = [torch.zeros_like(w) for w in weights]
    if average is None:
        return gradients, [None] * len(gradients), weights, backups
    return gradients, [m.to(average.dtype) for m in averages], weights, backups


def _copied(tensors: Averages) -> list[Any]:
    return [None if tensor is None else tensor.clone() for tensor in tensors]


def _key(weight: Tensor, average: Tensor | None, scaled: bool) -> tuple[Any, ...]:
    dtypes = weight.dtype, None if average is None else average.dtype
    return (weight.device, *dtypes, scaled, _surroundings(weight.device))


def _surroundings(device: torch.device) -> tuple[object, ...]:
    return (
        torch.get_num_threads(),
        torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        torch._dynamo.eval_frame._stance.stance,  # somebody may switch the compiler off, and on
    )


def kernels_for(direction: Direction, geometry: Geometry) -> Kernels:
    """The kernels for a setting; optimizers of one setting share them, where it has a hash."""
    if direction.reference is not None:  # a closure, and all that it holds, is not to be kept
        return Kernels(direction, geometry)
    try:
        kernels = _shared_kernels(direction, geometry)
    except TypeError:
        return Kernels(direction, geometry)
    return kernels if kernels.still_fit(direction, geometry) else Kernels(direction, geometry)


_shared_kernels = lru_cache(maxsize=64)(Kernels)


def _plain_settings(*parts: Direction | Geometry) -> list[dict[str, Any]] | None:
    """The settings that a kernel is compiled with; None where one may change unseen."""
    settings = []
    for part in parts:
        slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
        values = vars(part) | {name: getattr(part, name) for name in slots if hasattr(part, name)}
        if not all(callable(value) or isinstance(value, _PLAIN) for value in values.values()):
            return None
        settings.append(values)
    return settings


_PLAIN = (int, float, str, torch.dtype, type(None))


def _up_to_date(part: object, forms: tuple[str, ...], sources: tuple[str, ...]) -> bool:
    """Whether no subclass has changed a method (`sources`) and left its fused form behind."""

    def depth(name: str) -> int:
        return next(i for i, kind in enumerate(type(part).__mro__) if name in vars(kind))

    def is_given(name: str) -> bool:
        return type(part).__mro__[depth(name)] not in (Direction, Geometry)

    return all(is_given(form) and depth(form) <= min(map(depth, sources)) for form in forms)


def _averages(block: Block) -> Averages:
    return block.averages or [None] * len(block.weights)


def _calls(tensors: int) -> list[tuple[slice, int]]:
    """How a number of tensors is shared out among calls: which, and how many they are."""
    calls, start = [], 0
    for count in TOGETHER:
        while start + count <= tensors:
            calls.append((slice(start, start + count), count))
            start += count
    return calls
