"""Records of a partition: manifest, statistics, pictures and reports.

May import `datasets.files`, `datasets.sources`, `datasets.draws` and
`datasets.partition`.
"""
