"""Clients that help each other (FedMatch): who helps whom, and how they train.

FedMatch (Jeong et al., arXiv 2006.12097, Section 3.1) compares client models by
their outputs on a fixed input of Gaussian noise. The H clients nearest to a
client are its helpers. The server keeps a row for each client: the outputs that
its model gave when it took part last. Before every R-th round the server
chooses anew. Distances are Euclidean; of equal distances, the first row counts
as nearer.

A client that has not taken part helps nobody and has no helpers. If fewer than
H others are known, all of them are helpers.

Each client sends its row in a table of zeros (`stacks.scatter`), and the server
gets the sum of these tables. So it sees every participant's outputs on the
noise, whatever `model_aggregator` hides of the models.

A client's model after a round, sigma + psi, is its state (`client_state`). A
real system would send it to the clients that it helps; a simulation reads it
from the disk. Only models of earlier rounds are read, so that results do not
depend on the order in which the clients of a round finish.
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks, objectives, randomness, stacks
from tff_ssl.models import decomposed, split, structures
from tff_ssl.plans import Helpers
from tff_ssl.templates import (
  client_data,
  client_state,
  client_task,
  faults,
  local_training,
  memories,
)

ModelWeights: TypeAlias = tff.learning.models.ModelWeights

_NOBODY = -1


@dataclasses.dataclass(frozen=True)
class HelperTable(memories.Memory):
  """How the server chooses helpers; a `Memory` of who helps whom.

  A client leaves its row (`scatter`) as the `shared_change` of its
  training. A table that would not be finite stays as it was.

  Attributes:
    num_clients: K, the number of rows.
    width: Numbers in a row.
    num_helpers: H >= 1, below K.
    interval: R >= 1: helpers are chosen before rounds R, 2R, ..., counted
      from 1.
    first_round: Rounds before which clients do not train and so are not known.
    by_index: Whether a client is known by its index below K. If not, because
      client data have no context, its row is its fingerprint modulo K. Of
      several clients with one row, the last one is known.
  """

  num_clients: int
  width: int
  num_helpers: int = 2
  interval: int = 10
  first_round: int = 0
  by_index: bool = True

  field = 'shared'
  in_the_clear = 'the outputs by which helpers are chosen'

  def __post_init__(self):
    checks.integers_at_least(
      1,
      num_clients=self.num_clients,
      num_helpers=self.num_helpers,
      helper_interval=self.interval,
    )
    if self.num_helpers >= self.num_clients:
      raise ValueError(
        f'num_helpers={self.num_helpers} needs as many other clients, but '
        f'num_clients={self.num_clients} leaves {self.num_clients - 1}: lower '
        'num_helpers, or take more clients.'
      )

  def initial(self) -> collections.OrderedDict[str, Any]:
    """Returns the server's state before the first round: nobody is known."""
    shape = [self.num_clients]
    return collections.OrderedDict(
      rows=collections.OrderedDict(
        outputs=tf.zeros([*shape, self.width]), owner=tf.fill(shape, _NOBODY)
      ),
      round=tf.constant(0),
      chosen=collections.OrderedDict(
        owner=tf.fill(shape, _NOBODY),
        helpers=tf.fill([*shape, self.num_helpers], _NOBODY),
      ),
    )

  def send(self, state):
    # The clients are sent who helps whom, and nothing else of the table.
    return state['chosen']

  def read(self, task, sent):
    missing = tf.constant(False)
    if self.by_index:
      missing = stacks.is_missing(task.client, self.num_clients)
    return task._replace(shared_state=sent), missing

  def leave(self, task, update, counts):
    return faults.zero_unless(counts, update.result.shared_change), []

  def merge(self, state, sums):
    rows, taken = sums
    joined = tf.cast(state['round'] >= self.first_round, tf.float32)
    rows = stacks.merge(state['rows'], rows, joined * taken)
    done = state['round'] + 1
    chosen = tf.cond(
      tf.equal((done + 1) % self.interval, 0),
      lambda: self._choose(rows),
      lambda: tf.nest.map_structure(tf.identity, state['chosen']),
    )
    new = collections.OrderedDict(rows=rows, round=done, chosen=chosen)
    return faults.if_finite(new, state)

  def helpers_of(
    self, chosen: Mapping[str, tf.Tensor], client: tf.Tensor
  ) -> tf.Tensor:
    """Returns a client's helpers, `int32 [H]`, -1 for each that is missing."""
    row = self._row(client)
    is_own = tf.equal(chosen['owner'][row], client)
    return tf.where(is_own, chosen['helpers'][row], _NOBODY)

  def scatter(
    self, client: tf.Tensor, outputs: tf.Tensor
  ) -> tuple[collections.OrderedDict[str, tf.Tensor], tf.Tensor]:
    """Returns what a client sends of its outputs, summed for `merge`."""
    row = collections.OrderedDict(outputs=outputs, owner=client)
    return stacks.scatter(
      row, self._row(client), self.num_clients, tf.constant(True)
    )

  def _row(self, client):
    return tf.math.floormod(client, self.num_clients)

  def _choose(self, rows):
    """Returns for each row its owner and the owners of those nearest to it."""
    outputs, owner = rows['outputs'], rows['owner']
    indices = tf.range(self.num_clients)

    def nearest(row):
      distances = tf.reduce_sum(tf.square(outputs - outputs[row]), axis=1)
      is_other = (owner > _NOBODY) & tf.not_equal(indices, row)
      order = tf.argsort(
        tf.where(is_other, distances, float('inf')), stable=True
      )[: self.num_helpers]
      counts = tf.gather(is_other, order) & (owner[row] > _NOBODY)
      return tf.where(counts, tf.gather(owner, order), _NOBODY)

    # Row by row: all distances at once are K times as much memory.
    helpers = tf.map_fn(
      nearest,
      indices,
      fn_output_signature=tf.TensorSpec([self.num_helpers], tf.int32),
    )
    return collections.OrderedDict(
      owner=owner,
      helpers=tf.ensure_shape(helpers, [self.num_clients, self.num_helpers]),
    )


