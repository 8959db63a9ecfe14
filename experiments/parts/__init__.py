"""What a run is put together from: network, optimizer, schedule, views.

Each file declares the settings of its part and builds the part from them; to
build imports TensorFlow, to declare does not. May import no other room of
`experiments`.
"""
