"""Packages `tff_ssl`, and only it.

`datasets/` and `experiments/` are run from a checkout: the top-level name
`datasets` belongs to another project, so it is never installed.
"""

import pathlib
import re

import setuptools

_HERE = pathlib.Path(__file__).parent


def _version() -> str:
  """Returns the version that the package itself names, without importing it."""
  text = (_HERE / 'tff_ssl' / '__init__.py').read_text(encoding='utf-8')
  return re.search("^__version__ = '(.+)'$", text, re.MULTILINE)[1]


setuptools.setup(
  name='tff_ssl',
  version=_version(),
  description='Semi-supervised federated learning on TensorFlow Federated',
  long_description=(_HERE / 'README.md').read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  license_files=['LICENSE'],
  classifiers=[
    'License :: OSI Approved :: Apache Software License',
    'Programming Language :: Python :: 3.11',
  ],
  packages=setuptools.find_packages(include=['tff_ssl', 'tff_ssl.*']),
  package_data={'tff_ssl': ['py.typed', '*.pyi']},
  python_requires='>=3.11,<3.12',
  # tensorflow-federated is no hard dependency, since pip cannot satisfy its
  # metadata (docs/how_to/install.md). The extra is for environments that can.
  install_requires=['etils'],
  extras_require={'tff': ['tensorflow-federated==0.87.0']},
)
