"""Clients that keep models of their own, which the server's model pulls.

A client's own model x, and the state of its optimizer, stay with it from round
to round (`memories.ClientMemory`). In a round it trains x to x', and is pulled
towards the server's model z, as the server sent it:

```
x <- (1 - pull) x' + pull z
```

At first, x is the z of the client's first round. The pull moves trainable
weights alone: moving statistics describe the client's own model, and stay as
its training leaves them. What an objective compares with (`anchors`) is z.
"""

from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.plans import Wiring
from tff_ssl.templates import (
  averaging,
  client_data,
  client_task,
  composition,
  local_training,
  memories,
)


def train(
  training: local_training.LocalTraining,
  task: client_task.ClientTask,
  pull: float,
) -> local_training.TrainingResult:
  """Trains a client's own model, and pulls it.

  Args:
    training: How clients train.
    task: The `ClientTask`, whose client state is what this function left.
    pull: The share of z, in [0, 1].

  Returns:
    A `TrainingResult` whose weights are x'; its client state has the new x as
    'model'. A client that takes no step is pulled all the same.
  """
  own = task.client_state
  result = training.run_task(
    task,
    start=own['model'],
    optimizer_state=own['optimizer'],
    anchors=task.weights,
  )
  trainable = tf.nest.map_structure(
    # In this form, a model that is z already stays so to the bit.
    lambda new, anchor: new + pull * (anchor - new),
    result.weights.trainable,
    task.weights.trainable,
  )
  return result._replace(
    client_state={
      'model': client_task.ModelWeights(
        trainable, result.weights.non_trainable
      ),
      'optimizer': result.optimizer_state,
    }
  )


def compose(
  train_client: averaging.Train,
  training: local_training.LocalTraining,
  *,
  data_spec: client_data.ClientDataSpec,
  client_state_dir: str,
  server_optimizer: tff.learning.optimizers.Optimizer,
  wiring: Wiring,
) -> composition.ComposedProcess:
  """Composes the process of clients with own models, all of one weight.

  Args:
    train_client: What a client does with its task, by `train`.
    training: How clients train.
    data_spec: The type of the client data.
    client_state_dir: Absolute path of the folder where clients keep their
      states.
    server_optimizer: Takes the mean of what clients send, as in FedAvg.
    wiring: See `averaging.compose`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  return averaging.compose(
    train_client,
    model=training.model,
    data_spec=data_spec,
    initial_hparams=training.initial_hparams,
    client_weighting='uniform',
    server_optimizer=server_optimizer,
    wiring=wiring,
    memories=(memories.ClientMemory(client_state_dir, _first_state(training)),),
  )


def _first_state(
  training: local_training.LocalTraining,
) -> Callable[[client_task.ClientTask], dict]:
  """Returns the function that makes a client's first state."""

  def first(task):
    return tf.nest.map_structure(
      tf.convert_to_tensor,
      {
        'model': task.weights,
        'optimizer': training.initial_optimizer_state(),
      },
    )

  return first
