"""Cases of TFF's `model_update_aggregator_test.py`.

TFF's test creates the aggregators alone. Here a process trains with them.
"""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.testing import assertions
from tff_ssl.testing.tff_cases import builders
from tff_ssl.testing.tff_cases.cases import REFUSED, Case, Stop

# What quantisation to integers may change in the weights of two rounds.
_QUANTISED = 1e-3
# What a process sums beside the weights: metrics and counts.
_MAX_OTHER_SCALARS = 60


def _require_as_of_tff(build, aggregator, *, unweighted=False):
  """Requires the weights and the aggregator's metrics of TFF's builder."""
  outputs = []
  for each in (build, builders.stock):
    process = each(model_aggregator=aggregator, unweighted=unweighted)
    output = builders.train(process)
    weights = process.get_model_weights(output.state).trainable
    outputs.append([list(weights), output.metrics['aggregator']])
  assertions.require_close(
    *outputs, "Weights and metrics must be those with TFF's builder."
  )
  return 'Weights and metrics of the aggregator as of TFF to 1e-6.'


def robust(build):
  """The robust aggregator zeroes and clips, or does neither."""
  plain = build(
    model_aggregator=tff.learning.robust_aggregator(
      zeroing=False, clipping=False
    )
  )
  assertions.require_close(
    builders.weights_after(plain),
    builders.mean_weights(),
    'Without zeroing and clipping it must be the mean.',
  )
  return _require_as_of_tff(build, tff.learning.robust_aggregator())


def robust_unweighted(build):
  """The same without weights."""
  return _require_as_of_tff(
    build, tff.learning.robust_aggregator(weighted=False), unweighted=True
  )


def _require_measurements_of_tff(build, **arguments):
  """Requires the measurements of the clients' updates that TFF's give."""
  measured = []
  for each in (build, builders.stock):
    aggregator = tff.learning.robust_aggregator(
      zeroing=False, clipping=False, **arguments
    )
    output = builders.train(each(model_aggregator=aggregator))
    measured.append(output.metrics['aggregator'])
  ours, stock = measured
  for key in ('average_client_norm', 'std_dev_client_norm'):
    assertions.require_close(ours[key], stock[key], f'{key} must be as of TFF.')
  assertions.require_close(
    [ours['server_update_max'], ours['server_update_min']],
    [-stock['server_update_min'], -stock['server_update_max']],
    'Extremes must be those of TFF, with the other sign.',
  )
  return (
    'Norms as of TFF to 1e-6. An update is the change of the weights here, and '
    'its negative in TFF: its extremes change places.'
  )


def debug_measurements(build):
  """The robust aggregator may measure the clients' updates."""
  return _require_measurements_of_tff(
    build, debug_measurements_fn=tff.learning.add_debug_measurements
  )


def debug_measurements_of_mixed_types(build):
  """The same for updates of several types."""
  return _require_measurements_of_tff(
    build,
    debug_measurements_fn=tff.learning.add_debug_measurements_with_mixed_dtype,
  )


def private(build):
  """The aggregator of differential privacy, with and without zeroing."""
  without_noise = builders.mean_weights(unweighted=True)
  for zeroing in (False, True):
    aggregator = tff.learning.dp_aggregator(
      1e-2, clients_per_round=len(builders.clients()), zeroing=zeroing
    )
    weights = builders.weights_after(
      build(model_aggregator=aggregator, unweighted=True)
    )
    assertions.require_finite(weights, 'Weights must be finite.')
    change = assertions.largest_difference(weights, without_noise)
    assertions.require(0 < change < 0.2, f'Noise changes weights by {change}.')


def private_with_weights(build):
  """Differential privacy is refused where clients have weights."""
  build(model_aggregator=tff.learning.dp_aggregator(1e-2, clients_per_round=3))


def private_with_moving_statistics(build):
  """Differential privacy with batch normalisation."""

  def model_fn():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
        [
          tf.keras.layers.InputLayer(input_shape=(builders.NUM_PIXELS,)),
          tf.keras.layers.BatchNormalization(),
          tf.keras.layers.Dense(builders.NUM_CLASSES),
        ]
      ),
      input_spec=builders.SPEC,
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )

  build(
    model_fn,
    model_aggregator=tff.learning.dp_aggregator(1e-2, clients_per_round=3),
    unweighted=True,
  )


