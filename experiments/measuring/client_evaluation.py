"""Accuracy per client, for data sets whose test examples belong to clients.

An average over all test examples hides the clients that a model serves badly.
Here the scores of a pass over all are grouped by the owners of the examples.
"""

import dataclasses

import numpy as np
import pandas as pd

from datasets.partition import assignment, partitions
from datasets.partition.assignment import NOBODY
from experiments.artifacts import csv_files
from experiments.config.command_line import UsageError

# The names of the figures of clients in metrics.csv.
_FIGURES = '^(client_accuracy_|held_out_accuracy$|unseen_accuracy$)'


@dataclasses.dataclass(frozen=True, eq=False)
class Owners:
  """The owners of the N test examples.

  Attributes:
    names: The names of the partition's K clients.
    client: `int64 [N]`, the owner's index in the partition; `NOBODY` where the
      owner is no client.
    held_out: `bool [N]`, whether the owner was held out: the server has the
      owner's training examples, and the owner takes part in no round.
  """

  names: tuple[str, ...]
  client: np.ndarray
  held_out: np.ndarray

  @property
  def unseen(self) -> np.ndarray:
    """`bool [N]`, whether neither clients nor server have the owner's data."""
    return (self.client == NOBODY) & ~self.held_out

  @property
  def examples(self) -> np.ndarray:
    """`int64 [K]`, the number of test examples of each client."""
    return self.sum(np.ones(len(self.client), np.int64)).astype(np.int64)

  def sum(self, values: np.ndarray) -> np.ndarray:
    """Returns each client's sum of a value per example, `float64 [K]`."""
    own = self.client != NOBODY
    return np.bincount(
      self.client[own], weights=values[own], minlength=len(self.names)
    )

  def describe(self) -> dict[str, int]:
    """Returns how many clients and test examples are in the figures."""
    return {
      'clients_with_test_examples': int(np.count_nonzero(self.examples)),
      'client_test_examples': int(self.examples.sum()),
      'held_out_test_examples': int(self.held_out.sum()),
      'unseen_test_examples': int(self.unseen.sum()),
    }


def find_owners(data, settings) -> Owners | None:
  """Returns the owners of the test examples, if clients are evaluated."""
  source, partition = data.source, data.partition
  rounds = settings.rounds_per_client_evaluation
  if not rounds:
    return None
  if partitions.PARTITIONS.find(partition.name).deals_test:
    client = assignment.deal_test_evenly(
      source.test.labels,
      source.num_classes,
      partition.num_clients,
      settings.seed,
    )
    return Owners(partition.client_names, client, np.zeros(len(client), bool))
  if source.test.client_ids is None:
    raise UsageError(
      f'--rounds_per_client_evaluation={rounds} needs to know whose the test '
      f'examples of {source.name} are: leave the flag out or, with '
      '--dataset=npz, add client_ids to test.npz.'
    )
  index = {name: k for k, name in enumerate(partition.client_names)}
  held_out = set(partition.held_out_client_names)
  ids = source.test.client_ids.tolist()
  client = np.array([index.get(name, NOBODY) for name in ids], np.int64)
  if (client == NOBODY).all():
    raise UsageError(
      f'--rounds_per_client_evaluation={rounds} is impossible: none of the '
      f'{len(index)} clients has a test example; give 0, or more clients.'
    )
  return Owners(
    partition.client_names,
    client,
    np.array([name in held_out for name in ids], bool),
  )


def figures(owners: Owners, scores) -> dict[str, float]:
  """Returns what metrics.csv holds of the clients: accuracies in [0, 1].

  Over the clients that have test examples, each of which counts the same: the
  mean, the standard deviation (divided by their number), the 10th percentile
  (interpolated) and the lowest. Over the examples of these clients, each of
  which counts the same: the mean. Where there are such examples, also the mean
  over those of owners held out for the server, and over those of owners that
  training has not seen.
  """
  tested = owners.examples > 0
  accuracies = owners.sum(scores.correct)[tested] / owners.examples[tested]
  found = {
    'client_accuracy_mean': float(accuracies.mean()),
    'client_accuracy_std': float(accuracies.std()),
    'client_accuracy_p10': float(np.percentile(accuracies, 10)),
    'client_accuracy_worst': float(accuracies.min()),
    'client_accuracy_per_example': float(
      scores.correct[owners.client != NOBODY].mean()
    ),
  }
  for name, chosen in (
    ('held_out_accuracy', owners.held_out),
    ('unseen_accuracy', owners.unseen),
  ):
    if chosen.any():
      found[name] = float(scores.correct[chosen].mean())
  return found


def evaluate(
  evaluator,
  owners: Owners,
  table: csv_files.RoundTable,
  round_number: int,
  weights,
) -> dict[str, float]:
  """Returns the figures of the whole test split and of the clients.

  The table gets the rows of the clients.
  """
  scores = evaluator.scores(weights)
  sizes = owners.examples
  correct, losses = owners.sum(scores.correct), owners.sum(scores.losses)
  table.append(
    round_number,
    (
      (k, owners.names[k], n, correct[k] / n, losses[k] / n)
      for k, n in enumerate(sizes)
      if n
    ),
  )
  return {**scores.mean(), **figures(owners, scores)}


def describe(owners: Owners) -> str:
  """Returns one sentence: who is in the figures, and who is not."""
  facts = owners.describe()
  return (
    f'Evaluated per client: {facts["clients_with_test_examples"]} of '
    f'{len(owners.names)} clients, with {facts["client_test_examples"]} test '
    f'examples; without {facts["held_out_test_examples"]} of owners held out '
    f'for the server and {facts["unseen_test_examples"]} of others.'
  )


def last_figures(table: pd.DataFrame) -> dict[str, float]:
  """Returns the figures that the last round has in metrics.csv."""
  last = table.filter(regex=_FIGURES).iloc[-1].dropna()
  return {name: float(value) for name, value in last.items()}
