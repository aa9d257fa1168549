"""Without its tool an integration says what to install; the package itself needs none."""

import importlib
import sys

import pytest


def test_a_missing_transformers_is_an_error_with_the_command(monkeypatch):
    monkeypatch.delitem(sys.modules, "friendly_sam.integrations.transformers", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[hf\]"'):
        importlib.import_module("friendly_sam.integrations.transformers")


def test_the_mixin_imports_without_lightning(monkeypatch):
    monkeypatch.delitem(sys.modules, "friendly_sam.integrations.lightning", raising=False)
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    importlib.import_module("friendly_sam.integrations.lightning")
