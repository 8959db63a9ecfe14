"""A program that trains in production: one file to start your own from.

Labelled digits are at the server, unlabelled ones at the clients. The program

  * lets clients' model deltas meet by `--aggregator`;
  * evaluates on labelled examples that nobody trains on, and stops when these
    no longer improve;
  * releases metrics as CSV and for TensorBoard, and each model that is the best
    so far;
  * saves its state after each round, waits until that is on the disk, and goes
    on from there when it is started again with the same folder.

`tff.learning.programs.train_model` saves in the background, and a failure to
save ends in a log (TFF 0.87): so the loop is written out here.

Run it: `python -m examples.production_program --folder=FOLDER`, here, or with
`--cluster=ADDRESS` on a Ray cluster.
"""

import asyncio
import collections
import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl import app, flags, logging
from sklearn import datasets as sklearn_datasets

import tff_ssl
from tff_ssl.aggregators.recommended import AGGREGATORS
from tff_ssl.common import whole_files

_NUM_CLIENTS, _CLIENTS_PER_ROUND, _NUM_GROUPS = 20, 10, 2
_SERVER, _CLIENTS = slice(0, 100), slice(100, 1300)
_VALIDATION = slice(1300, None)

_FOLDER = flags.DEFINE_string('folder', None, 'Where all goes.', required=True)
_ROUNDS = flags.DEFINE_integer('rounds', 60, 'Rounds at most.', lower_bound=1)
_PATIENCE = flags.DEFINE_integer(
  'patience', 20, 'Rounds without a better model, then it ends.', lower_bound=1
)
_AGGREGATOR = flags.DEFINE_enum(
  'aggregator', 'mean', list(AGGREGATORS), 'How model deltas meet.'
)
_NOISE_MULTIPLIER = flags.DEFINE_float(
  'noise_multiplier', 0.5, 'Of dp and secure_dp.', lower_bound=0
)
_CLIP_NORM = flags.DEFINE_float(
  'clip_norm', 1.0, 'Of clip, dp and secure_dp.', lower_bound=0
)
_TRIMMED_SHARE = flags.DEFINE_float(
  'trimmed_share', 0.1, 'Of trimmed_mean.', lower_bound=0, upper_bound=0.5
)
_CLUSTER = flags.DEFINE_string(
  'cluster',
  None,
  'Address of a Ray cluster; by default, this process computes.',
)
_SEED = flags.DEFINE_integer('seed', 1, 'Of all but noise.', lower_bound=0)


class ProgramState(NamedTuple):
  """All that a restart needs.

  Attributes:
    training: The state of the process.
    round_number: The last finished round.
    best_accuracy: The best one on the validation examples.
    best_round: Its round.
    clients: Draws the next participants.
  """

  training: Any
  round_number: int
  best_accuracy: float
  best_round: int
  clients: tff.program.FederatedDataSourceIterator


class Validation:
  """Evaluates models on labelled examples that nobody trains on."""

  def __init__(self, model, views, images, labels):
    self._model, self._labels = model, labels
    self._inputs = views.plain(images)

  def accuracy(self, weights: tff.learning.models.ModelWeights) -> float:
    logits, _ = self._model.predict(*weights, self._inputs, training=False)
    return float(np.mean(np.argmax(logits, axis=1) == self._labels))


def load_digits() -> tuple[np.ndarray, np.ndarray]:
  images, labels = sklearn_datasets.load_digits(return_X_y=True)
  images = np.uint8(images.reshape(-1, 8, 8, 1) * 255 / 16)
  return images, labels.astype(np.int32)


def as_dataset(images, labels) -> tf.data.Dataset:
  return tf.data.Dataset.from_tensors(
    collections.OrderedDict(x=images, y=labels)
  )


def build_wiring() -> tff_ssl.Wiring:
  """Returns how deltas and metrics meet, by the flags."""
  spec = AGGREGATORS[_AGGREGATOR.value]
  given = {
    'noise_multiplier': _NOISE_MULTIPLIER.value,
    'clip_norm': _CLIP_NORM.value,
    'trimmed_share': _TRIMMED_SHARE.value,
  }
  return tff_ssl.Wiring(
    model_aggregator=tff_ssl.recommended_aggregator(
      spec.name,
      clients_per_round=_CLIENTS_PER_ROUND,
      **{setting.name: given[setting.name] for setting in spec.settings},
    ),
    metrics_aggregator=tff_ssl.secure_metrics if spec.is_secure else None,
    # A secure sum over fewer clients says much of each.
    min_group_size=3 if spec.is_secure and not spec.is_private else 1,
    seed=_SEED.value,
  )


