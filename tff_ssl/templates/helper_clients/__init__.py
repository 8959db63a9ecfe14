"""Clients that help each other (FedMatch): who helps whom, and how they train.

`helper_table` is what the server knows of all clients; `helper_training` is
what a client does beside the models of its helpers.
"""
