"""A page of the API for each public name, made when the site is built.

A page of `docs/reference/api/` says in a comment whose names it lists, as
`<!-- public names: models, optimizers -->`. It gets a table of the public names
that come from these modules, each with a page of its own in `names/`. So what
is public in `tff_ssl/__init__.py`, or the builder of a process, has its page.
"""

import dataclasses
import inspect
import re
from collections.abc import Mapping

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util import inspect as sphinx_inspect

import tff_ssl

_LISTED = re.compile(r'<!-- public names: ([\w., ]+) -->')
_FOLDER = 'names'
_SHAPE = '(28, 28, 1)'


def pages(sources: Mapping[str, str]) -> dict[str, str]:
  """Returns the text of all pages of names, by name.

  Args:
    sources: The texts of those pages that list them.

  Raises:
    ValueError: If a public name is on none of them, or on several.
  """
  listed = [name for text in sources.values() for name in _names_on(text)]
  if sorted(listed) != tff_ssl.__all__:
    wrong = [name for name in tff_ssl.__all__ if listed.count(name) != 1]
    raise ValueError(f'{wrong} must be on one page of the API each.')
  return {name: _page(name) for name in listed}


def fill(text: str) -> str:
  """Returns a page with tables in the place of its comments."""

  def table(found):
    names = _names_on(found[0])
    rows = [f'| [`{n}`]({_FOLDER}/{n}.md) | {_summary(n)} |' for n in names]
    links = '\n'.join(f'{_FOLDER}/{name}' for name in names)
    toctree = f'```{{toctree}}\n:hidden:\n{links}\n```'
    return '\n'.join(['| name | what it is |', '|---|---|', *rows, '', toctree])

  return _LISTED.sub(table, text)


def example(name: str) -> str:
  """Returns a program that builds and runs a process by its builder."""
  builder = getattr(tff_ssl, name)
  spec = _processes_of(builder)[0]
  parameters = inspect.signature(builder).parameters
  model = f"tff_ssl.from_keras(tff_ssl.MODELS['small_cnn'].build({_SHAPE}, 10))"
  if spec.needs.encoder:
    model = f"tff_ssl.models.build('cnn_encoder', {_SHAPE}, 10, 'none')"
  data = [f'tff_ssl.image_element_spec({_SHAPE})']
  if spec.needs.labels_at == 'sets':
    data += ['in_context=True', 'priors_shape=(10, 10)']
  if spec.takes('client_state_dir'):
    data += ['in_context=True', 'num_clients=100']
  views = 'ImageViews(mean=(0.13,), stddev=(0.31,), flip=False)'
  if spec.needs.views == 'none':
    views = 'PlainViews()'
  arguments = [
    f'data_spec=tff_ssl.ClientDataSpec(\n    {", ".join(data)}\n  )',
    f'views=tff_ssl.{views}',
  ]
  if 'server' in parameters and spec.takes('server_data'):
    arguments += [
      '# server_data: a tff.Computation, ( -> <x=..., y=...>*)',
      'server=tff_ssl.ServerPlan(data=server_data)',
    ]
  if 'client_state_dir' in parameters:
    arguments.append("client_state_dir='/data/states'")
  if 'helpers' in parameters:
    arguments.append("helpers=tff_ssl.Helpers('/data/states')")
  if 'group_assignment' in parameters:
    arguments.append("group_assignment='in_process'")
  return '\n'.join(
    [
      'import tff_ssl',
      '',
      'tff_ssl.install_context()',
      f'model = {model}',
      f'process = tff_ssl.{name}(',
      '  model,',
      *(f'  {a}' if a.startswith('#') else f'  {a},' for a in arguments),
      ')',
      'state = process.initialize()',
      'for clients in rounds:  # lists of tf.data.Datasets, one a client',
      '  state, metrics = process.next(state, clients)',
      'weights = process.get_model_weights(state)',
    ]
  )


def _names_on(text):
  modules = [m for found in _LISTED.findall(text) for m in found.split(', ')]
  return [
    name
    for name in tff_ssl.__all__
    if any(f'{_module_of(name)}.'.startswith(f'{m}.') for m in modules)
  ]


def _module_of(name):
  """The module that a public name comes from, without `tff_ssl`."""
  if name in tff_ssl._MODULE_OF:
    return tff_ssl._MODULE_OF[name]
  return getattr(tff_ssl, name).__module__.removeprefix('tff_ssl.')


def _summary(name):
  value = getattr(tff_ssl, name)
  if isinstance(value, Mapping):
    return 'By name: ' + ', '.join(f'`{key}`' for key in value) + '.'
  paragraph = inspect.getdoc(value).partition('\n\n')[0]
  return ' '.join(paragraph.split()).replace('|', r'\|')


def _with_links(source):
  return re.sub(
    r'arXiv (\d{4}\.\d{5})', r'[arXiv \1](https://arxiv.org/abs/\1)', source
  )


