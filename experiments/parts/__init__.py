"""What a run is put together from: network, optimizer, schedule, views.

Each file declares the settings of one kind of part, and builds the part from
them. Only building imports TensorFlow. May import no other room of
`experiments`.
"""
