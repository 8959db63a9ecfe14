"""The notebooks: addresses, stored outputs, and a short run of each."""

import os
import pathlib
import re

import pytest

nbformat = pytest.importorskip(
  'nbformat', reason='make test-notebooks installs it'
)
nbclient = pytest.importorskip(
  'nbclient', reason='make test-notebooks installs it'
)
pytest.importorskip('ipykernel', reason='make test-notebooks installs it')

pytestmark = pytest.mark.notebooks

_ROOT = pathlib.Path(__file__).parents[2]
_NOTEBOOKS = sorted((_ROOT / 'tutorials').glob('*.ipynb'))
# What a short run has in the place of the parameters.
_SHORT = {
  'ROUNDS': 12,
  'DATASET': 'digits',
  'NOISE': (0.8,),
  'CHECKS': '--checks=learns,copies_count_as_one',
  'CLIENTS_PER_ROUND': 10,
}
# In the place of what TFF downloads: a part of scikit-learn's digits, in the
# size of EMNIST.
_LOADED = (
  'train, test = tff.simulation.datasets.emnist.load_data(only_digits=True)'
)
_DATA = """
from sklearn import datasets

digits = datasets.load_digits()
pixels = 1 - np.kron(digits.images, np.ones([3, 3])).astype(np.float32) / 16
pixels = np.pad(pixels, [(0, 0), (2, 2), (2, 2)], constant_values=1)
train, test = (
  tff.simulation.datasets.TestClientData({
    str(i): {'pixels': pixels[j], 'label': digits.target[j].astype(np.int32)}
    for i, j in enumerate(np.split(np.arange(first, first + 400), 20))
  })
  for first in (0, 400)
)
"""
# What the last cells show, beside pictures.
_SHOWN = {
  '5_own_algorithm': (r'learns\s+\S+ s\s+ok', r'promises kept, 0 broken'),
  '6_program_with_privacy': (
    r'training_checkpoint_round_10: accuracy 0\.\d',
    'epsilon',
  ),
}
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
  assert len(_NOTEBOOKS) >= 6


def test_the_address_in_the_readme():
  text = (_ROOT / 'README.md').read_text(encoding='utf-8')
  assert f'git clone -q {_repository()} ' in text


@_each
def test_addresses_are_those_of_the_repository(path):
  notebook = nbformat.read(path, as_version=4)
  owner = _repository().removeprefix('https://github.com/')
  colab = f'colab.research.google.com/github/{owner}/blob/main/tutorials/'
  assert f'{colab}{path.name}' in notebook.cells[0].source
  assert 'a CPU (Runtime, Change runtime type)' in notebook.cells[0].source
  (setup,) = _cells(notebook, 'setup')
  assert f'git clone -q {_repository()} ' in setup.source


@_each
def test_it_is_stored_with_the_outputs_of_a_run(path):
  notebook = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  text, pictures = _outputs(notebook)
  for pattern in _SHOWN.get(path.stem, ('Final test accuracy',)):
    assert re.search(pattern, text), pattern
  assert pictures >= 1
  assert not re.findall(r'/(?:home|root|tmp|work)/\S*|INFO:|\w+Warning:', text)


@pytest.fixture(scope='module')
def execute():
  """Executes notebooks in one kernel, which imports TensorFlow once."""
  client = nbclient.NotebookClient(nbformat.v4.new_notebook(), timeout=500)
  # Where ipykernel finds this, it does not show what processes print.
  env = {k: v for k, v in os.environ.items() if k != 'PYTEST_CURRENT_TEST'}

  def run(notebook):
    client.nb = notebook
    client.execute(cleanup_kc=False)

  with client.setup_kernel(env=env):
    yield run


@_each
def test_a_short_run(path, tmp_path, execute):
  notebook = nbformat.read(path, as_version=4)
  (setup,) = _cells(notebook, 'setup')
  # Of the notebook before, no name is left.
  setup.source = (
    f'%reset -f\n%cd -q {_ROOT}\nfrom tutorials import colab; colab.start()'
  )
  (parameters,) = _cells(notebook, 'parameters')
  names = re.findall(r'^(\w+) =', parameters.source, re.MULTILINE)
  values = {**_SHORT, 'FOLDER': str(tmp_path)}
  parameters.source = '\n'.join(f'{n} = {values[n]!r}' for n in names)
  for cell in _cells(notebook, 'data'):
    assert _LOADED in cell.source
    cell.source = cell.source.replace(_LOADED, _DATA)

  execute(notebook)

  text, pictures = _outputs(notebook)
  assert 'This kernel has TensorFlow Federated' in text
  for pattern in _SHOWN.get(path.stem, ('Final test accuracy',)):
    assert re.search(pattern, text), pattern
  assert pictures >= 1
