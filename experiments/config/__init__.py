"""From a command line to checked settings; no TensorFlow here.

A command line is read (`flags`), maybe with a recipe under it
(`experiments.tables.recipes`). Then `settings` chooses the parts of the run by
the `catalogue`, and fills in what was not given. At last `checks` leaves what
the run uses, and refuses what cannot be run.

May import `experiments.parts`.
"""
