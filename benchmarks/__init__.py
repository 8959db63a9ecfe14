"""Measurements of speed; README.md says what is compared with what."""

import os

# As the workers of `tff_ssl` have it: what runs in this process, and stock TFF,
# which inherits it, are compared on equal terms.
os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')
