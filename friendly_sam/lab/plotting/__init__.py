"""The look of every figure: one palette, one way to draw charts and panels.

May import `config` and what lies below it.
"""
