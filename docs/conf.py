"""How Sphinx builds the documentation (`make docs`)."""

import gc
import pathlib
import re
import sys

from bokeh import resources

# The garbage collector takes a sixth of the build's time. Without it the build
# needs 0.3 GB more.
gc.disable()

_DOCS = pathlib.Path(__file__).resolve().parent
_ROOT = _DOCS.parent
sys.path[:0] = [str(_ROOT), str(_DOCS / '_ext')]

import ascii_math  # noqa: E402


def _value(name: str) -> str:
  """Returns a value of CITATION.cff."""
  text = (_ROOT / 'CITATION.cff').read_text(encoding='utf-8')
  return re.search(rf'^{name}: "?([^"\n]+)"?$', text, re.MULTILINE)[1]


# The one place of the address is CITATION.cff.
_REPOSITORY = _value('repository-code')

project = 'tff_ssl'
author = 'The tff_ssl authors'
copyright = '2026, the tff_ssl authors'
release = _value('version')

extensions = [
  'api_pages',
  'ascii_math',
  'myst_nb',
  'sphinx.ext.autodoc',
  'sphinx.ext.napoleon',
  'sphinx.ext.viewcode',
  'sphinx_copybutton',
  'sphinx_design',
]
exclude_patterns = ['_build']
myst_enable_extensions = ['colon_fence', 'dollarmath']
myst_heading_anchors = 3
# Notebooks are shown with the outputs that they are stored with.
nb_execution_mode = 'off'
# One box for all that a cell prints.
nb_merge_streams = True

# `api_pages` writes types into signatures.
autodoc_typehints = 'none'
python_maximum_signature_line_length = 60
autodoc_member_order = 'bysource'
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
# A word in single backticks is code, in docstrings too.
default_role = 'code'

html_theme = 'furo'
html_math_renderer = 'mathml'
html_title = f'tff_ssl {release}'
html_static_path = ['_static']
# Fields that narrow the long lists of the reference down.
html_js_files = ['filter.js']
html_css_files = ['site.css']
html_show_sphinx = False
html_theme_options = {
  'source_repository': f'{_REPOSITORY}/',
  'source_branch': 'main',
  'source_directory': 'docs/',
}

_FENCE = re.compile(r'^(\s*)```(\w*)\s*$')
_LINK = re.compile(r'(!?)\[([^\]]*)\]\(([^)#:]+)\)')
_EVIDENCE = (
  *('README', 'gain', 'leaderboard', 'grouping', 'fedlabel', 'label_hungry'),
  *('fedul', 'comparison', 'fedmatch', 'costs', 'robustness', 'parts'),
  *('unknown',),
)


def _fences_to_blocks(app, what, name, obj, options, lines):
  """Turns the fenced blocks of a docstring into those of reStructuredText."""
  del app, what, name, obj, options
  out, begin, block = [], None, []
  for line in lines:
    fence = _FENCE.match(line)
    if fence and begin is None:
      begin, block = fence, []
    elif fence:
      indent, language = begin.groups()
      directive = f'code-block:: {language or "text"}'
      if language == 'math':
        directive, block = 'math::', [ascii_math.to_latex('\n'.join(block))]
      out += ['', f'{indent}.. {directive}', '']
      out += [f'{indent}   {each}' for each in block] + ['']
      begin = None
    elif begin is None:
      out.append(line)
    else:
      block.append(line.removeprefix(begin[1]))
  lines[:] = out


def _write_evidence(app):
  """Copies results and the changelog; links then lead to the repository."""
  del app

  def moved(link):
    is_image, text, path = link.groups()
    if is_image:
      return f'![{text}](../../results/{path})'
    if pathlib.PurePath(path).stem in _EVIDENCE and path.endswith('.md'):
      return link[0]
    return f'[{text}]({_REPOSITORY}/blob/main/results/{path})'

  changes = (_ROOT / 'CHANGELOG.md').read_text(encoding='utf-8')
  changes = re.sub(r'\]\((?!http)', f']({_REPOSITORY}/blob/main/', changes)
  _write(_DOCS / 'CHANGELOG.md', changes)
  for name in _EVIDENCE:
    text = (_ROOT / 'results' / f'{name}.md').read_text(encoding='utf-8')
    _write(_DOCS / 'evidence' / f'{name}.md', _LINK.sub(moved, text))


def _copy_tutorials(app):
  """Copies the notebooks, which lie where Colab opens them."""
  del app
  for notebook in (_ROOT / 'tutorials').glob('*.ipynb'):
    _write(_DOCS / 'tutorials' / notebook.name, notebook.read_text('utf-8'))


def _lead_to_copies(app, docname, source):
  """Turns links that work in the repository into those of the site."""
  del app, docname
  for kept, copied in (
    (r'tutorials/(\w+\.ipynb)', 'tutorials'),
    (r'results/(\w+\.md)', 'evidence'),
    (r'(CHANGELOG\.md)', '.'),
  ):
    source[0] = re.sub(
      rf'\]\(((?:\.\./)*)\.\./{kept}\)', rf'](\1{copied}/\2)', source[0]
    )


def _write_page_of_runs(app):
  """Writes the gallery's page of runs; it is stored without Bokeh (1 MB)."""
  # As in experiments/reporting/page_charts.py.
  bokeh = resources.Resources(mode='inline', components=['bokeh'])
  library = bokeh.render_js()
  page, mark = _DOCS / 'report.html', '<!-- bokeh -->'
  text = page.read_text(encoding='utf-8').replace(library, mark)
  _write(page, text)
  site = pathlib.Path(app.outdir)
  site.mkdir(parents=True, exist_ok=True)
  _write(site / page.name, text.replace(mark, library))


def _write(page, text):
  # A page that is as it was is not built again.
  if not page.exists() or page.read_text(encoding='utf-8') != text:
    page.write_text(text, encoding='utf-8')


def setup(app):
  """Connects the hooks; Sphinx calls this."""
  app.connect('builder-inited', _write_evidence)
  app.connect('builder-inited', _copy_tutorials)
  app.connect('builder-inited', _write_page_of_runs)
  app.connect('source-read', _lead_to_copies)
  # Before napoleon, which reads sections.
  app.connect('autodoc-process-docstring', _fences_to_blocks, priority=400)
