"""README and documentation: links, names and commands."""

import ast
import collections
import pathlib
import pkgutil
import re
import shlex

import costs
import numpy as np
import pytest
import yaml

import tff_ssl
from experiments import predict, reproduce, run, tune
from experiments.config import catalogue
from experiments.tables import recipes

_ROOT = pathlib.Path(__file__).parents[1]
_README = _ROOT / 'README.md'
_PROGRAM = _ROOT / 'docs' / 'how_to' / 'tff_program.md'
_PROMISES = _ROOT / 'docs' / 'explanation' / 'reliability.md'
_PAPERS = _ROOT / 'docs' / 'reference' / 'papers.md'
_PAGES = sorted(
  {
    _README,
    *(_ROOT / '.github').glob('*.md'),
    *(_ROOT / 'docs').rglob('*.md'),
  }
  # Copied from results/, with links of their own.
  - {
    page
    for page in (_ROOT / 'docs' / 'evidence').glob('*.md')
    if page.name != 'index.md'
  }
)
_COMMAND = re.compile(
  r'^(?: {4}|\$ )?(python -m (?:experiments|examples|benchmarks|tff_ssl|tools)'
  r'\S* ?(?:.*\\\n)*.*)$',
  re.MULTILINE,
)
# A test that a page names, maybe one of its cases.
_NAMED_TEST = re.compile(r'`(tests/[\w/]+\.py)::([\w:]+)(?:\[([\w-]+)\])?`')
# Modules whose command lines are looked at, by their function.
_MAINS = {
  'experiments.predict': predict.main,
  'experiments.run': run.main,
  'experiments.reproduce': reproduce.main,
  'experiments.tune': tune.main,
}
# Words of commands that stand for what a reader has.
_PLACEHOLDERS = ('RUN_DIR', 'NAME', 'TABLE', 'first_run/flags', 'runs/fedlabel')


def _text(page):
  return page.read_text(encoding='utf-8')


def _commands():
  found = {}
  for page in _PAGES:
    for text in _COMMAND.findall(_text(page)):
      command = text.replace('\\\n', ' ').split('`')[0].split('  #')[0]
      found.setdefault(' '.join(command.split()), page)
  return found


def _anchors(page):
  """The anchors of a page's headings, as GitHub makes them."""
  titles = re.findall(r'^#+ (.*)$', _text(page), re.MULTILINE)
  slugs = [re.sub(r'[^\w -]', '', title).lower() for title in titles]
  return [slug.replace(' ', '-') for slug in slugs]


def _is_broken(page, path, anchor):
  # The copies in docs/evidence/ are not in the repository.
  if path.startswith('evidence/') or '/evidence/' in path:
    return True
  target = (page.parent / path).resolve()
  return not target.exists() or bool(anchor and anchor not in _anchors(target))


def test_links_resolve():
  links = [
    (page, path, anchor)
    for page in _PAGES
    for path, anchor in re.findall(
      r'\]\(([^)#:\s]+)(?:#([\w-]+))?\)',
      re.sub(r'```.*?```', '', _text(page), flags=re.DOTALL),
    )
  ]
  assert links
  broken = [
    (str(page.relative_to(_ROOT)), path, anchor)
    for page, path, anchor in links
    if _is_broken(page, path, anchor)
  ]
  assert not broken


def _tests_of(file):
  """The tests of a file, each as `name` or `Class::name`."""
  found = set()
  for node in ast.parse(_text(_ROOT / file)).body:
    found.add(getattr(node, 'name', None))
    if isinstance(node, ast.ClassDef):
      names = (getattr(part, 'name', None) for part in node.body)
      found |= {f'{node.name}::{name}' for name in names}
  return found


def test_tests_that_pages_name_exist():
  named = collections.defaultdict(set)
  for page in _PAGES:
    for file, name, case in _NAMED_TEST.findall(_text(page)):
      named[file].add(name)
      assert not case or f"id='{case}'" in _text(_ROOT / file), case
  assert named
  for file, names in named.items():
    assert not names - _tests_of(file), file


def test_each_promise_has_tests_of_its_name():
  promised, text = set(), _text(_PROMISES)
  for line in text.splitlines():
    if row := re.match(r'\| ([A-Z]\d+(?:, [A-Z]\d+)*) \|', line):
      rows = set(row[1].lower().split(', '))
      found = [
        set(re.split('[_-]', f'{name}_{case}'))
        for _, name, case in _NAMED_TEST.findall(line)
      ]
      assert found and all(rows & words for words in found), line
      assert rows <= set().union(*found), line
      promised |= rows
  wanted = {'r': 17, 'b': 7, 's': 5, 'p': 9, 'a': 8}
  expected = {
    f'{kind}{n + 1}' for kind, most in wanted.items() for n in range(most)
  }
  _, _, rest = text.partition('\nNot promised: ')
  others = re.findall(r'\(([A-Z]\d)\)', rest.partition('.')[0])
  assert promised | {row.lower() for row in others} == expected


