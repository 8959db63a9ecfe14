"""Writes the reference of all settings: `docs/settings.md`.

python -m experiments.settings_reference
"""

import pathlib

from experiments.config import command_line, reference_page

PAGE = pathlib.Path(__file__).parents[1] / 'docs' / 'settings.md'


def main() -> int:
  """Writes the page.

  Returns:
    The exit code.
  """
  PAGE.parent.mkdir(exist_ok=True)
  PAGE.write_text(reference_page.text(), encoding='utf-8')
  print(f'{PAGE} is written.')
  return 0


if __name__ == '__main__':
  command_line.run(main)