def build_process(model, views, images, labels):
  """Returns the process over keys of clients, which reads their data."""
  unlabelled = images[_CLIENTS].reshape(_NUM_CLIENTS, -1, 8, 8, 1)
  none = -np.ones(unlabelled.shape[1], np.int32)

  @tff.tensorflow.computation
  def server_data():
    return as_dataset(images[_SERVER], labels[_SERVER])

  @tff.tensorflow.computation(np.int32)
  def read_client(index):
    return as_dataset(tf.constant(unlabelled)[index], none)

  process = tff_ssl.build_grouping_robust(
    model,
    server=tff_ssl.ServerPlan(data=server_data),
    data_spec=tff_ssl.ClientDataSpec(tff_ssl.image_element_spec((8, 8, 1))),
    views=views,
    num_groups=_NUM_GROUPS,
    group_assignment='in_process',
    client_training=tff_ssl.TrainingPlan(
      batch_size=20,
      epochs=1,
      # Momenta that are sent would go round a private or secure aggregator.
      client_momentum='reset',
    ),
    wiring=build_wiring(),
  )
  return tff_ssl.compose_with_reader(process, read_client)


def check_settings(folder: pathlib.Path) -> None:
  """Notes what the folder was begun with, or compares it with that.

  A state goes on right with the settings that it was made with, and with others
  not at all, or in a way that nobody can repeat.
  """
  now = {
    holder.name: holder.value
    for holder in (
      *(_AGGREGATOR, _NOISE_MULTIPLIER, _CLIP_NORM, _TRIMMED_SHARE),
      _SEED,
    )
  }
  file = folder / 'settings.json'
  if not file.exists():
    if (folder / 'states').exists():
      raise app.UsageError(
        f'{folder} holds states, and nothing says with which settings they '
        'were made: give another --folder.'
      )
    folder.mkdir(parents=True, exist_ok=True)
    with whole_files.replacing(file) as content:
      content.write(json.dumps(now).encode())
    return
  begun = json.loads(file.read_text())
  if other := [name for name in now if begun.get(name) != now[name]]:
    raise app.UsageError(
      f'{folder} was begun with '
      + ' and '.join(f'--{name}={begun.get(name)}' for name in other)
      + ': give the same, or another --folder.'
    )


async def train(process, validation: Validation, folder: pathlib.Path) -> None:
  """Trains until there is nothing to gain, or goes on with it."""
  saved = tff.program.FileProgramStateManager(
    folder / 'states', keep_total=2, keep_first=False
  )
  metrics_releases = tff.program.GroupingReleaseManager(
    [
      tff.program.CSVFileReleaseManager(
        folder / 'metrics.csv', key_fieldname='round'
      ),
      tff.program.TensorBoardReleaseManager(folder / 'tensorboard'),
    ]
  )
  best_models = tff.program.SavedModelFileReleaseManager(
    folder / 'best', 'round_'
  )
  source = tff_ssl.ClientKeySource(num_clients=_NUM_CLIENTS, seed=_SEED.value)
  materialize = tff.program.materialize_value

  first = await materialize(process.initialize())
  state = ProgramState(first, 0, 0.0, 0, source.iterator())
  found, _ = await saved.load_latest(state)
  if found is not None:
    state = found
    print(f'Going on after round {state.round_number}.', flush=True)

  while (
    state.round_number < _ROUNDS.value
    and state.round_number - state.best_round < _PATIENCE.value
  ):
    number = int(state.round_number) + 1
    participants = state.clients.select(_CLIENTS_PER_ROUND)
    output = await materialize(process.next(state.training, participants))
    weights = await materialize(process.get_model_weights(output.state))
    accuracy = validation.accuracy(weights)
    is_better = accuracy > state.best_accuracy
    if is_better:
      await best_models.release(weights, str(number))
    await metrics_releases.release(
      {'train': output.metrics['client_work'], 'accuracy': accuracy}, number
    )
    state = ProgramState(
      output.state,
      number,
      accuracy if is_better else state.best_accuracy,
      number if is_better else state.best_round,
      state.clients,
    )
    # Awaited last: a kill before it repeats the round, and its releases.
    await saved.save(state, number)
    print(f'round {number}: accuracy {accuracy:.4f}', flush=True)
  print(
    f'The best model has an accuracy of {state.best_accuracy:.4f} and is in '
    f'{folder / "best" / f"round_{state.best_round}"}.'
  )


def main(argv) -> None:
  del argv
  logging.set_verbosity(logging.WARNING)
  tf.get_logger().setLevel('WARNING')
  folder = pathlib.Path(_FOLDER.value)
  images, labels = load_digits()
  model = tff_ssl.from_keras(tff_ssl.MODELS['small_cnn'].build((8, 8, 1), 10))
  views = tff_ssl.ImageViews(mean=(0.3,), stddev=(0.38,), flip=False)
  validation = Validation(
    model, views, images[_VALIDATION], labels[_VALIDATION]
  )
  process = build_process(model, views, images, labels)
  check_settings(folder)
  if _CLUSTER.value:
    context = tff_ssl.install_ray_context(_CLUSTER.value, asynchronous=True)
  else:
    context = tff_ssl.install_context(asynchronous=True)
  tff.framework.set_default_context(tff.program.NativeFederatedContext(context))
  asyncio.run(train(process, validation, folder))


if __name__ == '__main__':
  app.run(main)
