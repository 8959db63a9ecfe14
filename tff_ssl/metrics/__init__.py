"""Measurements of processes beside their training."""

from tff_ssl.metrics.gradient_diversity import (
  ServerTask,
  build_gradient_diversity,
)

__all__ = ['ServerTask', 'build_gradient_diversity']
