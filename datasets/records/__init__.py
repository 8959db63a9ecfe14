"""Records of a partition: manifest, statistics, pictures and reports.

May import `datasets.files`, `datasets.sources` and `datasets.partition`.
"""
