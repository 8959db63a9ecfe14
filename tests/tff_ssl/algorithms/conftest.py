"""Softmax regression with clients' own models, in numpy beside the library."""

import collections
import contextlib
import dataclasses
import pathlib
import shutil

import comparing
import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf

from tff_ssl import optimizers
from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views

_FEATURES, _CLASSES = 4, 3
_SIZES = (4, 9, 6, 5)
_EPOCHS = 3


@dataclasses.dataclass
class OwnModels:
  """A process whose clients keep models, on the tiny problem.

  Attributes:
    name: Of the process.
    root: Folder of all states, which a test finds empty.
    rate: Learning rate of the clients.
    momentum: Nesterov momentum of the clients.
    decay: Coupled weight decay of the clients.
    sizes: Examples of each client.
  """

  name: str
  root: pathlib.Path
  rate: float = 0.3
  momentum: float = 0.7
  decay: float = 0.01
  sizes: tuple[int, ...] = _SIZES

  def __post_init__(self):
    self._built = {}

  def build(self, name=None, norm='none', **changes):
    """Builds the process, or another one for comparison, once for a module."""
    key = (name, norm, *sorted(changes.items()))
    if key not in self._built:
      folder = self.root / str(len(self._built))
      self._built[key] = self._build(name or self.name, norm, folder, changes)
    return self._built[key]

  def _build(self, name, norm, folder, changes):
    spec = PROCESSES[name]
    hidden = () if norm == 'none' else (5,)
    arguments = {
      'data_spec': federations.data_spec(
        (_FEATURES,), in_context=True, num_clients=len(self.sizes)
      ),
      'views': views.PlainViews(),
      'client_optimizer': optimizers.build_nesterov_sgd(
        self.rate, self.momentum, weight_decay=self.decay
      ),
      # One step on all examples is an epoch: their order does not matter.
      'batch_size': 16,
      'local_epochs': _EPOCHS,
    }
    if spec.takes('client_state_dir'):
      arguments['client_state_dir'] = str(folder)
    model = federations.model(_FEATURES, _CLASSES, norm, hidden)
    return spec.build(model, **{**arguments, **changes})

  def arrays(self, index):
    """Returns the examples of a client."""
    rng = np.random.default_rng(index)
    size = self.sizes[index]
    # Classes are uneven, so that clients drift apart.
    labels = np.where(rng.random(size) < 0.7, index % _CLASSES, 0)
    return collections.OrderedDict(
      x=rng.normal(size=(size, _FEATURES)).astype(np.float32),
      y=labels.astype(np.int32),
    )

  def client(self, index, *, spoil=False, empty=False):
    """Returns the data of a client, whose first pixel may be NaN."""
    examples = collections.OrderedDict(
      (key, value[:0] if empty else value)
      for key, value in self.arrays(index).items()
    )
    if spoil:
      examples['x'][0, 0] = np.nan
    return federations.in_context(examples, index)

  def clients(self):
    """Returns the data of all clients."""
    return [self.client(index) for index in range(len(self.sizes))]

  def run(self, process, num_rounds, state=None):
    """Returns the state after rounds of all clients."""
    return federations.after(process, self.clients(), num_rounds, state)

  def weights(self, process, state):
    """Returns the trainable weights that are evaluated."""
    return [
      np.asarray(leaf, np.float64)
      for leaf in process.get_model_weights(state).trainable
    ]

  def gradient(self, weights, index):
    """The gradient of a client's loss in numpy."""
    data = self.arrays(index)
    x = data['x'].astype(np.float64)
    return softmax_regression.gradient(weights, x, data['y'])

  def steps(self, start, velocity, index, anchor=None, proximal=0.0):
    """A client's training in numpy: weights and velocity after it.

    With `proximal`, a term of FedProx pulls to the anchor.
    """
    anchor = start if anchor is None else anchor
    w, v = start, velocity
    for _ in range(_EPOCHS):
      g = [
        g_ + self.decay * w_ + proximal * (w_ - anchor_)
        for g_, w_, anchor_ in zip(
          self.gradient(w, index), w, anchor, strict=True
        )
      ]
      v = [self.momentum * v_ + g_ for v_, g_ in zip(v, g, strict=True)]
      w = [
        w_ - self.rate * (g_ + self.momentum * v_)
        for w_, g_, v_ in zip(w, g, v, strict=True)
      ]
    return w, v

  def stored(self, index, dtype=tf.float32):
    """Returns the newest state that a client wrote, its leaves of a type."""
    content = max(self.root.glob(f'*/seed-0/{index}/*.state')).read_bytes()
    # The last of them is the seal of the file.
    *leaves, _ = tf.io.parse_tensor(content, tf.string)
    found = []
    for leaf in leaves:
      # The type is part of what is written.
      with contextlib.suppress(tf.errors.InvalidArgumentError):
        found.append(tf.io.parse_tensor(leaf, dtype).numpy())
    return found

  def check_stored(self, models, velocities):
    """Compares what clients keep with their models and velocities in numpy."""
    for index, (x, v) in enumerate(zip(models, velocities, strict=True)):
      leaves = self.stored(index)
      self.assert_close(leaves[:2], x)
      self.assert_close([leaf for leaf in leaves[2:] if leaf.ndim], v)
    # Clients have models of their own.
    assert np.abs(models[0][0] - models[1][0]).max() > 1e-2

  def check_statistics(self, process, state):
    """The server's moving statistics are the mean of what clients keep."""
    weights = process.get_model_weights(state)
    start = len(weights.trainable)
    stored = [
      self.stored(index)[start : start + len(weights.non_trainable)]
      for index in range(len(self.sizes))
    ]
    means = [np.mean(leaves, axis=0) for leaves in zip(*stored, strict=True)]
    self.assert_close(weights.non_trainable, means)
    assert np.abs(stored[0][0] - stored[1][0]).max() > 1e-2

  def files(self):
    """Returns the bytes of all states by their paths."""
    return {path: path.read_bytes() for path in self.root.rglob('*.state')}

  @staticmethod
  def assert_close(actual, expected, atol=1e-5):
    """Compares two lists of arrays."""
    comparing.assert_close(actual, expected, atol=atol)


@pytest.fixture(scope='module')
def _own_models(request, tmp_path_factory, tff_context):
  return OwnModels(request.module.PROCESS, tmp_path_factory.mktemp('states'))


@pytest.fixture
def own_models(_own_models):
  """The problem for the process that the module names in `PROCESS`."""
  shutil.rmtree(_own_models.root, ignore_errors=True)
  return _own_models
