"""Writes `results/README.md`: the claims of the papers, and what came out here.

python -m experiments.claims
"""

from experiments.config import command_line
from experiments.reporting import claims

PAGE = claims.RESULTS / 'README.md'


def main() -> int:
  """Writes the page.

  Returns:
    The exit code.
  """
  PAGE.write_text(claims.page(), encoding='utf-8')
  print(f'{PAGE} is written.')
  return 0


if __name__ == '__main__':
  command_line.run(main)
