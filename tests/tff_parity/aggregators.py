"""Cases of TFF's `model_update_aggregator_test.py`.

TFF's test creates the aggregators alone. Here a process trains with them.
"""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.tff_parity import builders
from tests.tff_parity.cases import Group, refused
from tff_ssl.testing import assertions

GROUP = Group('Recommended aggregators')
_TEST = 'model_update_aggregator_test: ModelUpdateAggregatorTest'
_COMPILED = 'model_update_aggregator_test: CompilerIntegrationTest'
# What quantisation to integers may change in the weights of two rounds.
_QUANTISED = 1e-3
# What a process sums beside the weights: metrics and counts.
_MAX_OTHER_SCALARS = 60


def _private(**how):
  return tff.learning.dp_aggregator(1e-2, clients_per_round=3, **how)


def _require_as_of_tff(build, aggregator, *, unweighted=False):
  """Requires the weights and the aggregator's metrics of TFF's builder."""
  outputs = []
  for each in (build, builders.stock):
    process = each(model_aggregator=aggregator, unweighted=unweighted)
    output = builders.train(process)
    weights = process.get_model_weights(output.state).trainable
    outputs.append([list(weights), output.metrics['aggregator']])
  assertions.require_close(*outputs, 'TFF gives others.')
  return 'Weights and metrics of the aggregator as of TFF to 1e-6.'


@GROUP.case(f'{_TEST}.test_robust_aggregator_weighted')
def robust(build):
  """The robust aggregator zeroes and clips, or does neither."""
  plain = tff.learning.robust_aggregator(zeroing=False, clipping=False)
  builders.require_same(build(model_aggregator=plain), builders.mean_weights())
  return _require_as_of_tff(build, tff.learning.robust_aggregator())


GROUP.row(
  'robust_unweighted',
  'The same without weights.',
  f'{_TEST}.test_robust_aggregator_unweighted',
  lambda build: _require_as_of_tff(
    build, tff.learning.robust_aggregator(weighted=False), unweighted=True
  ),
)


def _require_measurements_of_tff(build, add_measurements):
  """Requires the measurements of the clients' updates that TFF's give."""

  def measured(each):
    # Anew for each: TFF cannot build two processes with one.
    aggregator = tff.learning.robust_aggregator(
      zeroing=False, clipping=False, debug_measurements_fn=add_measurements
    )
    trained = builders.train(each(model_aggregator=aggregator))
    return trained.metrics['aggregator']

  ours, stock = measured(build), measured(builders.stock)
  keys = ('average_client_norm', 'std_dev_client_norm')
  assertions.require_close(
    [*(ours[key] for key in keys), ours['server_update_max']]
    + [ours['server_update_min']],
    [*(stock[key] for key in keys), -stock['server_update_min']]
    + [-stock['server_update_max']],
    'Norms must be those of TFF, and extremes with the other sign.',
  )
  return (
    'Norms as of TFF to 1e-6. An update is the change of the weights here, and '
    'its negative in TFF: its extremes change places.'
  )


GROUP.row(
  'debug_measurements',
  "The robust aggregator may measure the clients' updates.",
  f'{_TEST}.test_robust_aggregator_weighted',
  lambda build: _require_measurements_of_tff(
    build, tff.learning.add_debug_measurements
  ),
)
GROUP.row(
  'debug_measurements_of_mixed_types',
  'The same for updates of several types.',
  f'{_TEST}.test_robust_aggregator_weighted_mixed_dtype',
  lambda build: _require_measurements_of_tff(
    build, tff.learning.add_debug_measurements_with_mixed_dtype
  ),
)


@GROUP.case(f'{_TEST}.test_dp_aggregator')
def private(build):
  """The aggregator of differential privacy, with and without zeroing."""
  for zeroing in (False, True):
    built = build(model_aggregator=_private(zeroing=zeroing), unweighted=True)
    without_noise = builders.mean_weights(unweighted=True)
    builders.require_near(built, without_noise, 0.2, least=0)


