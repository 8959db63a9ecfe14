"""The parts of a round.

What an algorithm's page puts together has a short name here; the functions that
do it stand in the modules.
"""

from tff_ssl.templates.client_data import ClientDataSpec, image_element_spec
from tff_ssl.templates.client_work import build_client_work
from tff_ssl.templates.composition import (
  Measurable,
  ModelView,
  compose,
  initial_weights,
  stacked,
)
from tff_ssl.templates.local_training import LocalTraining
from tff_ssl.templates.memories import (
  ClientMemory,
  SharedMean,
  client_momentum,
)
from tff_ssl.templates.minibatches import Selection

__all__ = [
  'ClientDataSpec',
  'ClientMemory',
  'LocalTraining',
  'Measurable',
  'ModelView',
  'Selection',
  'SharedMean',
  'build_client_work',
  'client_momentum',
  'compose',
  'image_element_spec',
  'initial_weights',
  'stacked',
]
