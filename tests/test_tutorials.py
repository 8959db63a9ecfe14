"""The notebooks: addresses, stored outputs, and a short run of each."""

import os
import pathlib
import re

import pytest

nbformat = pytest.importorskip('nbformat', reason='make docs installs it')
nbclient = pytest.importorskip('nbclient', reason='make docs installs it')
pytest.importorskip('ipykernel', reason='make docs installs it')

_ROOT = pathlib.Path(__file__).parents[1]
_NOTEBOOKS = sorted((_ROOT / 'tutorials').glob('*.ipynb'))
# What a short run has in the place of the parameters.
_SHORT = {'ROUNDS': 12, 'DATASET': 'digits'}
_each = pytest.mark.parametrize('path', _NOTEBOOKS, ids=lambda path: path.stem)


def _cells(notebook, tag):
  return [c for c in notebook.cells if tag in c.metadata.get('tags', ())]


def _outputs(notebook):
  """Returns all text that the notebook shows, and its pictures."""
  texts, pictures = [], 0
  for cell in notebook.cells:
    for output in cell.get('outputs', ()):
      data = output.get('data', {})
      texts += [output.get('text', ''), data.get('text/plain', '')]
      pictures += 'image/png' in data
  return '\n'.join(texts), pictures


def _repository():
  text = (_ROOT / 'CITATION.cff').read_text(encoding='utf-8')
  return re.search(r'^repository-code: "(.*)"$', text, re.MULTILINE)[1]


def test_there_are_notebooks():
  assert len(_NOTEBOOKS) >= 2


def test_the_address_in_the_readme():
  text = (_ROOT / 'README.md').read_text(encoding='utf-8')
  assert f'git clone -q {_repository()} ' in text


@_each
def test_addresses_are_those_of_the_repository(path):
  notebook = nbformat.read(path, as_version=4)
  owner = _repository().removeprefix('https://github.com/')
  colab = f'colab.research.google.com/github/{owner}/blob/main/tutorials/'
  assert f'{colab}{path.name}' in notebook.cells[0].source
  (setup,) = _cells(notebook, 'setup')
  assert f'git clone -q {_repository()} ' in setup.source


@_each
def test_it_is_stored_with_the_outputs_of_a_run(path):
  notebook = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  text, pictures = _outputs(notebook)
  assert 'Final test accuracy' in text
  assert pictures >= 1
  assert not re.findall(r'/(?:home|root|tmp|work)/\S*', text)


@_each
def test_a_short_run(path, tmp_path):
  notebook = nbformat.read(path, as_version=4)
  (setup,) = _cells(notebook, 'setup')
  setup.source = f'%cd -q {_ROOT}\nfrom tff_ssl import colab; colab.start()'
  (parameters,) = _cells(notebook, 'parameters')
  names = re.findall(r'^(\w+) =', parameters.source, re.MULTILINE)
  values = {**_SHORT, 'FOLDER': str(tmp_path)}
  parameters.source = '\n'.join(f'{n} = {values[n]!r}' for n in names)

  # Where ipykernel finds this, it does not show what processes print.
  env = {k: v for k, v in os.environ.items() if k != 'PYTEST_CURRENT_TEST'}
  nbclient.NotebookClient(notebook, timeout=500).execute(env=env)

  text, pictures = _outputs(notebook)
  assert 'This kernel has TensorFlow Federated' in text
  assert 'Final test accuracy' in text
  assert pictures >= 1
