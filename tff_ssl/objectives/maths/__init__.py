"""Loss functions and what they are made of, beside the papers' equations."""