def _processes_of(builder):
  return [s for s in tff_ssl.PROCESSES.values() if s.builder is builder]


def _page(name):
  value = getattr(tff_ssl, name)
  lines = [f'# {name}', '', '```{eval-rst}']
  if isinstance(value, Mapping):
    lines += [f'.. autodata:: tff_ssl.{name}', '   :no-value:']
  elif inspect.isclass(value):
    lines += [f'.. autoclass:: tff_ssl.{name}', '   :members:']
    if any(base.__module__.startswith('tff_ssl') for base in value.__mro__[1:]):
      lines.append('   :inherited-members: tuple')
    if getattr(value, '_is_protocol', False):
      lines.append('   :special-members: __call__')
  else:
    lines.append(f'.. autofunction:: tff_ssl.{name}')
  lines += ['```', '']
  if isinstance(value, Mapping):
    lines += ['| name | what it is |', '|---|---|']
    lines += [
      f'| `{k}` | {getattr(each, "description", f"`{type(each).__name__}`")} |'
      for k, each in value.items()
    ]
    return '\n'.join(lines) + '\n'
  module = inspect.getmodule(inspect.unwrap(value))
  if processes := _processes_of(value):
    lines += ['## Example', '', '```python', example(name), '```', '']
    lines += ['In a run:', '', '| process | what it is | source |']
    lines += ['|---|---|---|']
    lines += [
      f'| `{s}` | {s.description} | {_with_links(s.source)} |'
      for s in processes
    ]
    lines.append('')
  # One line says of a module what its names say themselves.
  if '\n' in (module.__doc__ or '').strip():
    lines += ['## Background', '', '```{eval-rst}']
    lines += [f'.. automodule:: {module.__name__}', '   :no-members:']
    lines += ['   :no-index:', '```', '']
  return '\n'.join(lines)


class _Short:
  """Stands for a record in a signature: only what it holds."""

  def __init__(self, record):
    self._record = record

  def __repr__(self):
    held = [
      f'{field.name}={getattr(self._record, field.name)!r}'
      for field in dataclasses.fields(self._record)
      if getattr(self._record, field.name) != field.default
    ]
    return f'{type(self._record).__name__}({", ".join(held)})'


def short_signature(value) -> tuple[str, str | None] | None:
  """Returns arguments with types and defaults, and the type of the result."""
  try:
    signature = inspect.signature(value, eval_str=True)
  except (NameError, TypeError, ValueError, AttributeError):
    return None
  parameters = [
    p.replace(default=_Short(p.default))
    if dataclasses.is_dataclass(p.default)
    else p
    for p in signature.parameters.values()
  ]
  text = sphinx_inspect.stringify_signature(
    signature.replace(parameters=parameters), unqualified_typehints=True
  )
  arguments, _, result = text.partition(' -> ')
  return arguments, None if inspect.isclass(value) else result or None


class LinkNames(SphinxTransform):
  """Makes a public name in code, as `build_fed_avg`, a link to its page."""

  default_priority = 700

  def apply(self):
    own = self.env.docname.rpartition('/')[2]
    for literal in list(self.document.findall(nodes.literal)):
      # Also a call, as `tff_ssl.Supervised(views)`.
      name = literal.astext().removeprefix('tff_ssl.').partition('(')[0]
      if name == own or name not in tff_ssl.__all__:
        continue
      if isinstance(literal.parent, (nodes.reference, addnodes.pending_xref)):
        continue
      link = addnodes.pending_xref(
        '',
        literal.deepcopy(),
        refdomain='py',
        reftype='obj',
        reftarget=f'tff_ssl.{name}',
        refexplicit=True,
        refwarn=True,
      )
      link['refdoc'] = self.env.docname
      literal.replace_self(link)


def _write_pages(app):
  folder = app.srcdir / 'reference' / 'api'
  sources = {p.name: p.read_text(encoding='utf-8') for p in folder.glob('*.md')}
  made = {f'{name}.md': text for name, text in pages(sources).items()}
  (folder / _FOLDER).mkdir(exist_ok=True)
  for path in (folder / _FOLDER).glob('*.md'):
    if path.name not in made:
      path.unlink()
  for name, text in made.items():
    path = folder / _FOLDER / name
    # A page that is as it was is not built again.
    if not path.exists() or path.read_text(encoding='utf-8') != text:
      path.write_text(text, encoding='utf-8')


def _fill(app, docname, source):
  del app
  if docname.startswith('reference/api/'):
    source[0] = fill(source[0])


def _signature(app, what, name, obj, options, signature, returned):
  del app, name, options
  if what in ('function', 'class'):
    return short_signature(obj) or (signature, returned)
  return None


def setup(app):
  """Connects the hooks; Sphinx calls this."""
  app.setup_extension('sphinx.ext.autodoc')
  app.connect('builder-inited', _write_pages)
  app.connect('source-read', _fill)
  app.connect('autodoc-process-signature', _signature)
  app.add_transform(LinkNames)
  return {'parallel_read_safe': True}
