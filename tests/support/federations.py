"""Small federations: clients, their data and models, processes and rounds."""

import collections
import functools

import costs
import numpy as np
import tensorflow as tf

from tff_ssl import algorithms
from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.templates import client_data


class StrongerViews(views.PlainViews):
  """A strong view without randomness that differs from the weak one."""

  def strong(self, examples, seed):
    return self.plain(examples) * 2


class ShiftedViews(views.PlainViews):
  """Likewise: the strong view is the weak one plus 1."""

  def strong(self, examples, seed):
    return self.plain(examples) + 1.0


class _Spec(client_data.ClientDataSpec):
  """One that can be among the arguments by which what is built is found."""

  __hash__ = object.__hash__


@functools.cache
def data_spec(shape, true_labels=False, **options):
  """Returns the spec of clients whose examples are float32 of a shape."""
  elements = client_data.image_element_spec(
    shape, dtype=tf.float32, true_labels=true_labels
  )
  return _Spec(elements, **options)


@functools.cache
def model(features, classes, norm='none', hidden=()):
  """Returns a network of vectors, a linear one by default."""
  return functional.from_keras(
    lambda: dense.dense((features,), classes, norm, hidden=hidden)
  )


def examples(seed, size, shape, classes, labelled=None):
  """Returns random examples, of which the first `labelled` have a label."""
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(size, *shape)).astype(np.float32)
  y = rng.integers(0, classes, size).astype(np.int32)
  if labelled is not None:
    y[labelled:] = -1
  return collections.OrderedDict(x=x, y=y)


def separable_examples(seed, size, shape, classes, labelled=None):
  """Likewise, of classes that can be told apart by the first feature."""
  arrays = examples(seed, size, shape, classes)
  arrays['x'][:, 0] += 3 * arrays['y']
  if labelled is not None:
    arrays['y'][labelled:] = -1
  return arrays


def in_context(arrays, client=0, group=-1, **more):
  """Returns the data of a client that is told who it is."""
  numbers = {'client': np.int32(client), 'group': np.int32(group), **more}
  return collections.OrderedDict(
    examples=tf.data.Dataset.from_tensors(arrays),
    context=tf.data.Dataset.from_tensors(collections.OrderedDict(numbers)),
  )


def builder(name, model, **defaults):
  """Returns a builder of processes, which builds equal ones once.

  Args:
    name: Of the process by default; a call may give another.
    model: Of all processes, or a function that gives it for a norm.
    **defaults: Arguments that a call may change, beside plain views.
  """
  defaults = {'views': views.PlainViews(), **defaults}

  @costs.shared
  def build(name=name, norm='none', **changes):
    network = model(norm) if callable(model) else model
    return algorithms.PROCESSES[name].build(network, **{**defaults, **changes})

  return build


def after(process, clients, rounds=1, state=None):
  """Returns the state after rounds of the same clients."""
  state = process.initialize() if state is None else state
  for _ in range(rounds):
    state = process.next(state, clients).state
  return state


def trained(process, clients, rounds=1, state=None):
  """Returns the trainable weights after rounds of the same clients."""
  state = after(process, clients, rounds, state)
  return process.get_model_weights(state).trainable


def one_round(process, clients):
  """Returns trainable weights before and after a round, and the metrics."""
  state = process.initialize()
  output = process.next(state, clients)
  before, after_it = (
    process.get_model_weights(each).trainable for each in (state, output.state)
  )
  return before, after_it, output.metrics
