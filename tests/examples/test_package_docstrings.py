"""The data set of docstrings: whole, the same each time, and readable."""

import pandas as pd

from datasets.sources import catalogue
from examples import package_docstrings


def test_paragraphs_are_first_ones():
  found = package_docstrings.paragraphs('absl')
  assert len(found) > 100 and found == sorted(set(found))
  assert all(20 <= len(text) < 300 and '\n' not in text for text in found)
  assert (
    'Abseil Python logging module implemented on top of standard logging.'
    in found
  )


def test_a_run_reads_it(tmp_path, monkeypatch):
  small = package_docstrings.table(('absl', 'etils'), 60)
  assert small.equals(package_docstrings.table(('absl', 'etils'), 60))
  monkeypatch.setattr(package_docstrings, 'table', lambda: small)
  package_docstrings.main(tmp_path / 'texts')
  train, test = (
    pd.read_csv(tmp_path / 'texts' / f'{name}.csv')
    for name in ('train', 'test')
  )
  assert (len(train), len(test)) == (96, 24)
  source = catalogue.load(
    'text', data_dir=str(tmp_path / 'texts'), cache_dir='unused'
  )
  assert source.class_names == ('absl', 'etils')
  with_own_name = package_docstrings.load(None, str(tmp_path / 'cache'))
  assert with_own_name.name == package_docstrings.SPEC.name
  assert with_own_name.version == source.version
  # From the files that it has made.
  monkeypatch.setattr(package_docstrings, 'table', None)
  again = package_docstrings.load(None, str(tmp_path / 'cache'))
  assert again.digests() == with_own_name.digests() == source.digests()
