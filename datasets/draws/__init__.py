"""Seeded draws: which client holds an example, and which labels are known.

Partitions consist of these steps. May import `datasets.sources`.
"""
