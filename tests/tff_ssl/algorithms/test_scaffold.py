"""SCAFFOLD against a numpy computation of softmax regression."""

import collections

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators, objectives, optimizers
from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.templates import client_data

_FEATURES, _CLASSES = 4, 3
_RATE, _SERVER_RATE, _EPOCHS = 0.3, 0.8, 3
_SIZES = (4, 9, 6, 5)
_NUM_CLIENTS = len(_SIZES)
_SAMPLES = ([0, 1, 3], [1, 2], [0, 2, 3], [1, 3])
_SPEC = client_data.ClientDataSpec(
  client_data.image_element_spec((_FEATURES,), dtype=tf.float32),
  in_context=True,
)


def arrays(index):
  rng = np.random.default_rng(index)
  size = _SIZES[index]
  # Classes are uneven, so that clients drift apart.
  labels = np.where(rng.random(size) < 0.7, index % _CLASSES, 0)
  return collections.OrderedDict(
    x=rng.normal(size=(size, _FEATURES)).astype(np.float32),
    y=labels.astype(np.int32),
  )


def client(index, spoil=False):
  context = collections.OrderedDict(client=np.int32(index), group=np.int32(-1))
  examples = arrays(index)
  if spoil:
    examples['x'][0, 0] = np.nan
  return collections.OrderedDict(
    examples=tf.data.Dataset.from_tensors(examples),
    context=tf.data.Dataset.from_tensors(context),
  )


@pytest.fixture(scope='module')
def model():
  return functional.from_keras(
    lambda: dense.dense((_FEATURES,), _CLASSES, hidden=())
  )


@pytest.fixture
def build(model, tmp_path, tff_context):
  def build_process(folder='states', **changes):
    arguments = {
      'data_spec': _SPEC,
      'views': views.PlainViews(),
      'num_clients': _NUM_CLIENTS,
      'client_state_dir': str(tmp_path / folder),
      'client_optimizer': tff.learning.optimizers.build_sgdm(_RATE),
      'server_optimizer': optimizers.build_server_sgd(_SERVER_RATE),
      # One step on all examples is an epoch: their order does not matter.
      'batch_size': 16,
      'local_epochs': _EPOCHS,
    }
    return PROCESSES['scaffold'].build(model, **{**arguments, **changes})

  return build_process


def run(process, samples, state=None):
  state = process.initialize() if state is None else state
  for sample in samples:
    state = process.next(state, [client(i) for i in sample]).state
  return state


def gradient(weights, index):
  data = arrays(index)
  x, y = data['x'].astype(np.float64), data['y']
  error = scipy.special.softmax(x @ weights[0] + weights[1], axis=1)
  error = (error - np.eye(_CLASSES)[y]) / len(y)
  return [x.T @ error, error.sum(axis=0)]


def imitate(start, samples, option, momentum=0.0, weighting='uniform'):
  """Algorithm 1; returns the model, the server's control and the clients'."""
  x = [np.asarray(leaf, np.float64) for leaf in start]
  zero = [np.zeros_like(leaf) for leaf in x]
  c, own = zero, dict.fromkeys(range(_NUM_CLIENTS), zero)
  for sample in samples:
    share = np.array(
      [_SIZES[i] if weighting == 'examples' else 1 for i in sample]
    )
    share = share / share.sum()
    moves, changes = [], []
    for i in sample:
      y, v, length = x, zero, 0.0
      weight_of_one = 0.0
      for _ in range(_EPOCHS):
        g = gradient(y, i)
        v = [
          momentum * v_ + g_ - ci + c_
          for v_, g_, ci, c_ in zip(v, g, own[i], c, strict=True)
        ]
        y = [y_ - _RATE * v_ for y_, v_ in zip(y, v, strict=True)]
        weight_of_one = momentum * weight_of_one + 1
        length += _RATE * weight_of_one
      if option == 'full_gradient':
        new = gradient(x, i)
      else:
        new = [
          ci - c_ + (x_ - y_) / length
          for ci, c_, x_, y_ in zip(own[i], c, x, y, strict=True)
        ]
      moves.append([y_ - x_ for y_, x_ in zip(y, x, strict=True)])
      changes.append([n - ci for n, ci in zip(new, own[i], strict=True)])
      own[i] = new
    for leaf in range(2):
      x[leaf] = x[leaf] + _SERVER_RATE * sum(
        s * move[leaf] for s, move in zip(share, moves, strict=True)
      )
    c = [
      c_
      + len(sample)
      / _NUM_CLIENTS
      * sum(s * change[leaf] for s, change in zip(share, changes, strict=True))
      for leaf, c_ in enumerate(c)
    ]
  return x, c, own


