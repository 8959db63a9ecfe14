"""Makes a data set of texts out of what is installed: whose docstring is it?

The first paragraphs of docstrings of four packages, a thousand of each, in
`train.csv` and `test.csv`, as `--dataset=text` reads them:

    python -m examples.package_docstrings FOLDER
    python -m experiments.run --process=recommended --dataset=text \
        --data_dir=FOLDER --with_lower_bound --seeds=0,1,2
"""

import ast
import importlib.util
import pathlib
import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd

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


def main(folder: str) -> None:
  """Writes the files.

  Args:
    folder: Where; it is made.
  """
  rows = table()
  to_test = int(len(rows) * _SHARE_TO_TEST)
  path = pathlib.Path(folder)
  path.mkdir(parents=True, exist_ok=True)
  rows[to_test:].to_csv(path / 'train.csv', index=False)
  rows[:to_test].to_csv(path / 'test.csv', index=False)
  print(f'{len(rows) - to_test:,} train and {to_test:,} test texts in {folder}')


if __name__ == '__main__':
  if len(sys.argv) != 2:
    sys.exit('usage: python -m examples.package_docstrings FOLDER')
  main(sys.argv[1])
