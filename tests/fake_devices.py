"""Tensors on devices that this machine has not: they have a device, a dtype and no memory."""

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
DIRECT = {Tensor.copy_: aten.copy_, Tensor.__invert__: aten.bitwise_not}


class FakeDevices(TorchFunctionMode):
    """Inside, `device="cuda:1"` works; what the host reads is 1 or True.

    Some of torch's bindings ask for a guard of the device before they call the dispatcher, which
    a torch without CUDA does not have; those are called past it.
    """

    def __init__(self):
        super().__init__()
        self.modes = FakeTensorMode(), NoFusedKernels()

    def __enter__(self):
        for mode in self.modes:
            mode.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        for mode in reversed(self.modes):
            mode.__exit__(*error)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (Tensor.item, Tensor.__float__):
            return 1.0
        if func is Tensor.__bool__:
            return True
        if func is Tensor.__getitem__ and isinstance(args[1], int):
            return aten.select(args[0], 0, args[1])
        if func is Tensor.to and args[0].device.type == "cpu":
            return self.moved(*args, **kwargs)
        return DIRECT.get(func, func)(*args, **kwargs)

    def moved(self, tensor, *args, **kwargs):
        known = {key: kwargs[key] for key in ("device", "dtype", "non_blocking") if key in kwargs}
        device, dtype, *_ = torch._C._nn._parse_to(*args, **known)
        if device is None or device.type == "cpu":
            return tensor.to(*args, **kwargs)
        return aten._to_copy(tensor, device=device, dtype=dtype or tensor.dtype)


class NoFusedKernels(TorchDispatchMode):
    """Fake tensors have no fused optimizers: what is asked of them must be on one device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func._schema.name.startswith("aten::_fused_"):
            return func(*args, **(kwargs or {}))
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        devices = {str(tensor.device) for tensor in given}
        assert len(devices) == 1, f"{func} on {devices}"
        return None
