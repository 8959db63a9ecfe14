"""Writes the pages of `docs/reference/` that are made from records.

python -m experiments.settings_reference
"""

import pathlib

from experiments.config import command_line
from experiments.reporting import generated_pages

DOCS = pathlib.Path(__file__).parents[1] / 'docs'


def main() -> int:
  """Writes the pages.

  Returns:
    The exit code.
  """
  for name, text in generated_pages.pages().items():
    page = DOCS / name
    page.parent.mkdir(exist_ok=True)
    page.write_text(text, encoding='utf-8')
    print(f'{page} is written.')
  return 0


if __name__ == '__main__':
  command_line.run(main)
