"""Measurements of processes beside their training."""

from tff_ssl.metrics.communication import (
  Communication,
  measure_communication,
)
from tff_ssl.metrics.gradient_diversity import (
  ServerTask,
  build_gradient_diversity,
  build_process_diversity,
  measured_state,
)

__all__ = [
  'Communication',
  'ServerTask',
  'build_gradient_diversity',
  'build_process_diversity',
  'measure_communication',
  'measured_state',
]
