"""The pages of the API that are made when the site is built."""

import importlib
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_ssl

# It needs Sphinx, which `make test` does not install.
pytestmark = pytest.mark.notebooks
_DOCS = pathlib.Path(__file__).parents[2] / 'docs'
_BUILDERS = sorted({s.builder.__name__ for s in tff_ssl.PROCESSES.values()})


@pytest.fixture(scope='module')
def extension():
  """Imports an extension of the site."""
  sys.path.insert(0, str(_DOCS / '_ext'))
  yield importlib.import_module
  sys.path.remove(str(_DOCS / '_ext'))


def _sources():
  folder = _DOCS / 'reference' / 'api'
  return {p.name: p.read_text(encoding='utf-8') for p in folder.glob('*.md')}


def test_every_public_name_has_a_page(extension):
  made = extension('api_pages').pages(_sources())
  assert sorted(made) == tff_ssl.__all__
  assert '.. autofunction:: tff_ssl.build_fedul\n' in made['build_fedul']
  assert '.. autoclass:: tff_ssl.Supervised\n' in made['Supervised']
  assert '| `fedprox` | Supervised FedProx' in made['build_fed_avg']
  assert '[arXiv 1812.06127](https://arxiv.org/abs/' in made['build_fed_avg']


def test_a_name_on_no_page_is_told(extension):
  sources = _sources()
  del sources['privacy.md']
  with pytest.raises(ValueError, match=r"'PrivacyAccount'.* one page of the"):
    extension('api_pages').pages(sources)


def test_a_page_links_its_names(extension):
  page = extension('api_pages').fill('# A\n<!-- public names: compiled -->\n')
  assert '| [`load_process`](names/load_process.md) | ' in page
  assert 'names/SavedProcess\n' in page


@pytest.mark.parametrize('name', _BUILDERS)
def test_an_example_runs(name, extension, tmp_path):
  code = extension('api_pages').example(name)
  images = np.zeros([20, 28, 28, 1], np.uint8)
  labels = np.arange(20, dtype=np.int32) % 10
  names = {
    'server_data': tff.tensorflow.computation(
      lambda: tf.data.Dataset.from_tensors({'x': images, 'y': labels})
    ),
    'rounds': [],
  }
  exec(code.replace('/data/states', str(tmp_path)), names)
  assert names['weights'].trainable


def test_signatures_are_short_and_have_types(extension):
  arguments, result = extension('api_pages').short_signature(
    tff_ssl.build_scaffold
  )
  # Sphinx writes the last part of a name that begins with ~.
  assert '.ClientDataSpec, views: ~tff_ssl.protocols.Views,' in arguments
  assert '.TrainingPlan = TrainingPlan(batch_size=64, steps=16,' in arguments
  assert '.Wiring = Wiring())' in arguments
  assert result.startswith('~tensorflow_federated.')
  assert result.endswith('.LearningProcess')
  assert extension('api_pages').short_signature(tff_ssl.Supervised)[1] is None


@pytest.mark.parametrize(
  'text, latex',
  [
    ('w_avg,i <- w_s', r'w_{\text{avg},i} \leftarrow  w_{s}'),
    ('sum_{k in G_i} w_k / |G_i|', r'\sum _{k \in  G_{i}} w_{k} / |G_{i}|'),
    ('pi_mk >= tau', r'\pi _{mk} \ge  \tau '),
    ('argmax y_hat(x^+)', r'\operatorname{argmax} \hat{y}(x^{+})'),
    ('||psi||_1, D_pi^-1', r'\| \psi \| _{1}, D_{\pi }^{-1}'),
    ('T steps on L_k', r'T \text{ steps on } L_{k}'),
    ('loss(x) = 1[x >= 0]', r'\text{ loss}(x) = \mathbf{1}[x \ge  0]'),
    (
      'a  b  (Eq. 7)\n   c',
      r'\begin{array}{lll} a & b & \text{(Eq. 7)} \\  & c \end{array}',
    ),
  ],
)
def test_equations_in_plain_text(text, latex, extension):
  assert extension('ascii_math').to_latex(text) == latex
