"""Who holds which training example: one file for each kind of partition.

May import `datasets.sources` and `datasets.draws`.
"""
