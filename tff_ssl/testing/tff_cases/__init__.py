"""What TFF's own tests and tutorials do, with builders of ours.

A module holds the cases of one group. They are written here: of TFF's tests
they take what is tried. `python -m tff_ssl.testing.tff_cases` runs them.
"""
