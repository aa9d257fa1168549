"""Thin adapters for training tools: `lightning` and `transformers`. Each imports its tool only."""
