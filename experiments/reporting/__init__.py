"""Finished runs side by side: groups, tables and pictures.

May import `experiments.config`, `experiments.artifacts` and
`experiments.tables`.
"""
