"""What a run leaves behind: its folder, checkpoints, logs and curves.

May import `experiments.config` and `experiments.parts`.
"""
