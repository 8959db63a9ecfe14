"""Makes a data set of texts out of what is installed: whose docstring is it?

The first paragraphs of docstrings of four packages, a thousand of each, in
`train.csv` and `test.csv`, as `--dataset=text` reads them:

    python -m examples.package_docstrings FOLDER
    python -m experiments.run --process=recommended --dataset=text \
        --data_dir=FOLDER --with_lower_bound --seeds=0,1,2

It is also a data set of its own, which needs no folder:

    python -m experiments.run --process=recommended \
        --dataset=examples.package_docstrings:SPEC
"""

import ast
import dataclasses
import importlib.metadata
import importlib.util
import pathlib
import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd

from datasets.sources.own import text
from datasets.sources.source import Source
from tff_ssl.common import whole_files

PACKAGES = ('matplotlib', 'numpy', 'scipy', 'sklearn')
_OF_EACH = 1000
_SHARE_TO_TEST = 0.2
# Shorter ones say little, and longer ones are no paragraphs.
_LENGTHS = range(20, 300)


def paragraphs(package: str) -> list[str]:
  """Returns the first paragraphs of a package's docstrings, sorted.

  Its files are read and not imported; tests are left out.

  Args:
    package: The name of an installed package.
  """
  spec = importlib.util.find_spec(package)
  (root,) = spec.submodule_search_locations
  found = set()
  for path in pathlib.Path(root).rglob('*.py'):
    if 'tests' not in path.parts:
      found.update(_of_file(path))
  return sorted(found)


def _of_file(path: pathlib.Path) -> Iterator[str]:
  kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, kinds) and (text := ast.get_docstring(node)):
      paragraph = ' '.join(text.split('\n\n')[0].split())
      if len(paragraph) in _LENGTHS:
        yield paragraph


def table(packages=PACKAGES, of_each: int = _OF_EACH) -> pd.DataFrame:
  """Returns paragraphs and their packages, in random order.

  Args:
    packages: Names of packages.
    of_each: The most paragraphs of each.
  """
  rng = np.random.default_rng(0)
  parts = []
  for package in packages:
    texts = rng.permutation(paragraphs(package))[:of_each]
    parts.append(pd.DataFrame({'text': texts, 'label': package}))
  return pd.concat(parts).sample(frac=1, random_state=0)


def main(folder: str | pathlib.Path) -> None:
  """Writes the files.

  Args:
    folder: Where; it is made.
  """
  rows = table()
  to_test = int(len(rows) * _SHARE_TO_TEST)
  path = pathlib.Path(folder)
  path.mkdir(parents=True, exist_ok=True)
  parts = {'train.csv': rows[to_test:], 'test.csv': rows[:to_test]}
  for name, part in parts.items():
    with whole_files.replacing(path / name) as file:
      part.to_csv(file, index=False)
  print(f'{len(rows) - to_test:,} train and {to_test:,} test texts in {folder}')


def load(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the texts, which are made once for the installed packages.

  Args:
    data_dir: Not read: the texts come from packages.
    cache_dir: Where the files are kept.
  """
  del data_dir
  owners = importlib.metadata.packages_distributions()
  versions = [importlib.metadata.version(owners[name][0]) for name in PACKAGES]
  folder = pathlib.Path(cache_dir, f'docstrings-{"-".join(versions)}')
  # It is the last file that `main` writes.
  if not (folder / 'test.csv').exists():
    main(folder)
  return dataclasses.replace(text.load(str(folder), cache_dir), name=SPEC.name)


SPEC = dataclasses.replace(
  text.SPEC,
  name='docstrings',
  description='first paragraphs of docstrings: of which package?',
  builder=load,
  check_files=lambda data_dir: None,
  settings=(),
  derive=None,
  has_native_split=False,
  may_lack_labels=False,
  is_of_user=False,
  signs=(),
)


if __name__ == '__main__':
  if len(sys.argv) != 2:
    sys.exit('usage: python -m examples.package_docstrings FOLDER')
  main(sys.argv[1])
