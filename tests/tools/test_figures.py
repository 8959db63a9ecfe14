"""The designed pictures: what a panel may hold, and the stored files."""

import collections
import pathlib

import pytest
from PIL import Image

from tools import drawing, figures

_ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize('name', figures.PICTURES)
def test_a_picture_is_small_and_its_panels_can_be_read(name):
  path = _ROOT / name
  assert path.stat().st_size < 100_000
  with Image.open(path) as picture:
    assert picture.width > 1000
  for panel in figures.PICTURES[name]:
    assert len(panel.lines) <= 6
    of_colour = collections.Counter(
      (line.colour, line.is_control)
      for line in panel.lines
      if line.colour != 'grey'
    )
    assert set(of_colour.values()) == {1}
    # Bands of three seeds, unless the picture says otherwise.
    for line in panel.lines:
      own = panel.curves[panel.curves['run'] == line.run]
      seeds = own.dropna(subset='accuracy')['seed'].nunique()
      words = f'{panel.title} {line.label}'
      assert seeds == 3 or 'one seed' in words or line.colour == 'grey', words


def test_a_run_that_two_tables_have_is_that_of_the_first():
  first, second = 'fedlabel_emnist47_2percent', 'fedlabel_emnist47'
  runs = {
    name: drawing.Panel(tables, ()).curves.set_index(['run', 'seed', 'round'])
    for name, tables in {
      'first': (first,),
      'second': (second,),
      'both': (first, second),
    }.items()
  }
  assert runs['both'].index.is_unique
  for run, source in (('fedavg', 'first'), ('fedavg_100', 'second')):
    assert runs['both'].loc[run].equals(runs[source].loc[run])
