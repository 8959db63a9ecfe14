"""The page of what processes ask of a platform is that of the code."""

import pathlib

import pytest

from tff_ssl import PROCESSES
from tools import deployment

_PAGE = pathlib.Path(__file__).parents[2] / 'docs/reference/deployment.md'
_HOW = f'docs/reference/deployment.md is stale: run {deployment.COMMAND}'


def _cells():
  """The cells of each row of the page, by process."""
  rows = [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in _PAGE.read_text(encoding='utf-8').splitlines()
    if line.startswith('|')
  ]
  return {row[0].strip('`'): row[1:] for row in rows}


def test_p2_all_processes_and_aggregators_are_there():
  cells = _cells()
  heads = cells.pop('process')
  assert [head.strip('`') for head in heads[6:-1]] == list(
    deployment.AGGREGATORS
  ), _HOW
  del cells['---']
  assert list(cells) == list(PROCESSES), _HOW
  # With secure sums the server sees nothing else, or they are refused.
  secure = heads.index('`secure`')
  assert all(
    row[-1] == 'nothing' or row[secure].startswith(('no ', '-'))
    for row in cells.values()
  )


@pytest.mark.parts
def test_the_row_of_a_process_is_current(tff_context):
  row = deployment.measure('grouping')
  (line,) = [
    line
    for line in deployment.text([row]).splitlines()
    if line.startswith('| `grouping`')
  ]
  assert line in _PAGE.read_text(encoding='utf-8'), _HOW


@pytest.mark.parametrize(
  'flags, words',
  [
    ([], 'arguments are required: --process'),
    (['--process=none'], '--process=none is none of'),
  ],
)
def test_bad_flags(capsys, flags, words):
  with pytest.raises(SystemExit, match='2'):
    deployment.main(flags)
  assert words in capsys.readouterr().err
