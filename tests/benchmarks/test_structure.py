"""What the source tree is measured by."""

import textwrap

import pytest

from benchmarks import structure
from experiments.config import catalogue


def _write(folder, files):
  for name, text in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


@pytest.fixture
def checkout(tmp_path):
  """A tree with two settings, one of which is named in other places."""
  files = {
    'tff_ssl/common/setting.py': '',
    'tff_ssl/algorithms/one.py': """
      RATE = Setting('rate', float, 'The rate.')
      SLOW = dataclasses.replace(RATE, default=0.1)
      OTHER = dataclasses.replace(RATE, name='other_rate')
      def build_one(model, *, rate, seed):
        return model
      def build_two(a, b, c, d, *, rate, seed):
        return 'rate' + 'the rate'
      def _build(rate):
        return rate
      """,
    'datasets/two.py': """
      RATE = setting.Setting('rate', float, 'Anew.')
      DEFAULTS = {'rate': 1, 'other_rate': 2}
      def draw(a, b, c, d, e, f, g, h, i):  # noqa: PLR0913
        return a
      """,
    'experiments/run.py': """
      NAMED = 'rate'
      def branch(x):
        if x: return 1
        elif x + 1: return 2
        return 3
      """,
    'experiments/config/table.py': "RATES = ('rate', 'rate')",
  }
  _write(tmp_path, files)
  return tmp_path


def test_settings_and_arguments_are_counted(checkout):
  # What is made of a record is the same one.
  assert structure.declarations(checkout) == {'rate': 2, 'other_rate': 1}
  # Names count outside of records, where settings are known.
  found = structure.literals(checkout, ['rate', 'other_rate', 'third'])
  assert found == {'rate': 4, 'other_rate': 1, 'third': 0}
  # Arguments of public builders.
  assert structure.builder_arguments(checkout) == {
    'build_one': 3,
    'build_two': 6,
  }


def test_the_stack_at_the_loss_has_the_files_of_the_checkout(tmp_path):
  files = {
    'experiments/__init__.py': '',
    'tff_ssl/__init__.py': '',
    'tff_ssl/objectives/__init__.py': '',
    'experiments/run.py': """
      from tff_ssl import training
      def main(arguments):
        training.train()
      """,
    # Between its frame and the next is one of Python's own.
    'tff_ssl/training.py': """
      import re
      from tff_ssl.objectives import consistency
      def train():
        re.sub('x', consistency.ConsistencyRegularization(), 'x')
      """,
    'tff_ssl/objectives/consistency.py': """
      class ConsistencyRegularization:
        def __call__(self, match):
          return ''
      """,
  }
  _write(tmp_path, files)
  assert structure.calls_to_the_loss(tmp_path) == [
    'experiments/run.py',
    'tff_ssl/training.py',
    'tff_ssl/objectives/consistency.py',
  ]


def test_measures_of_a_checkout(checkout):
  assert structure.measure(checkout, with_stack=False) == {
    'lines of the product': '22',
    'of these, code': '19',
    'of these, comments': '1',
    'files': '5',
    'files of at most 80 lines': '5',
    'lines of code in a function': '3 (experiments/run.py:branch)',
    'settings': '2',
    'places that name a setting, beside its record': (
      'median 2.5, largest 4 (rate)'
    ),
    'settings with several records': '1, rate',
    'arguments of the builders of algorithms': (
      'median 4.5, largest 6 (build_two)'
    ),
    'functions more complex than 15': '0, largest 3 (experiments/run.py:3)',
    'functions with over 10 arguments': '0, largest 9 (datasets/two.py:4)',
    'modules in the largest folder': '1 (datasets)',
  }


def test_a_folder_that_is_no_checkout_is_refused(tmp_path, capsys):
  with pytest.raises(SystemExit):
    structure.main([f'--against={tmp_path}', '--skip_stack'])
  assert 'has no folder tff_ssl: name a checkout' in capsys.readouterr().err


def test_all_settings_of_the_runner_are_found():
  declared = structure.declarations(structure._ROOT)
  assert set(catalogue.known()) <= set(declared)


def test_the_table_leaves_cells_empty():
  text = structure.table({'here': {'a': '1', 'b': '22'}, 'there': {'a': '3'}})
  assert text.splitlines() == [
    '|   | here | there |',
    '| - | ---- | ----- |',
    '| a | 1    | 3     |',
    '| b | 22   |       |',
  ]
