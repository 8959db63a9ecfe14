"""Train, validation and test split, cut anew from a source.

May import `datasets.sources` and `datasets.draws`.
"""
