"""Measurements of processes: the bytes of a round, and gradient diversity.

Zhang et al. (arXiv 2008.11364), Definition 1 and Appendix D, measure how far
the vectors g_k of the participants k of a round point in different directions:

```math
sum_k ||g_k||^p / ||sum_k g_k||^p
```

It is 1/n for n equal vectors and p = 2, and 1 for orthogonal ones with the
l2-norm and p = 2. There are 16 variants, named

```
diversity/<kind>_<norm>_<power>[_with_server]

kind    gradient   g_k is the gradient of k's objective on all its data, at the
                   weights that k starts from               Definition 1
        update     g_k is what k's local work adds to the weights     Eq. 15
norm    l2, l1
power   squared    p = 2        l2: Eq. 1      l1: Eq. 13
        plain      p = 1        l2: Eq. 12     l1: Eq. 14
_with_server       the server is a participant like any client   Appendix D
```

and three more numbers:

```
diversity/gradient_paper_code   n_i times Eq. 1 within group i, averaged over
diversity/update_paper_code     the groups; n_i counts the server too
diversity/num_clients           n, the clients that count
```

Eq. 13 is printed with the square on the numerator alone, so that its value
would change with the scale of the gradients. The text beside it speaks of the
measure with or without the square, so here the square is on both.

The authors' code reports `paper_code`, with p = 2 and the l2-norm. It rises
with n: for equal vectors it is 1 whatever n, for orthogonal ones n_i, which is
6 to 11 for grouping and 48 for FedAvg in the paper's settings. So it does not
compare the two; Eq. 1 on the same clients does.

Only trainable weights count. A client that a round would leave out (empty, not
finite, of a group that does not exist) counts nowhere. 0/0 is NaN.

The server sees sums over the members of each group, and no client's own vector,
as with model deltas (`tff_ssl.aggregators.group_mean`, with its warning about
groups of one). Clients work with a fresh optimizer, also where momentum stays
with a slot.
"""

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import (
  aggregators,
  compat,
  compiled,
  protocols,
  randomness,
  stacks,
)
from tff_ssl.templates import client_data as client_data_lib
from tff_ssl.templates import (
  client_task,
  composition,
  faults,
  finalizers,
)

_PREFIX = 'diversity'
_KINDS = ('gradient', 'update')


@dataclasses.dataclass(frozen=True)
class Communication:
  """Bytes per participating client and round, uncompressed.

  Attributes:
    down: What the server sends: weights, round, seed, hyperparameters.
    up: What the client sends: what is summed over clients, metrics included.
  """

  down: int
  up: int


def measure_communication(
  process: tff.learning.templates.LearningProcess,
  form: compiled.Form | None = None,
) -> Communication:
  """Counts the bytes of a process's compiled form (`tff_ssl.compiled`).

  In this form nothing else passes between server and clients. The client's own
  data do not count. Messages of a real system are longer by their framing, and
  shorter by its compression.

  Args:
    process: A learning process whose clients' data are its second argument.
    form: Its form, where it is at hand as that of `compose_with_reader`; making
      it takes seconds.

  Raises:
    ValueError: If a message has a part of unknown size.
  """
  down, up = compiled.messages(form or compiled.form_of(process.next))
  return Communication(down=_num_bytes(down), up=_num_bytes(up))


def _num_bytes(type_: compat.Type) -> int:
  if isinstance(type_, compat.FederatedType):
    return _num_bytes(type_.member)
  if isinstance(type_, compat.TensorType):
    if type_.shape is None or None in type_.shape:
      raise ValueError(
        f'A message holds {type_}, whose size is unknown: give it a shape.'
      )
    return math.prod(type_.shape) * np.dtype(type_.dtype).itemsize
  return sum(_num_bytes(part) for _, part in compat.iter_elements(type_))


class ServerTask(NamedTuple):
  """What the server gets to work with, as a client gets a `ClientTask`."""

  weights: protocols.Structure
  round: tf.Tensor
  seed: tf.Tensor
  optimizer_state: protocols.OptimizerState

  @property
  def server_seed(self) -> tf.Tensor:
    """The seed of the server's own training in this round, `int32 [2]`."""
    return randomness.server_seed(self.seed, self.round)


