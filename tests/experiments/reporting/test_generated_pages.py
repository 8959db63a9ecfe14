"""The pages of `docs/reference/` that are made from records and results."""

import re

from experiments import settings_reference
from experiments.config import reference_page
from experiments.reporting import generated_pages
from experiments.tables import recipes
from tff_ssl.algorithms import PROCESSES


def test_the_pages_are_current():
  for name, text in generated_pages.pages().items():
    assert (settings_reference.DOCS / name).read_text() == text, (
      f'docs/{name} is stale: run {reference_page.COMMAND}'
    )


def test_every_process_has_a_row():
  rows = re.findall(r'^\| `(\w+)` \|', generated_pages.processes(), re.M)
  assert sorted(rows) == sorted(PROCESSES)


def test_recipes_have_published_and_own_figures():
  page = generated_pages.all_recipes()
  assert re.search(
    r'\| `c47_s5` \| [^|]+ \| 0.8295 \| [^|]*0\.4004 \(1, 0.01 ', page
  )
  for table in recipes.tables():
    assert f'\n## {table}\n' in page
