"""Fills in the figures of README, docs and results from what was measured.

    python -m tools.page_figures            # writes the pages
    python -m tools.page_figures --check    # writes nothing, says what is stale

A figure stands in a slot. A comment before it says how it is made:

    FedAvg ends at <!--= ends['fedavg'] -->.806<!--/-->, above half.
    <!--! ends['fedavg'].min() > .5 -->

  * `<!--= EXPRESSION -->` makes what stands up to `<!--/-->`. It may be several
    cells of a table or, between comments that have lines of their own, a table.
  * `<!--! EXPRESSION -->` makes nothing, but must be true.
  * `<!--: STATEMENTS -->` names what the page uses, anywhere on it.

They are Python with the names of `tools.stored_results.NAMES` and of
`tools.leaderboard.NAMES`, and no others.
"""

import argparse
import pathlib
import re
import sys
from collections.abc import Callable, Sequence

from experiments.config import command_line
from tools import leaderboard, stored_results

ROOT = pathlib.Path(__file__).parents[1]
# A figure and what it holds, or statements or a claim, or a piece of these.
_SLOT = re.compile(
  r'<!--(?:=(?P<figure>.*?)-->(?P<held>.*?)<!--/-->'
  r'|(?P<kind>[:!])(?P<code>.*?)-->|[=:!/])',
  re.DOTALL,
)
# Before a comment that begins a line, maybe of a quote or a list.
_LINE_START = re.compile(r'[\s>]*(?:(?:[-*+]|\d+[.)])\s+)?')
# A line break behind which Markdown begins something else.
_NEW_BLOCK = re.compile(r'\n\s*(?:[-*+] |\d+[.)] |[>#|]|<!--|\n)')


class PageError(ValueError):
  """A page has slots that cannot be filled, or claims that are not true."""


def pages() -> Sequence[pathlib.Path]:
  """Returns the pages that have slots."""
  # `make docs` copies pages of results into this folder.
  copies = ROOT / 'docs' / 'evidence'
  found = [ROOT / 'README.md', *(ROOT / 'results').glob('*.md')]
  found += (p for p in (ROOT / 'docs').rglob('*.md') if p.parent != copies)
  return [p for p in sorted(found) if _SLOT.search(p.read_text('utf-8'))]


def fill(page: str, name: str) -> tuple[str, Sequence[str]]:
  """Returns a page with its slots filled, and a line on each that was stale.

  Raises:
    PageError: If slots cannot be filled, or claims are not true; it names the
      lines of the file `name`.
  """
  names = {'__builtins__': {}, **stored_results.NAMES, **leaderboard.NAMES}
  stale, errors = [], []

  def attempt(slot: re.Match, act: Callable) -> str:
    number = slot.string.count('\n', 0, slot.start()) + 1
    line = f'{name}:{number}'
    try:
      _check(slot)
      text = act(slot, names)
    # Python on a page may raise anything.
    except Exception as error:
      kind, begins = type(error).__name__, slot[0][:70].strip()
      errors.append(f'{line}: {kind}: {error}: {begins}')
      return slot[0]
    if text != slot[0]:
      stale.append(f'{line}: {slot[0]} must be {text}')
    return text

  for act in (_run_statements, _filled):
    page = _SLOT.sub(lambda slot, act=act: attempt(slot, act), page)
    if errors:
      raise PageError('\n'.join(errors))
  return page, stale


def _run_statements(slot, names) -> str:
  if slot['kind'] == ':':
    exec(slot['code'].strip(), names)
  return slot[0]


def _filled(slot, names) -> str:
  if slot['kind'] == ':':
    return slot[0]
  value = eval(f'({slot["code"] or slot["figure"]})', names)
  if slot['kind'] == '!':
    if not value:
      raise ValueError('this is not true')
    return slot[0]
  value = stored_results.as_text(value)
  if re.search(r'\bnan\b', value):
    raise ValueError('a value is missing')
  if _LINE_START.fullmatch(_before(slot)):
    value = f'\n{value}\n'
  elif value.split() == slot['held'].split():
    # Lines may be broken within a figure.
    return slot[0]
  elif '\n' in value:
    raise ValueError('a table needs comments with lines of their own')
  return f'<!--={slot["figure"]}-->{value}<!--/-->'


def _check(slot) -> None:
  """Raises a `ValueError` where Markdown would not read what is meant."""
  code, held = slot['code'] or slot['figure'], slot['held'] or ''
  if not code or '<!--' in held:
    raise ValueError('a comment is not closed, or closes nothing')
  if '--' in code:
    raise ValueError('a comment must not hold --')
  if '|' in code and _before(slot).lstrip().startswith('|'):
    raise ValueError('a comment in a table must not hold |')
  if _LINE_START.fullmatch(_before(slot)):
    after = slot.string[slot.end() :].partition('\n')[0]
    if after or held and not (held[0] == held[-1] == '\n'):
      raise ValueError('a comment that begins a line must be alone there')
  elif _NEW_BLOCK.search(slot[0]):
    raise ValueError('a line in it begins as a comment, a list or a quote does')


def _before(slot) -> str:
  """Returns what stands before a slot on its line."""
  return slot.string[: slot.start()].rpartition('\n')[2]


def main(arguments: Sequence[str] | None = None) -> int:
  """Fills in the pages; the exit code is 1 if a slot is wrong or left stale."""
  parser = argparse.ArgumentParser(prog='python -m tools.page_figures')
  parser.add_argument('--check', action='store_true', help='write nothing')
  only_check = parser.parse_args(arguments).check
  exit_code = 0
  for path in pages():
    name = str(path.relative_to(ROOT))
    try:
      text, stale = fill(path.read_text(encoding='utf-8'), name)
    except PageError as error:
      print(error, file=sys.stderr)
      exit_code = 1
      continue
    for line in stale:
      print(line)
    if stale and only_check:
      exit_code = 1
    elif stale:
      path.write_text(text, encoding='utf-8')
  return exit_code


if __name__ == '__main__':
  command_line.run(main)
