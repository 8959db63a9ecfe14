"""What the product, data sets and experiments share.

It imports neither TensorFlow nor anything else of ours: records of settings,
purposes of random draws, checks of class priors, a user's own modules, and
files that are written whole.
"""
