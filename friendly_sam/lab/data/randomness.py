"""Generators that depend on nothing but what they are for."""

from __future__ import annotations

import hashlib

import torch


def generator_for(*key: int | str) -> torch.Generator:
    """Make a CPU generator whose stream is a function of `key` alone.

    Order and augmentation of every batch come from such generators, keyed by seed, epoch and batch
    number. So nothing has to be saved to go on in the middle of an epoch, no choice shifts the
    numbers of another, and torch's global generator is left to the model.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))
