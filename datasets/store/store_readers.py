"""The names under which `benchmarks.cluster` reads a store, for a moment."""

from datasets.store.client_store import client_reader, element_spec

__all__ = ['client_reader', 'element_spec']
