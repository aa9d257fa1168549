"""Tables and pages of any runs, made from their folders and nothing else.

May import `plotting`, `records` and what lies below them.
"""
