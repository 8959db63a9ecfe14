"""What an option costs a client, beside the same rounds without it.

`aggregation`: each aggregator beside the plain mean. The clients do supervised
steps of the dense network, of which each takes less than a millisecond, so that
what the aggregator adds shows as much as it ever does. Secure sums are
simulated: the same arithmetic, without cryptography.

`kernels`: oneDNN's kernels, in TFF's worker with them and without. Where
TensorFlow takes them by itself, the latter is slower than what its users have.

`own_models`: a client of `easgd` or `overlap_sgd` trains as one of `fedavg`
does. It also reads its model and momentum from its disk, pulls the model, and
writes both; what it wrote before is removed once nobody needs it, as in a run.
The network is the larger of those that are measured: what is written grows with
the weights.

`robust`: `grouping_robust` beside plain CRL. Both label every example, so that
as many go through the network: one with the model that it trains, the other
with the average that it received. The server takes one step in both.
"""

import collections
import functools
import itertools
import os
from collections.abc import Callable, Mapping
from unittest import mock

import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import candidates, measurement, workloads
from tff_ssl import augmentation, optimizers
from tff_ssl.aggregators import recommended
from tff_ssl.algorithms import PROCESSES
from tff_ssl.simulation import contexts
from tff_ssl.templates import client_state

# Those that take the weights of clients. `median_ms` are the medians of all
# candidates' times.
AGGREGATORS: Mapping[
  str, Callable[[], tff.aggregators.WeightedAggregationFactory]
] = {
  {'median': 'coordinate_median'}.get(name, name): functools.partial(
    recommended.recommended_aggregator,
    name,
    **({'clip_norm': 1.0} if name == 'clip' else {}),
  )
  for name, spec in recommended.AGGREGATORS.items()
  if spec.is_weighted
}


def _aggregation(workload, folder) -> candidates.Rounds:
  store = workload.build_store(folder)
  sgd = tff.learning.optimizers.build_sgdm(workloads.LEARNING_RATE)
  return {
    name: candidates.rounds_of(
      'fedavg',
      'dense',
      workload,
      store,
      client_optimizer=sgd,
      model_aggregator=build(),
    )
    for name, build in AGGREGATORS.items()
  }


def _kernels(workload, folder) -> candidates.Rounds:
  store = workload.build_store(folder)

  def rounds(model, variable):
    # The worker that starts here inherits it.
    with mock.patch.dict(os.environ, TF_ENABLE_ONEDNN_OPTS=variable):
      return candidates.rounds_of(
        'fedavg',
        model,
        workload,
        store,
        contexts.WORKER,
        client_optimizer=optimizers.build_grouping_sgd(workloads.LEARNING_RATE),
      )

  return {
    f'{model}_{name}': rounds(model, variable)
    for model in ('small_cnn', 'emnist_cnn')
    for name, variable in (('onednn', '1'), ('without', '0'))
  }


def _own_models(workload, folder) -> candidates.Rounds:
  store = workload.build_store(folder)

  def rounds(name):
    spec, states = PROCESSES[name], f'{folder}/{name}'
    more = {}
    if spec.takes('client_state_dir'):
      more['client_state_dir'] = states
    run_round = candidates.rounds_of(
      name,
      'emnist_cnn',
      workload,
      store,
      client_optimizer=optimizers.build_grouping_sgd(workloads.LEARNING_RATE),
      **more,
    )
    if not spec.takes('client_state_dir'):
      return run_round
    done = itertools.count(1)

    def run_and_prune():
      run_round()
      client_state.prune(states, 0, range(workload.clients), next(done))

    return run_and_prune

  return {name: rounds(name) for name in ('fedavg', 'easgd', 'overlap_sgd')}


def _robust(workload, folder) -> candidates.Rounds:
  store = workload.build_store(folder)
  images, labels = workloads.enlarged_digits()
  images, labels = images[: workload.batch_size], labels[: workload.batch_size]

  @tff.tensorflow.computation
  def server_data():
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(x=images, y=labels)
    )

  def rounds(name):
    return candidates.rounds_of(
      name,
      'small_cnn',
      workload,
      store,
      server_data=server_data,
      views=augmentation.ImageViews(mean=(0.0,), stddev=(1.0,), flip=False),
      num_groups=1,
      # Both train on as many pseudo-labels: on all.
      pseudo_label_rule='fixed',
      threshold=0.0,
      server_steps=1,
    )

  return {'crl': rounds('grouping'), 'robust': rounds('grouping_robust')}


SECTIONS = {
  'aggregation': measurement.Section(
    workloads.Steps(clients=20, steps=50, batch_size=20),
    _aggregation,
    {
      f'{name}_over_mean': (name, 'mean')
      for name in AGGREGATORS
      if name != 'mean'
    },
  ),
  'kernels': measurement.Section(
    workloads.Steps(),
    _kernels,
    {
      f'{model}_ratio': (f'{model}_onednn', f'{model}_without')
      for model in ('small_cnn', 'emnist_cnn')
    },
  ),
  'own_models': measurement.Section(
    workloads.Steps(),
    _own_models,
    {
      f'{name}_over_fedavg': (name, 'fedavg')
      for name in ('easgd', 'overlap_sgd')
    },
  ),
  'robust': measurement.Section(
    workloads.Steps(), _robust, {'robust_over_crl': ('robust', 'crl')}
  ),
}