def build_gradient_diversity(
  *,
  local_update: Callable[
    [client_task.ClientTask], tuple[client_task.LocalUpdate, Any]
  ],
  client_gradient: Callable[[client_task.ClientTask], protocols.Structure],
  server_update: Callable[[ServerTask], protocols.Structure] | None = None,
  server_gradient: Callable[[ServerTask], protocols.Structure] | None = None,
  data_spec: client_data_lib.ClientDataSpec,
  weights_type: compat.Type,
  initial_hparams: Callable[[], protocols.Hparams],
  num_groups: int = 1,
  server_optimizer_type: compat.Type | None = None,
) -> compat.Computation:
  """Builds the computation that measures the gradient diversity of its parts.

  Clients do a `local_update` of their `ClientTask`, which returns a
  `LocalUpdate` and the group; gradients are those on all of a participant's
  data, updates of the server its trainable weights after its local work minus
  those before. Without the functions of the server, the variants with it are
  left out, and `paper_code` counts clients alone. The result has the type

  ```
  (<<weights=W,round=int32,seed=int32[,server_optimizer=O]>@SERVER,
    {D}@CLIENTS> -> <diversity/...=float32>@SERVER)
  ```

  with W `weights_type`, D `data_spec.type` and O `server_optimizer_type`, where
  the server keeps a state of its optimizer.
  """
  fields = collections.OrderedDict(
    weights=weights_type, round=np.int32, seed=np.int32
  )
  sent_names, sent_type = tuple(fields), compat.to_type(fields)
  if server_optimizer_type is not None:
    fields['server_optimizer'] = server_optimizer_type
  state_type = compat.to_type(fields)

  @tff.tensorflow.computation(sent_type, data_spec.type)
  def measure_client(sent, data):
    task = client_task.read_task(sent, initial_hparams(), data, data_spec)
    update, group = local_update(task)
    vectors = (client_gradient(task), update.delta.trainable)
    _, usable = faults.find_faults(update, task.examples, vectors)
    value = faults.zero_unless(usable, _terms_by_kind(*vectors))
    group = tf.constant(0) if group is None else group
    member = collections.OrderedDict(value=value, group=group)
    return member, tf.cast(usable, tf.float32)

  member_type, weight_type = measure_client.type_signature.result
  aggregator = aggregators.GroupMeanFactory(num_groups).create(
    member_type, weight_type
  )

  @tff.tensorflow.computation(
    state_type, aggregator.next.type_signature.result.result.member
  )
  def conclude(state, aggregate):
    server = None
    if server_update is not None:
      task = ServerTask(
        *(state['weights'], state['round'], state['seed']),
        optimizer_state=state.get('server_optimizer'),
      )
      server = _terms_by_kind(server_gradient(task), server_update(task))
    return _metrics(aggregate, server)

  @compat.federated_computation(
    compat.FederatedType(state_type, compat.SERVER),
    compat.FederatedType(data_spec.type, compat.CLIENTS),
  )
  def measure(state, data):
    sent = compat.federated_zip(
      collections.OrderedDict((name, state[name]) for name in sent_names)
    )
    members, weights = compat.federated_map(
      measure_client, (compat.federated_broadcast(sent), data)
    )
    output = aggregator.next(aggregator.initialize(), members, weights)
    return compat.federated_map(conclude, (state, output.result))

  return measure


def _terms_by_kind(gradient, update):
  """Returns one participant's terms for both kinds of vector."""
  return collections.OrderedDict(
    zip(_KINDS, map(terms, (gradient, update)), strict=True)
  )


def _metrics(aggregate, server):
  """Returns all variants from means within groups and the server's terms."""
  counts = aggregate['weight']
  groups = tf.nest.map_structure(
    lambda mean: mean * stacks.per_row(counts, mean), aggregate['mean']
  )
  metrics = collections.OrderedDict()
  for kind in _KINDS:
    rows = groups[kind]
    of_server = None if server is None else server[kind]
    users = tf.nest.map_structure(lambda row: tf.reduce_sum(row, 0), rows)
    for name, ratio in ratios(users).items():
      metrics[f'{_PREFIX}/{kind}_{name}'] = ratio
    if of_server is not None:
      everyone = add(users, of_server)
      for name, ratio in ratios(everyone).items():
        metrics[f'{_PREFIX}/{kind}_{name}_with_server'] = ratio
    metrics[f'{_PREFIX}/{kind}_paper_code'] = mean_scaled_ratio(
      rows, counts, of_server
    )
  metrics[f'{_PREFIX}/num_clients'] = tf.reduce_sum(counts)
  return metrics


def _powers(vector: list[tf.Tensor]) -> collections.OrderedDict[str, tf.Tensor]:
  """Returns the norms of float tensors that together are one vector."""
  parts = [tf.cast(part, tf.float32) for part in vector]
  squared = tf.add_n([tf.reduce_sum(tf.square(part)) for part in parts])
  absolute = tf.add_n([tf.reduce_sum(tf.abs(part)) for part in parts])
  return collections.OrderedDict(
    l2_squared=squared,
    l2_plain=tf.sqrt(squared),
    l1_squared=tf.square(absolute),
    l1_plain=absolute,
  )


