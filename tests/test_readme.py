"""What the README says of the code, next to the code."""

import pathlib
import re

from tff_ssl.algorithms import PROCESSES

_README = pathlib.Path(__file__).parents[1] / 'README.md'


def test_the_table_of_processes_lists_the_registry():
  table, _, _ = _README.read_text().partition(
    '`python -m experiments.run --list`'
  )
  rows = re.findall(r'^\| (`[^|]+) \|', table, re.MULTILINE)
  # The head of the table, which names the flag.
  assert rows[0] == '`--process`'
  names = [name for row in rows[1:] for name in re.findall(r'`(\w+)`', row)]
  assert sorted(names) == sorted(PROCESSES)