def read_control(folder, index):
  """The newest control that a client has written."""
  path = max((folder / 'seed-0' / str(index)).glob('*.state'))
  # The last of them is the seal of the file.
  *leaves, _ = tf.io.parse_tensor(path.read_bytes(), tf.string)
  return [tf.io.parse_tensor(leaf, tf.float32).numpy() for leaf in leaves]


def assert_close(actual, expected, atol=1e-5):
  for a, b in zip(actual, expected, strict=True):
    np.testing.assert_allclose(a, b, atol=atol)


@pytest.mark.parametrize(
  'option, momentum, weighting',
  [
    ('from_steps', 0.0, 'uniform'),
    ('full_gradient', 0.0, 'uniform'),
    ('from_steps', 0.7, 'uniform'),
    ('from_steps', 0.0, 'examples'),
  ],
)
def test_rounds_with_sampling_equal_numpy(
  build, tmp_path, option, momentum, weighting
):
  process = build(
    control_update=option,
    client_weighting=weighting,
    client_optimizer=tff.learning.optimizers.build_sgdm(
      _RATE, momentum or None
    ),
  )
  start = process.get_model_weights(process.initialize()).trainable
  state = run(process, _SAMPLES)
  x, c, own = imitate(start, _SAMPLES, option, momentum, weighting)
  assert_close(process.get_model_weights(state).trainable, x)
  assert_close(state.client_work['shared'], c)
  for index in range(_NUM_CLIENTS):
    assert_close(read_control(tmp_path / 'states', index), own[index])
  # The controls matter: without them, the model is another.
  assert max(np.abs(leaf).max() for leaf in c) > 1e-2


def test_the_first_round_is_fedavgs(build, model):
  """All controls are zero."""
  process = build()
  reference = PROCESSES['fedavg'].build(
    model,
    data_spec=_SPEC,
    views=views.PlainViews(),
    client_optimizer=tff.learning.optimizers.build_sgdm(_RATE),
    server_optimizer=optimizers.build_server_sgd(_SERVER_RATE),
    batch_size=16,
    local_epochs=_EPOCHS,
    client_weighting='uniform',
  )

  def after(process, num_rounds):
    state = run(process, _SAMPLES[:num_rounds])
    return process.get_model_weights(state).trainable

  assert_close(after(process, 1), after(reference, 1), atol=1e-7)
  two, other = after(process, 2), after(reference, 2)
  assert np.abs(two[0] - other[0]).max() > 1e-3


@pytest.mark.parametrize('option', ['from_steps', 'full_gradient'])
def test_the_servers_control_is_the_mean_of_the_clients(
  build, tmp_path, option
):
  state = run(
    build(control_update=option, local_epochs=2),
    [range(_NUM_CLIENTS), [0, 2], range(_NUM_CLIENTS)],
  )
  controls = [read_control(tmp_path / 'states', i) for i in range(_NUM_CLIENTS)]
  mean = [sum(leaves) / _NUM_CLIENTS for leaves in zip(*controls, strict=True)]
  assert_close(state.client_work['shared'], mean, atol=1e-6)


def same(a, b):
  return all(
    np.array_equal(x, y)
    for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True)
  )


