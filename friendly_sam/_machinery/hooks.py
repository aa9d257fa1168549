"""The hooks of a step, once each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Step = TypeVar("Step", bound=Callable[..., Any])


def own_hooks(step: Step) -> Step:
    """Call the hooks that were registered on this very optimizer around its step.

    torch wraps the `step` of every optimizer and calls global hooks too, so that a wrapper and
    its base would call each of them twice. With this they are called by the base's step alone.
    """

    @functools.wraps(step)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        given: tuple[Any, ...] = (self, *args)
        for hook in self._optimizer_step_pre_hooks.values():
            changed = hook(self, given, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"{hook} must return None or a tuple of (new_args, new_kwargs), but got "
                        f"{changed}."
                    )
                given, kwargs = changed
        result = step(*given, **kwargs)
        for hook in self._optimizer_step_post_hooks.values():
            hook(self, given, kwargs)
        return result

    wrapper.hooked = True  # type: ignore[attr-defined] # which is how torch knows that it is done
    return wrapper  # type: ignore[return-value]
