"""Who holds which training example: one file for each way to split a source.

May import `datasets.sources` and `datasets.draws`.
"""