def files(folder):
  return {
    path.relative_to(folder): path.read_bytes()
    for path in folder.rglob('*.state')
  }


def test_a_repeated_run_gives_the_same_and_so_does_a_resumed_one(
  build, tmp_path
):
  process = build('a')
  whole = run(process, _SAMPLES)
  written = files(tmp_path / 'a')
  assert len(written) == sum(map(len, _SAMPLES))
  # Beside states of later rounds, which the first run left.
  assert same(whole, run(process, _SAMPLES))
  assert files(tmp_path / 'a') == written
  half = run(build('b'), _SAMPLES[:2])
  assert same(whole, run(build('b'), _SAMPLES[2:], half))
  assert files(tmp_path / 'b') == written


def test_a_client_that_is_left_out_changes_no_control(build, tmp_path):
  process = build()
  before = run(process, [[0, 1]])
  mine = files(tmp_path / 'states' / 'seed-0' / '0')
  without = process.next(before, [client(1)]).state
  output = process.next(before, [client(0, spoil=True), client(1)])
  assert output.metrics['client_work']['clients']['non_finite'] == 1
  assert same(output.state.client_work, without.client_work)
  assert files(tmp_path / 'states' / 'seed-0' / '0') == mine


def test_a_control_stays_at_learning_rate_zero(build, tmp_path):
  process = build()
  state = run(process, [[0, 1]])
  control = state.client_work['shared']
  hparams = process.get_hparams(state)
  hparams['client_work']['learning_rate'] = 0.0
  after = run(process, [[0, 1]], process.set_hparams(state, hparams))
  assert same(after.client_work['shared'], control)


def test_any_objective_is_corrected(build):
  """That of FedProx, say: its second round is not that of the plain one."""
  proximal = objectives.Proximal(objectives.Supervised(views.PlainViews()), 0.9)
  plain = run(build('a'), _SAMPLES[:2])
  other = run(build('b', client_objective=proximal), _SAMPLES[:2])
  assert not same(plain.client_work['shared'], other.client_work['shared'])


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'num_clients': 0}, 'num_clients'),
    ({'num_clients': None}, 'num_clients'),
    ({'control_update': 'sometimes'}, 'control_update'),
    ({'client_state_dir': 'states'}, 'client_state_dir'),
    (
      {'client_optimizer': tff.learning.optimizers.build_adam(0.1)},
      'client_optimizer.*from_steps',
    ),
    (
      {'control_update': 'full_gradient', 'redrawn_mask_ratio': 0.5},
      'redrawn_mask_ratio=0.5',
    ),
    # Controls would go round it.
    (
      {'model_aggregator': tff.learning.dp_aggregator(0.1, 4)},
      'differential privacy, and what clients change .* in the clear',
    ),
    (
      {'model_aggregator': tff.learning.secure_aggregator()},
      'secure sums, and what clients change .* in the clear',
    ),
    (
      {'model_aggregator': aggregators.MedianFactory()},
      'a median .*, and what clients change .* would go round it',
    ),
  ],
)
def test_bad_arguments_are_named(build, changes, words):
  with pytest.raises(ValueError, match=words):
    build(**changes)


def test_the_number_of_clients_must_be_given(model):
  with pytest.raises(TypeError, match='num_clients'):
    PROCESSES['scaffold'].build(
      model,
      data_spec=_SPEC,
      views=views.PlainViews(),
      client_state_dir='/states',
    )


def test_full_gradients_go_with_any_optimizer(build):
  process = build(
    control_update='full_gradient',
    client_optimizer=tff.learning.optimizers.build_adam(0.01),
  )
  start = process.get_model_weights(process.initialize()).trainable
  state = run(process, _SAMPLES[:1])
  expected = [
    sum(leaves) / _NUM_CLIENTS
    for leaves in zip(*(gradient(start, i) for i in _SAMPLES[0]), strict=True)
  ]
  assert_close(state.client_work['shared'], expected)
