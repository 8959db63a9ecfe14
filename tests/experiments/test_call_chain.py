"""The documentation's list of files from the command line to the loss."""

import pathlib
import re

from benchmarks import structure

_ROOT = pathlib.Path(__file__).parents[2]


def test_docs_name_the_files_on_the_stack_of_the_first_loss():
  called = list(dict.fromkeys(structure.calls_to_the_loss(_ROOT)))

  text = (_ROOT / 'docs/how_to/extend.md').read_text()
  (passage,) = re.findall(
    r'From the command line to the arithmetic.*\Z', text, re.DOTALL
  )
  named = re.findall(r'`((?:experiments|datasets|tff_ssl)/\S+\.py)`', passage)
  assert named == called
  assert 'ten files' in passage
  assert len(called) == 10
