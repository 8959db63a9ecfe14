"""The parts of a round, in the order of the round."""

from tff_ssl.templates.client_data import ClientDataSpec, image_element_spec

__all__ = ['ClientDataSpec', 'image_element_spec']
