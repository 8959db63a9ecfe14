"""Seeded draws: who holds which example, and whose labels are known.

The steps that partitions are made of. May import `datasets.sources`.
"""
