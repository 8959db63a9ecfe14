"""The packed client store: a partition's data in one file, and its readers.

May import `datasets.files`, `datasets.sources`, `datasets.partition` and
`datasets.records`.
"""
