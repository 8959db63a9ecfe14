"""Pages of `results/` lead to each other, and to what they show."""

import re

from tools import page_figures
from tools.stored_results import RESULTS

_LINK = re.compile(r'(!?)\[[^\]]*\]\(([^)#:]+)\)')


def _links(pages):
  """Pairs of what marks a picture, and a path."""
  return [
    link for page in pages for link in _LINK.findall(page.read_text('utf-8'))
  ]


def test_links_of_all_pages_lead_somewhere():
  links = _links(RESULTS.glob('*.md'))
  missing = {path for _, path in links if not (RESULTS / path).exists()}
  assert not missing
  # Other pictures are drawn anew by `reproduce`.
  pictures = {path for is_picture, path in links if is_picture}
  assert pictures >= {path.name for path in RESULTS.glob('*.png')}


def test_a_table_is_reached_from_an_answer():
  """Answers have figures to fill in; tables are written by `reproduce`."""
  answers = {page for page in page_figures.pages() if page.parent == RESULTS}
  tables = {page.name for page in {*RESULTS.glob('*.md')} - answers}
  linked = {path for _, path in _links(answers)}
  assert tables - {'README.md'} <= linked
