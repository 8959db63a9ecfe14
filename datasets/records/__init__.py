"""What is written down of a partition: manifest, statistics, pictures.

May import `datasets.files`, `datasets.sources`, `datasets.draws` and
`datasets.partition`.
"""
