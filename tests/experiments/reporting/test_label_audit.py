"""Who has labels and what they decided, against splits counted by hand."""

import dataclasses

import numpy as np
import pytest
import run_folders

from datasets.partition.assignment import Partition
from datasets.records import split_manifest
from experiments.reporting import label_audit, run_groups
from experiments.tables import measures

# The server has 2 of 9 examples, one client 4 and the other 3.
ARRAYS = {
  'server_indices': np.array([0, 1]),
  'examples': np.array([2, 3, 4, 5, 6, 7, 8]),
  'offsets': np.array([0, 4, 7]),
}
# Of all nine examples, the clients have labels of three.
DEALT = {
  'partition': {
    'server_indices': np.array([], np.int64),
    'labelled_indices': np.array([2, 3, 6]),
  },
  'split': {'labels_at': 'dealt'},
}


def write_run(folder, process, *, partition=None, split=None, **flags):
  """Writes what the audit reads of a run, and returns its group."""
  right = flags.pop('pseudo_label_accuracy', None)
  metrics = {'round': [1], 'accuracy': [0.5], 'pseudo_label_accuracy': [right]}
  run_folders.write_run(folder, process, metrics, flags=flags)
  if split is not None:
    split = {'arguments': {'noniid_r': 0.4}, **split}
    split_manifest.write(
      Partition(
        **{**ARRAYS, **dict(partition or {})},
        client_names=('a', 'b'),
        name='r',
        source_name='digits',
        source_version='1',
        num_train=9,
        seed=0,
        arguments=split.pop('arguments'),
      ),
      folder / 'split.json',
      folder / 'split.npz',
      **split,
    )
  (group,) = run_groups.read_groups([folder])
  return group


def lines_of(group):
  return label_audit.of_group(group).lines


@pytest.mark.parametrize(
  'process, unlabelled',
  [
    ('grouping', '7: clients train on them without their labels, with pseudo-'),
    ('server_only', '7: nobody trains on them'),
  ],
)
def test_labels_at_the_server(tmp_path, process, unlabelled):
  group = write_run(tmp_path / 'x', process, split={'labels_at': 'server'})
  lines = lines_of(group)
  assert lines['Labels at the server'] == '2: the server trains on them'
  assert lines['Labels at clients'] == 'none'
  assert lines['Unlabelled examples at clients'].startswith(unlabelled)
  assert 'by the classes of all of them' in lines['Who gets which example']
  # The column of pseudo-labels is empty: nothing was measured there.
  assert lines['Measured, not trained on'] == 'test labels (accuracy, loss)'
  assert lines['Early stopping'] == 'none: all rounds were trained'
  assert lines['Selection of the round'].startswith('none')
  assert lines['Tuning'].startswith('not recorded')
  assert label_audit.of_group(group).chosen_by_test == ()


def test_some_labels_of_the_clients(tmp_path):
  few, alone = (
    lines_of(write_run(tmp_path / process, process, **DEALT))
    for process in ('fedavg_fixmatch', 'fsl')
  )
  assert few['Labels at the server'] == 'none'
  assert few['Labels at clients'] == '3: clients train on them'
  assert few['Unlabelled examples at clients'].startswith('4: clients train')
  assert alone['Unlabelled examples at clients'] == '4: nobody trains on them'


def test_training_on_hidden_labels_is_named(tmp_path):
  true = {'experts': 'truth', 'pseudo_label_accuracy': 1.0}
  lines = lines_of(write_run(tmp_path / 'x', 'fedlabel', **DEALT, **true))
  assert lines['Measured, not trained on'] == 'test labels (accuracy, loss)'
  hidden = lines['Unlabelled examples at clients']
  assert hidden.startswith('4: clients train on them with the labels that')
  assert '--experts=truth' in hidden


def test_labels_that_are_drawn_anew_in_each_pass(tmp_path):
  partition = {'server_indices': np.array([], np.int64)}
  # Half of 4 and of 3 is hidden: 2 + 2 or 2 + 1 labels are left.
  split = {'labels_at': 'clients', 'redrawn_ratio': 0.5}
  group = write_run(
    tmp_path / 'x', 'fedlabel', partition=partition, split=split
  )
  found = label_audit.split_of(tmp_path / 'x')
  assert found.labelled.tolist() == [4, 3]
  first, second = found.labelled_in_a_pass
  assert first == 2 and second in (1, 2)
  labels = lines_of(group)['Labels at clients']
  assert labels.startswith('7: clients train on them; ')
  assert f'{first + second} of them in each pass' in labels


def test_no_label_deals_examples_of_one_kind(tmp_path):
  split = {'labels_at': 'server', 'arguments': {'noniid_r': 0.0}}
  group = write_run(tmp_path / 'x', 'grouping', split=split)
  decided = lines_of(group)['Who gets which example']
  assert decided == 'no label decided (partition r)'


@pytest.mark.parametrize(
  'measure, named',
  [
    ('accuracy', ()),
    ('mean_of_last@5', ()),
    ('accuracy_at_best_validation', ()),
    ('best_accuracy', ('Selection of the round',)),
    ('rounds_to@0.8', ('Selection of the round',)),
  ],
)
def test_a_choice_by_test_labels_is_named(tmp_path, measure, named):
  group = write_run(tmp_path / 'x', 'grouping', split={'labels_at': 'server'})
  read = dataclasses.replace(group, measure=measures.parse(measure))
  audit = label_audit.of_group(read)
  assert audit.chosen_by_test == named


def test_stopping_by_the_labels_of_the_server(tmp_path):
  group = write_run(tmp_path / 'x', 'grouping', on_collapse='rewind')
  lines = lines_of(group)
  stopping = lines['Early stopping']
  assert stopping == "the server's labels (--on_collapse=rewind); no test label"
  assert label_audit.of_group(group).chosen_by_test == ()


def test_what_is_missing_is_not_recorded(tmp_path):
  group = write_run(tmp_path / 'x', 'no.such.module:SPEC')
  assert lines_of(group)['Training'].startswith('not recorded')
  split = {'labels_at': 'server'}
  group = write_run(tmp_path / 'x', 'no.such.module:SPEC', split=split)
  lines = lines_of(group)
  assert lines['Labels at the server'] == '2; not recorded what used them'
  (tmp_path / 'x' / 'split.npz').write_bytes(b'damaged')
  assert label_audit.split_of(tmp_path / 'x') is None


def test_validation_labels_are_named(tmp_path):
  group = write_run(tmp_path / 'x', 'grouping')
  with_some = dataclasses.replace(
    group, summaries=({**group.summaries[0], 'validation_examples': 72},)
  )
  assert '72 validation labels' in lines_of(with_some)['Tuning']
  assert 'chose by test labels' in lines_of(group)['Tuning']
