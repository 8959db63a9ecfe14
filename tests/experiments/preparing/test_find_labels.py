"""--process=recommended on a user's own data, whose labels decide."""

import numpy as np
import pytest

from datasets.records import split_manifest
from datasets.sources import catalogue
from experiments import run, tune
from experiments.config import flags
from experiments.preparing import data, description
from experiments.tables import lower_bound, recipes, seeds


@pytest.fixture
def argv(tmp_path):
  """A function that writes a folder, and returns a command line for it."""

  def write(labelled, server=0, owners=True):
    """Writes examples of two classes of four clients, `labelled` of each."""
    rng = np.random.default_rng(0)
    for split, number in (('train', 80), ('test', 10), ('server', server)):
      if not number:
        continue
      labels = np.arange(number) // 4 % 2
      arrays = {'images': rng.integers(0, 256, [number, 8, 8], np.uint8)}
      if split == 'train':
        labels[np.arange(80) // 4 >= labelled] = -1
        if owners:
          arrays['client_ids'] = [f'h{i % 4}' for i in range(80)]
      np.savez(tmp_path / f'{split}.npz', labels=labels, **arrays)
    return [
      *('run', '--process=recommended', '--dataset=npz'),
      *(f'--data_dir={tmp_path}', f'--cache_dir={tmp_path / "cache"}'),
    ]

  yield write
  data.forget()


def make(argv, *more):
  return recipes.make(flags.parse([*argv, *more]))


@pytest.mark.parametrize(
  'labels, process, told',
  [
    ({'labelled': 5}, 'fedavg_robust', '4 clients, each with 5 of 20 examples'),
    ({'labelled': 20}, 'fedavg', '4 clients, each with 20 of 20 examples'),
    (
      {'labelled': 0, 'server': 12},
      'grouping_robust',
      "The server's own 12 examples are labelled, and none of the 80",
    ),
    (
      {'labelled': 20, 'owners': False},
      'grouping_robust',
      'All 80 training examples are labelled',
    ),
    (
      {'labelled': 5, 'owners': False},
      'fedavg_robust',
      '20 of 80 training examples that --partition=r deals',
    ),
    (
      {'labelled': 20, 'server': 12},
      'grouping_supervised',
      "20 of 20 examples labelled, and so are the server's own 12",
    ),
    (
      {'labelled': 5, 'server': 12},
      'fedavg_robust',
      "so the server's 12 labels are left out",
    ),
    (
      {'labelled': 2, 'server': 12},
      'grouping_robust',
      "so the clients' 8 labels are left out",
    ),
  ],
)
def test_the_labels_decide(argv, labels, process, told):
  made = make(argv(**labels))
  assert made.process == process
  assert told in made.recommendation
  assert made.origins['process'] == 'recommended'
  # What the run resumes from.
  assert make(argv(**labels)).used == made.used


def test_owners_of_another_partition_do_not_count(argv):
  assert make(argv(20), '--partition=r').process == 'grouping_robust'


def test_what_is_left_out_is_counted(argv):
  def said(*more):
    made = make(argv(labelled=5, server=12), *more)
    prepared = data.prepare(made)
    return '\n'.join(description.lines_of_data(prepared))

  assert '20 of the 32 labels of the training examples (0 at the' in said()
  text = said('--process=grouping_robust')
  assert '12 of the 32 labels of the training examples (12 at the' in text
  assert '20 are not used' in text


@pytest.mark.parametrize(
  'given, is_told',
  [
    (['--process=fedavg_robust', '--mask_ratio=0'], True),
    (['--process=fedavg_robust'], True),
    (['--process=fedavg_robust', '--min_coverage=0.2'], False),
    (['--process=fedavg'], False),
  ],
)
def test_clients_of_few_classes_are_told(argv, tmp_path, given, is_told):
  """Each of four owners has one of four classes."""
  line = argv(labelled=20)
  path = tmp_path / 'train.npz'
  arrays = dict(np.load(path))
  arrays['labels'] = np.arange(80) % 4
  np.savez(path, **arrays)
  notes = ' '.join(data.prepare(make(line, *given)).notes)
  assert ('holds 1.0 of 4 classes in effect' in notes) == is_told


def test_clients_of_most_classes_are_not(argv):
  """They know five labels each, of two classes, and others lack theirs."""
  line = argv(labelled=5)
  assert 'in effect' not in ' '.join(data.prepare(make(line)).notes)


@pytest.fixture
def reads(monkeypatch):
  """The names of the data sets that were read, one for each time."""
  found, load = [], catalogue.load

  def count(name, **content):
    found.append(name)
    return load(name, **content)

  monkeypatch.setattr(catalogue, 'load', count)
  return found


def test_several_runs_read_the_data_once(argv, reads, tmp_path):
  line = argv(labelled=0, server=12)
  given = flags.parse([*line, '--with_lower_bound', '--seeds=0,1'])
  runs = seeds.plan(given)
  pairs = [lower_bound.plan(one.given) for one in runs]
  names = [each.settings.process for pair in pairs for each in pair]
  assert names == ['grouping_robust', 'server_only'] * 2
  table = tmp_path / 'own.csv'
  table.write_text(
    'row,flags,published,source,seeds,note\n'
    'a,--process=recommended --dataset=npz --total_rounds=3,,,0,\n'
  )
  folders = {name: given[name] for name in ('data_dir', 'cache_dir')}
  tried = tune.plan(
    str(table), 'learning_rate', ['0.1', '0.2'], folders=folders
  )
  made = [run.settings for (run,) in tried.values()]
  assert [each.process for each in made] == ['grouping_robust'] * 2
  assert not any('process' in recipes.changes(each) for each in made)
  assert reads == ['npz']


def test_nothing_is_read_for_help_and_refusals(argv, reads, capsys, error_of):
  line = argv(labelled=5)
  assert run.main([*line, '--help']) == 0
  assert '--process=recommended is one of' in capsys.readouterr().out
  assert '--learning_rate=-1.0' in error_of(
    run.main, *line[1:], '--learning_rate=-1'
  )
  assert not reads
  line = argv(labelled=20)
  error = error_of(run.main, *line[1:], '--with_lower_bound')
  assert 'no such bound of the process fedavg;' in error
  assert '4 clients, each with 20 of 20 examples labelled' in error
  assert reads == ['npz']


@pytest.mark.parametrize(
  'labels, more, ratio',
  [
    # The default hides nothing where labels are missing anyway.
    ({'labelled': 5}, [], None),
    ({'labelled': 20}, ['--process=fedavg_robust'], 0.8),
    ({'labelled': 20}, ['--labelled_fraction=0.5'], 0.5),
  ],
)
def test_the_lower_bound_has_the_labels_of_its_run(argv, labels, more, ratio):
  line = [*argv(**labels), *more, '--with_lower_bound']
  own, bound = (run.settings for run in lower_bound.plan(flags.parse(line)))
  assert (own.process, bound.process) == ('fedavg_robust', 'fedavg')
  assert (bound.mask_ratio or None) == ratio
  seen = [
    split_manifest.known_to_clients(prepared.partition, prepared.labels_at)
    for prepared in map(data.prepare, (own, bound))
  ]
  np.testing.assert_array_equal(*seen)
  assert 0 < len(seen[0]) < 80


def test_missing_data_are_told(argv, error_of, tmp_path):
  line = argv(labelled=5)
  (tmp_path / 'train.npz').unlink()
  assert 'train.npz' in error_of(run.main, *line[1:])
