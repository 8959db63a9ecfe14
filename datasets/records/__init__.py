"""Records of a partition: manifest, statistics and reports.

May import `datasets.files`, `datasets.sources` and `datasets.partition`.
"""
