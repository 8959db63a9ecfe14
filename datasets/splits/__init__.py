"""Divides a source anew into training, validation and test split.

May import `datasets.sources` and `datasets.draws`.
"""