def test_names_on_the_page_of_the_papers_exist():
  text = _text(_PAPERS)
  for name in re.findall(r'`((?:tff_ssl|datasets)(?:\.\w+)+)`', text):
    assert pkgutil.resolve_name(name) is not None
  linked = set(re.findall(r'{py:obj}`tff_ssl\.(\w+)`', text))
  assert linked and linked <= set(tff_ssl.__all__)
  settings = catalogue.known()
  registries = {**catalogue.REGISTRIES, 'model': tff_ssl.MODELS}
  for name, value in re.findall(r'`--(\w+)(?:=([^`]+))?`', text):
    if name != 'table':
      choices = registries.get(name, settings[name].choices)
      assert value in choices or not (value and choices), (name, value)


def test_the_page_of_the_papers_has_all_their_tables():
  rows = re.findall(
    r'^\|.*\| `--table=(\w+)`.*\| (\w+)[^|]*\|$', _text(_PAPERS), re.M
  )
  of_papers = re.compile(
    '(ssfl|fedlabel|fedul)_(table|figure|[de][0-9])|label_hungry_chart'
  )
  tables = filter(of_papers.match, recipes.tables())
  assert sorted(rows) == [
    (
      table,
      'figures'
      if any(row.published is not None for row in recipes.load(table).values())
      else 'settings',
    )
    for table in sorted(tables)
  ]


def test_the_page_of_the_gallery_is_stored_without_its_library():
  page = _text(_ROOT / 'docs' / 'report.html')
  assert page.count('<!-- bokeh -->') == 1
  assert len(page) < 300_000
  # No path of the machine that made it.
  assert not re.search(r'[\s"\'>](/tmp|/home)/', page)


def test_what_people_search_for_stands_in_a_heading():
  # The site's search puts headings first.
  text = '\n'.join(map(_text, _PAGES))
  headings = '\n'.join(re.findall(r'^#+ (.*)$', text, re.MULTILINE)).lower()
  for words in ('quickstart', 'gpu', 'own data', 'install', 'resume', 'json'):
    assert words in headings, words


def test_versions_are_one():
  cited = re.search(
    r'^version: (.*)$', _text(_ROOT / 'CITATION.cff'), re.MULTILINE
  )
  assert cited[1] == tff_ssl.__version__
  assert f'\n## {tff_ssl.__version__}' in _text(_ROOT / 'CHANGELOG.md')


@pytest.mark.parametrize('page', [_README, _ROOT / 'docs' / 'index.md'])
def test_the_entry_for_bibtex_is_that_of_citation_cff(page):
  cited = yaml.safe_load(_text(_ROOT / 'CITATION.cff'))
  (entry,) = re.findall(r'```bibtex\n(.*?)```', _text(page), re.DOTALL)
  fields = dict(re.findall(r'^  (\w+) = {(.*)},?$', entry, re.MULTILINE))
  (author,) = cited['authors']
  assert {k: v.replace(r'\_', '_') for k, v in fields.items()} == {
    'title': cited['title'],
    # An organisation, which is not taken apart.
    'author': f'{{{author["name"]}}}',
    'year': str(cited['date-released'].year),
    'version': cited['version'],
    'url': cited['repository-code'],
  }


def _is_checked(command):
  return command.split()[2] in _MAINS and not any(
    word in command for word in _PLACEHOLDERS
  )


def test_commands_of_each_module_are_checked():
  checked = filter(_is_checked, _commands())
  assert {command.split()[2] for command in checked} == _MAINS.keys()


def test_modules_of_commands_exist():
  for command, page in _commands().items():
    module = command.split()[2].replace('.', '/')
    assert any(
      (_ROOT / name).exists()
      for name in (f'{module}.py', f'{module}/__main__.py')
    ), (command, page)


@pytest.mark.parametrize('command', filter(_is_checked, _commands()))
def test_a_command_would_run(command, tmp_path, monkeypatch, capsys):
  """With --help a command refuses what it would refuse without."""
  images = np.zeros((20, 28, 28), np.uint8)
  (tmp_path / 'FOLDER').mkdir()
  for name in ('train', 'test'):
    np.savez(
      tmp_path / 'FOLDER' / f'{name}.npz',
      images=images,
      labels=np.arange(20) % 2,
    )
  monkeypatch.chdir(tmp_path)
  _, _, module, *arguments = shlex.split(command)
  if '--help' not in arguments:
    arguments.append('--help')
  assert _MAINS[module]([module, *arguments]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
  'page',
  costs.rest_in('notebooks', [_README, _PROGRAM], dear=True),
  ids=lambda p: p.stem,
)
def test_the_program_of_a_page_runs_as_pasted(page):
  """But for one round of thirty."""
  blocks = re.findall(r'```python\n(.*?)```', _text(page), re.DOTALL)
  code = '\n'.join(blocks)
  assert code.count('range(30)') == 1
  names = {}
  exec(code.replace('range(30)', 'range(1)'), names)
  assert names['predicted'].shape == names['labels'][1400:].shape