GROUP.row(
  'private_with_weights',
  'Differential privacy is refused where clients have weights.',
  f'{_TEST}.test_dp_aggregator',
  lambda build: build(model_aggregator=_private()),
  refused(ValueError, 'model_aggregator ignores weights'),
)
GROUP.row(
  'private_with_moving_statistics',
  'Differential privacy with batch normalisation.',
  f'{_TEST}.test_dp_aggregator',
  lambda build: build(
    lambda: builders.variable_model(
      builders.keras_model(tf.keras.layers.BatchNormalization())
    ),
    model_aggregator=_private(),
    unweighted=True,
  ),
  refused(ValueError, 'model_aggregator adds noise for differential privacy'),
)


@GROUP.case(f'{_TEST}.test_secure_aggregator_weighted')
def secure(build):
  """The secure aggregator zeroes and clips, or does neither."""
  plain = tff.learning.secure_aggregator(zeroing=False, clipping=False)
  for process in (builders.secure_process(), build(model_aggregator=plain)):
    builders.require_near(process, builders.mean_weights(), _QUANTISED)
  return (
    'Contexts of `tff_ssl` simulate the sums; weights as of plain ones to '
    f'{_QUANTISED:g}.'
  )


@GROUP.case('model_update_aggregator: compression_aggregator')
def compression(build):
  """The aggregator that compresses large messages."""
  built = build(model_aggregator=tff.learning.compression_aggregator())
  builders.require_same(built, builders.robust_weights())
  return 'Nothing of this model is large enough; see the tutorial below.'


GROUP.row(
  'distributed_privacy',
  'The aggregator of distributed differential privacy.',
  'model_update_aggregator: ddp_secure_aggregator',
  lambda build: build(
    model_aggregator=tff.learning.ddp_secure_aggregator(
      1e-2, expected_clients_per_round=3
    ),
    unweighted=True,
  ),
  # Protocol buffers' own DecodeError: TFF cannot serialise what it made.
  refused(
    Exception,
    'Error parsing message',
    'No message of ours: TFF cannot read what it has built itself.',
  ),
)


def _form_of_few_sums(process):
  """Returns a compiled round, in which each weight must be summed once."""
  form = tff.backends.mapreduce.get_map_reduce_form_for_computation(
    process.next
  )
  leaves = tff.structure.flatten(form.work.type_signature.result)
  size = sum(int(np.prod(leaf.shape)) for leaf in leaves)
  assert 0 <= size - builders.NUM_WEIGHTS < _MAX_OTHER_SCALARS, (
    f'{size} numbers are summed for {builders.NUM_WEIGHTS} weights.'
  )
  return form


def _require_sums_in_the_clear(process):
  form = _form_of_few_sums(process)
  assert not form.securely_aggregates_tensors, 'Sums must be in the clear.'


GROUP.row(
  'robust_sums_once',
  'Compiled, the robust aggregator sums each weight once.',
  f'{_COMPILED}.test_robust_aggregator',
  lambda build: _require_sums_in_the_clear(
    build(model_aggregator=tff.learning.robust_aggregator())
  ),
)
GROUP.row(
  'private_sums_once',
  'Compiled, the private aggregator sums each weight once.',
  f'{_COMPILED}.test_dp_aggregator',
  lambda build: _require_sums_in_the_clear(
    build(model_aggregator=_private(), unweighted=True)
  ),
)


@GROUP.case(f'{_COMPILED}.test_secure_aggregator')
def secure_sums_once(build):
  """Compiled, the secure aggregator sums each weight once, securely."""
  del build
  form = _form_of_few_sums(builders.secure_process())
  in_the_clear, *_ = form.work.type_signature.result
  assert not tff.structure.flatten(in_the_clear), (
    f'In the clear are sums of {in_the_clear}.'
  )