def secure(build):
  """The secure aggregator zeroes and clips, or does neither."""
  plain = build(
    model_aggregator=tff.learning.secure_aggregator(
      zeroing=False, clipping=False
    )
  )
  for process in (builders.secure_process(), plain):
    change = assertions.largest_difference(
      builders.weights_after(process), builders.mean_weights()
    )
    assertions.require(change < _QUANTISED, f'Weights change by {change}.')
  return (
    'Contexts of `tff_ssl` simulate the sums; weights as of plain ones to '
    f'{_QUANTISED:g}.'
  )


def compression(build):
  """The aggregator that compresses large messages."""
  assertions.require_close(
    builders.weights_after(
      build(model_aggregator=tff.learning.compression_aggregator())
    ),
    builders.robust_weights(),
    'It must be the robust aggregator for a model of few weights.',
  )
  return 'Nothing of this model is large enough; see the tutorial below.'


def distributed_privacy(build):
  """The aggregator of distributed differential privacy."""
  build(
    model_aggregator=tff.learning.ddp_secure_aggregator(
      1e-2, expected_clients_per_round=3
    ),
    unweighted=True,
  )


def _require_sums_once(process):
  """Requires that a round sums each weight once, in the clear."""
  form = tff.backends.mapreduce.get_map_reduce_form_for_computation(
    process.next
  )
  _require_few_sums(form)
  assertions.require(
    not form.securely_aggregates_tensors, 'The sums must be in the clear.'
  )


def _require_few_sums(form):
  leaves = tff.structure.flatten(form.work.type_signature.result)
  size = sum(int(np.prod(leaf.shape)) for leaf in leaves)
  most = builders.NUM_WEIGHTS + _MAX_OTHER_SCALARS
  assertions.require(
    builders.NUM_WEIGHTS <= size < most,
    f'{size} numbers are summed for {builders.NUM_WEIGHTS} weights.',
  )


def robust_sums_once(build):
  """Compiled, the robust aggregator sums each weight once."""
  _require_sums_once(build(model_aggregator=tff.learning.robust_aggregator()))


def private_sums_once(build):
  """Compiled, the private aggregator sums each weight once."""
  aggregator = tff.learning.dp_aggregator(1e-2, clients_per_round=3)
  _require_sums_once(build(model_aggregator=aggregator, unweighted=True))


def secure_sums_once(build):
  """Compiled, the secure aggregator sums each weight once, securely."""
  del build
  _require_few_sums(builders.secure_form())
  in_the_clear, *_ = builders.secure_form().work.type_signature.result
  assertions.require(
    not tff.structure.flatten(in_the_clear),
    f'In the clear are sums of {in_the_clear}.',
  )


_TEST = 'model_update_aggregator_test: ModelUpdateAggregatorTest'
_COMPILED = 'model_update_aggregator_test: CompilerIntegrationTest'
CASES = (
  Case(robust, f'{_TEST}.test_robust_aggregator_weighted'),
  Case(robust_unweighted, f'{_TEST}.test_robust_aggregator_unweighted'),
  Case(debug_measurements, f'{_TEST}.test_robust_aggregator_weighted'),
  Case(
    debug_measurements_of_mixed_types,
    f'{_TEST}.test_robust_aggregator_weighted_mixed_dtype',
  ),
  Case(private, f'{_TEST}.test_dp_aggregator'),
  Case(
    private_with_weights,
    f'{_TEST}.test_dp_aggregator',
    REFUSED,
    Stop(ValueError, 'model_aggregator ignores weights'),
  ),
  Case(
    private_with_moving_statistics,
    f'{_TEST}.test_dp_aggregator',
    REFUSED,
    Stop(ValueError, 'model_aggregator adds noise for differential privacy'),
  ),
  Case(secure, f'{_TEST}.test_secure_aggregator_weighted'),
  Case(compression, 'model_update_aggregator: compression_aggregator'),
  Case(
    distributed_privacy,
    'model_update_aggregator: ddp_secure_aggregator',
    REFUSED,
    # Protocol buffers' own DecodeError: TFF cannot serialise what it made.
    Stop(Exception, 'Error parsing message'),
    'No message of ours: TFF cannot read what it has built itself.',
  ),
  Case(robust_sums_once, f'{_COMPILED}.test_robust_aggregator'),
  Case(private_sums_once, f'{_COMPILED}.test_dp_aggregator'),
  Case(secure_sums_once, f'{_COMPILED}.test_secure_aggregator'),
)
