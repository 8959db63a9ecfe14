"""Data sets as the rest of the code sees them: one file for each format.

A source says what images there are, their labels, and who owns them. May import
`datasets.files`.
"""