def terms(vector) -> collections.OrderedDict:
  """Returns one participant's terms, its vector g_k and powers of its norms.

  Terms are added up over participants, in any order and any grouping; a ratio
  needs nothing but such a sum.
  """
  vector = tf.nest.flatten(vector)
  return collections.OrderedDict(vector=vector, powers=_powers(vector))


def add(one, other):
  """Adds the terms of different participants."""
  return tf.nest.map_structure(tf.add, one, other)


def ratios(total) -> collections.OrderedDict[str, tf.Tensor]:
  """Returns sum_k ||g_k||^p / ||sum_k g_k||^p, of terms added over k.

  Without participants, or if all vectors are zero, they are NaN (0/0); if
  vectors cancel, infinite.
  """
  of_sum = _powers(total['vector'])
  return collections.OrderedDict(
    (name, numerator / of_sum[name])
    for name, numerator in total['powers'].items()
  )


def mean_scaled_ratio(groups, counts: tf.Tensor, server=None) -> tf.Tensor:
  """Returns the mean over groups of n_i times Eq. 1 within group i.

  The terms of groups have a leading dimension S, each row added over the
  members of a group; one without any is left out. The server's terms count once
  in every group, in n_i, too.
  """

  def scaled(row):
    total, size = row
    if server is not None:
      total, size = add(total, server), size + 1.0
    return size * ratios(total)['l2_squared']

  of_groups = tf.map_fn(
    scaled, (groups, counts), fn_output_signature=tf.float32
  )
  return tf.reduce_mean(tf.boolean_mask(of_groups, counts > 0))


def build_process_diversity(
  process: composition.ComposedProcess,
) -> compat.Computation:
  """Builds the measurement for a process of this library, from its parts.

  A client's gradient is that of its objective on all its data at the weights
  that it would start a round from; the server's, where it trains, that of the
  supervised loss on its labelled data. Of several server replicas the first one
  is the server.

  Args:
    process: As a builder of `tff_ssl.algorithms` returns it.

  Returns:
    A `tff.Computation`; `measured_state` gives its first argument, clients'
    data are its second one. Its result is an ordered dict of `float32` (see the
    module).

  Raises:
    TypeError: If the process was not built by this library.
  """
  if not isinstance(process, composition.ComposedProcess):
    raise TypeError(
      f'The process is a {type(process).__name__}, which does not know its '
      'parts: give one as a builder of tff_ssl.algorithms returns it, before '
      'it is composed with a reader.'
    )
  if process.measurable is None:
    raise TypeError(
      'The clients of this process train more than one model or objective, so '
      'that they have no single gradient to measure: choose another process.'
    )
  parts = process.measurable

  def client_gradient(task):
    return parts.training.full_gradient(
      parts.start_of(task),
      task.examples,
      seed=task.client_seed,
      constants=task.constants,
    )

  of_server = {}
  if parts.server is not None:
    state_type = process.initialize.type_signature.result.member
    of_server = {
      **_server_functions(parts.server, parts.server_start),
      'server_optimizer_type': finalizers.innermost(state_type['finalizer'])[
        'optimizer'
      ],
    }
  return build_gradient_diversity(
    local_update=parts.local_update,
    client_gradient=client_gradient,
    data_spec=parts.data_spec,
    weights_type=process.weights_type,
    initial_hparams=parts.training.initial_hparams,
    num_groups=parts.num_groups,
    **of_server,
  )


def _server_functions(server, start_of):
  """Returns what `build_gradient_diversity` takes of a server that trains."""

  def gradient(task):
    return server.training.full_gradient(
      start_of(task.weights),
      server.read_examples(),
      seed=task.server_seed,
    )

  def update(task):
    start = start_of(task.weights)
    result = server.run(
      start, task.optimizer_state, seed=task.seed, round_num=task.round
    )
    return tf.nest.map_structure(
      tf.subtract,
      stacks.row(result.weights, 0).trainable,
      start.trainable,
    )

  return {'server_gradient': gradient, 'server_update': update}


def measured_state(
  process: composition.ComposedProcess, state, *, round_num: int, seed: int
) -> collections.OrderedDict:
  """Returns what the measurement takes of a process's state.

  Args:
    process: The process that is measured.
    state: Its state after `round_num` rounds.
    round_num: Rounds done.
    seed: The run's seed.
  """
  fields = collections.OrderedDict(
    weights=state.global_model_weights,
    round=np.int32(round_num),
    seed=np.int32(seed),
  )
  if process.measurable.server is not None:
    fields['server_optimizer'] = finalizers.innermost(state.finalizer)[
      'optimizer'
    ]
  return fields