@dataclasses.dataclass(frozen=True)
class HelperTraining:
  """How a client trains psi beside the models of its helpers.

  Attributes:
    training: That of `decomposition.part('psi')`.
    table: Who helps whom.
    client_state_dir: Where clients keep their models.
  """

  decomposition: decomposed.Decomposition
  training: local_training.LocalTraining
  table: HelperTable
  client_state_dir: str

  @property
  def memories(self) -> tuple[memories.Memory, ...]:
    """What outlives a round: the clients' models, and the table."""
    return (
      memories.ClientMemory(self.client_state_dir, self.initial_client_state),
      self.table,
    )

  def run(
    self,
    task: client_task.ClientTask,
    weights: ModelWeights,
    *,
    active: tf.Tensor | bool = True,
  ) -> client_task.TrainingResult:
    """Trains psi from joint weights.

    The result has joint weights, and the state and the row that the client
    leaves; its metrics have `helpers` beside those of the objective, the number
    of the client's helpers.
    """
    ids = self.table.helpers_of(task.shared_state, task.client)
    present = ids >= 0
    sigma, _ = self.decomposition.separate(weights)
    result = self.training.run_task(
      task,
      start=self.decomposition.take(weights, 'psi'),
      seed=randomness.fold_in(task.client_seed, randomness.Purpose.UNLABELLED),
      active=active,
      anchors=objectives.Peers(
        sigma,
        [
          self.decomposition.as_psi(self._read(task, helper))
          for helper in tf.unstack(ids)
        ],
        present,
      ),
    )
    joint = self.decomposition.put(result.weights, 'psi')
    own = self.decomposition.total(joint)
    count = tf.reduce_sum(tf.cast(present, tf.float32))
    # In a round that is the server's alone, nothing of a client's counts.
    compared = tf.cast(active, tf.float32)
    return result._replace(
      weights=joint,
      metrics=collections.OrderedDict(
        result.metrics, helpers=tf.stack([count, 1.0])
      ),
      client_state=own,
      shared_change=self.table.scatter(
        task.client, self._outputs(own, task.seed)
      ),
      passes=result.passes + tf.stack([compared, 0.0]),
    )

  def initial_client_state(self, task: client_task.ClientTask) -> ModelWeights:
    """Returns a state as `run` leaves it, of the client's global model."""
    weights = tf.nest.map_structure(tf.convert_to_tensor, task.weights)
    return self.decomposition.total(weights)

  def _read(self, task, helper):
    """Returns a helper's model; where there is none, the global one."""
    weights, found = client_state.read(
      self.client_state_dir,
      task._replace(client=helper),
      lambda: self.initial_client_state(task),
    )
    is_there = tf.debugging.assert_equal(
      found,
      helper >= 0,
      message='The model of a helper client is missing in client_state_dir: '
      'go on from a checkpoint with the client states that belong to it.',
    )
    with tf.control_dependencies([is_there]):
      return tf.nest.map_structure(tf.identity, weights)

  def _outputs(self, weights, seed):
    """Returns a model's probabilities on an input of noise, `float32 [width]`.

    The noise is standard normal in the inputs of the model, which are
    standardised images, and the same in all rounds of a run.
    """
    model = self.decomposition.model
    structures.refuse_several(model.input_spec, 'The noise of helpers needs')
    noise = tf.random.stateless_normal(
      [1, *model.input_spec.shape[1:]],
      randomness.run_seed(seed, randomness.Purpose.NOISE),
      dtype=model.input_spec.dtype,
    )
    logits, _ = model.predict(*weights, noise, training=False)
    return tf.reshape(
      tf.nn.softmax(tf.cast(logits, tf.float32)), [self.table.width]
    )


def build_training(
  decomposition: decomposed.Decomposition,
  training: local_training.LocalTraining,
  helpers: Helpers,
  data_spec: client_data.ClientDataSpec,
  first_round: int = 0,
) -> HelperTraining:
  """Returns the training of psi with a table of helpers that fits the model."""
  num_classes = split.features_spec(decomposition.model).shape[-1]
  table = HelperTable(
    data_spec.checked_num_clients,
    num_classes,
    helpers.num_helpers,
    helpers.helper_interval,
    first_round,
    by_index=data_spec.in_context,
  )
  return HelperTraining(
    decomposition, training, table, helpers.client_state_dir
  )
