"""Training of psi beside the models of helper clients (FedMatch).

A client's model after a round, sigma + psi, is its state (`client_state`). A
real system would send it to the clients that it helps; a simulation reads it
from the disk. Only models of earlier rounds are read, so that results do not
depend on the order in which the clients of a round finish.
"""

import collections
import dataclasses

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks, objectives, randomness
from tff_ssl.models import decomposed, split, structures
from tff_ssl.templates import (
  client_data,
  client_state,
  client_task,
  local_training,
  memories,
)
from tff_ssl.templates.helper_clients import helper_table

ModelWeights = tff.learning.models.ModelWeights


@dataclasses.dataclass(frozen=True)
class HelperTraining:
  """How a client trains psi, and what it leaves for those it helps.

  Attributes:
    decomposition: Of the model.
    training: The `LocalTraining` of `decomposition.part('psi')`.
    table: The `HelperTable`.
    client_state_dir: Where clients keep their models.
    noise_examples: Inputs of the noise on which models are compared.
  """

  decomposition: decomposed.Decomposition
  training: local_training.LocalTraining
  table: helper_table.HelperTable
  client_state_dir: str
  noise_examples: int = 1

  @property
  def memories(self) -> tuple[memories.Memory, ...]:
    """What outlives a round: the clients' models, and the table."""
    return (
      memories.ClientMemory(self.client_state_dir, self.initial_client_state),
      helper_table.TableMemory(self.table),
    )

  def run(
    self,
    task: client_task.ClientTask,
    weights: ModelWeights,
    *,
    active: tf.Tensor | bool = True,
  ) -> local_training.TrainingResult:
    """Trains psi.

    Args:
      task: The `ClientTask`.
      weights: Joint weights to start from.
      active: Whether to train at all, `bool` scalar.

    Returns:
      A `TrainingResult` whose weights are joint ones, with the state and the
      row that the client leaves; its metrics have `helpers` beside those of the
      objective, the number of the client's helpers.
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
    compared = self.noise_examples * tf.cast(active, tf.float32)
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
    """Returns a model's probabilities on the noise, `float32 [width]`.

    The noise is standard normal in the inputs of the model, which are
    standardised images, and the same in all rounds of a run.
    """
    model = self.decomposition.model
    structures.refuse_several(model.input_spec, 'The noise of helpers needs')
    noise = tf.random.stateless_normal(
      [self.noise_examples, *model.input_spec.shape[1:]],
      randomness.run_seed(seed, randomness.Purpose.NOISE),
      dtype=model.input_spec.dtype,
    )
    logits, _ = model.predict(*weights, noise, training=False)
    return tf.reshape(
      tf.nn.softmax(tf.cast(logits, tf.float32)), [self.table.width]
    )


def build(
  decomposition: decomposed.Decomposition,
  training: local_training.LocalTraining,
  *,
  data_spec: client_data.ClientDataSpec,
  client_state_dir: str,
  num_clients: int,
  num_helpers: int,
  helper_interval: int,
  noise_examples: int = 1,
  first_round: int = 0,
) -> HelperTraining:
  """Returns the training of psi with a table of helpers that fits the model.

  Args:
    decomposition: Of the model.
    training: The `LocalTraining` of `decomposition.part('psi')`.
    data_spec: `ClientDataSpec`, the type of client data.
    client_state_dir: Where clients keep their models.
    num_clients: See `HelperTable`.
    num_helpers: Likewise.
    helper_interval: Likewise.
    noise_examples: Inputs of the noise on which models are compared, >= 1; one
      in the authors' code.
    first_round: See `HelperTable`.

  Raises:
    ValueError: If a number is out of range, or there are more helpers than
      other clients.
  """
  checks.integers_at_least(1, noise_examples=noise_examples)
  num_classes = split.features_spec(decomposition.model).shape[-1]
  table = helper_table.HelperTable(
    num_clients,
    noise_examples * num_classes,
    num_helpers,
    helper_interval,
    first_round,
    by_index=data_spec.in_context,
  )
  return HelperTraining(
    decomposition, training, table, client_state_dir, noise_examples
  )
