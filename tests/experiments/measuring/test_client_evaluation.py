"""Figures per client against scikit-learn, numpy and hand-worked numbers."""

import collections
import dataclasses
import statistics
import types

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

from datasets.partition import assignment, partitions
from datasets.sources.source import Source, Split
from experiments.artifacts import csv_files
from experiments.config import flags
from experiments.measuring import client_evaluation, evaluation

CLASSES = 3
# Writers of the training and of the test examples: e is unknown to training,
# b has no test example, and names are any strings.
TRAIN_IDS = ['=a', 'b', 'line\nbreak', 'd'] * 15
TEST_IDS = ['=a'] * 7 + ['line\nbreak'] * 4 + ['d'] * 2 + ['e'] * 3


def split(ids, seed):
  rng = np.random.default_rng(seed)
  return Split(
    rng.integers(0, 256, (len(ids), 4, 4, 1), dtype=np.uint8),
    (np.arange(len(ids)) // 4 % CLASSES).astype(np.int32),
    np.array(rng.permutation(np.array(ids, object)), object),
  )


@pytest.fixture(scope='module')
def source():
  train = dataclasses.replace(
    split(TRAIN_IDS, 0), client_ids=np.array(TRAIN_IDS, object)
  )
  test = split(TEST_IDS, 1)
  return Source(
    'made', '1', 'made', train, test, CLASSES, (0.25,), (0.5,), 0, False
  )


def native(source, **arguments):
  arguments = {'server_examples': 0, 'seed': 3, **arguments}
  return partitions.build('native', source, **arguments)


def owners_of(source, partition, rounds=1):
  return client_evaluation.find_owners(
    types.SimpleNamespace(source=source, partition=partition),
    types.SimpleNamespace(rounds_per_client_evaluation=rounds, seed=3),
  )


def test_everything_equals_scikit_learn_per_writer(
  source, model, image_views, log_probabilities, tmp_path
):
  """And one pass gives the figures of the whole and of the clients."""
  partition, weights = native(source), model.initial_weights(2)
  owners = owners_of(source, partition)
  evaluator = evaluation.Evaluator(model, image_views, source.test)
  whole = evaluator(weights)
  passes = []
  scores_of = evaluator.scores
  evaluator.scores = lambda w: passes.append(1) or scores_of(w)
  path = tmp_path / 'clients.csv'
  with (
    csv_files.MetricLog(tmp_path / 'metrics.csv', 1) as log,
    log.beside('clients.csv', is_wanted=True) as clients,
  ):
    found = client_evaluation.evaluate(evaluator, owners, clients, 7, weights)
  assert passes == [1]
  assert {name: found[name] for name in whole} == whole

  p = np.exp(log_probabilities(source.test.examples, weights))
  labels, ids = source.test.labels, source.test.client_ids
  table = pd.read_csv(path).set_index('name')
  accuracies = {}
  shown_as = {'=a': "'=a", 'd': 'd', 'line\nbreak': 'line\\nbreak'}
  for name, shown in shown_as.items():
    own = ids == name
    row = table.loc[shown]
    assert partition.client_names[int(row['client'])] == name
    accuracies[name] = metrics.accuracy_score(labels[own], p[own].argmax(1))
    assert row['round'] == 7 and row['examples'] == own.sum()
    assert row['accuracy'] == pytest.approx(accuracies[name])
    assert row['loss'] == pytest.approx(
      metrics.log_loss(labels[own], p[own], labels=range(CLASSES)), rel=1e-5
    )
  # b has no test example, e no training example.
  assert len(table) == 3
  values = list(accuracies.values())
  assert found['client_accuracy_mean'] == pytest.approx(np.mean(values))
  tenth = np.percentile(values, 10)
  assert found['client_accuracy_p10'] == pytest.approx(tenth)
  assert found['client_accuracy_worst'] == min(values)
  for name, which in (
    ('client_accuracy_per_example', ids != 'e'),
    ('unseen_accuracy', ids == 'e'),
  ):
    right = metrics.accuracy_score(labels[which], p[which].argmax(1))
    assert found[name] == right
  assert 'held_out_accuracy' not in found


def scores_of(correct):
  zeros = np.zeros(len(correct), np.float32)
  return evaluation.Scores(np.array(correct), zeros, zeros, zeros)


def test_the_two_averages_by_hand():
  """Clients 0 to 10 have ten examples each, of which k are right; client 11
  has ninety, all right."""
  owners = client_evaluation.Owners(
    names=tuple('abcdefghijkl'),
    client=np.repeat(np.arange(12), [10] * 11 + [90]),
    held_out=np.zeros(200, bool),
  )
  correct = [place < k for k in range(11) for place in range(10)] + [True] * 90
  found = client_evaluation.figures(owners, scores_of(correct))
  assert found == {
    'client_accuracy_mean': pytest.approx(6.5 / 12),
    'client_accuracy_std': pytest.approx(
      statistics.pstdev([*(k / 10 for k in range(11)), 1.0])
    ),
    # Place 1.1 of 0 .. 11 in 0.0, 0.1, 0.2, ...
    'client_accuracy_p10': pytest.approx(0.11),
    'client_accuracy_worst': 0.0,
    'client_accuracy_per_example': 145 / 200,
  }


def test_every_test_example_is_counted_once(source):
  """Held out for the server, at a client, or at neither."""
  partition = native(source, server_examples=6, num_clients=1, seed=0)
  owners = owners_of(source, partition)
  ids = collections.Counter(source.test.client_ids)
  held_out = sum(ids[name] for name in partition.held_out_client_names)
  own = sum(ids[name] for name in partition.client_names)
  assert partition.held_out_client_names and own
  assert owners.describe() == {
    'clients_with_test_examples': 1,
    'client_test_examples': own,
    'held_out_test_examples': held_out,
    'unseen_test_examples': len(TEST_IDS) - own - held_out,
  }
  text = client_evaluation.describe(owners)
  assert f'1 of 1 clients, with {own} test' in text
  correct = np.isin(source.test.client_ids, partition.held_out_client_names)
  found = client_evaluation.figures(owners, scores_of(correct))
  assert found['client_accuracy_mean'] == found['unseen_accuracy'] == 0.0
  assert found.get('held_out_accuracy') == (1.0 if held_out else None)


def test_clients_of_sets_are_dealt_the_test_examples(source):
  sets = {'sets_per_client': CLASSES, 'client_examples': 4 * CLASSES}
  partition = partitions.build(
    'u_sets', source, seed=3, num_clients=2, u_set_recipe='code', **sets
  )
  owners = owners_of(source, partition)
  labels = source.test.labels
  dealt = assignment.deal_test_evenly(labels, CLASSES, 2, seed=3)
  np.testing.assert_array_equal(owners.client, dealt)
  assert owners.describe() == {
    'clients_with_test_examples': 2,
    'client_test_examples': len(TEST_IDS),
    'held_out_test_examples': 0,
    'unseen_test_examples': 0,
  }


def test_off_is_nothing(source, tmp_path):
  owners = owners_of(source, native(source), rounds=0)
  assert owners is None
  with (
    csv_files.MetricLog(tmp_path / 'metrics.csv', 1) as log,
    log.beside('clients.csv', is_wanted=False) as clients,
  ):
    assert clients is None
  assert not (tmp_path / 'clients.csv').exists()


def test_stale_rows_go_where_a_run_goes_on_without_evaluating(tmp_path):
  path = tmp_path / 'clients.csv'
  header = 'round,client,name,examples,accuracy,loss\n'
  path.write_text(f'{header}1,0,a,2,0.5,0.1\n2,0,a,2,0.5,0.1\n')
  metrics_csv = tmp_path / 'metrics.csv'
  metrics_csv.write_text('round,client_accuracy_mean\n1,0.5\n2,0.5\n')
  with (
    csv_files.MetricLog(metrics_csv, 2) as log,
    log.beside('clients.csv', is_wanted=False) as clients,
  ):
    assert clients is None
  assert path.read_text() == f'{header}1,0,a,2,0.5,0.1\n'


def test_refusals_once_the_data_are_known(source):
  partition = native(source)
  for ids, message in (
    (None, 'add client_ids to test.npz'),
    (np.full(len(TEST_IDS), 'x', object), 'impossible: none of the 4 clients'),
  ):
    test = dataclasses.replace(source.test, client_ids=ids)
    changed = dataclasses.replace(source, name='npz', test=test)
    with pytest.raises(flags.UsageError, match=message):
      owners_of(changed, partition, rounds=5)


def test_last_figures_are_those_of_the_last_round_alone():
  names = ['accuracy', 'client_accuracy_mean', 'held_out_accuracy']
  table = pd.DataFrame([[0.1, 0.3, 0.5], [0.2, 0.4, np.nan]], columns=names)
  assert client_evaluation.last_figures(table) == {'client_accuracy_mean': 0.4}
