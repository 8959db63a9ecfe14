"""From a command line to checked settings; no TensorFlow here.

May import `experiments.parts`.
"""
