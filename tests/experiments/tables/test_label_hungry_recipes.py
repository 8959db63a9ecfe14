"""The recipes of "Label Hungry?" (Hegde et al.) hold its charts."""

import pytest

from experiments.tables import recipes

# As printed: accuracies in percent, rounds as whole numbers.
CHART_2 = """
0     93.90  94.14  95.46  83.94  83.52  84.39
0.8   89.78  91.18  90.08  72.24  74.30  77.10
0.9   87.07  89.50  87.06  61.31  57.46  69.29
0.95  83.05  86.95  85.59  38.93  40.73  66.02
0.98  81.60  81.16  81.92  29.04  28.66  44.70
0.99  78.77  77.36  76.55   9.70  14.76  34.98
"""
CHART_3 = """
0     10   10   10
0.8   40   30   10
0.9   80   70   30
0.95  N/A  N/A  60
0.98  N/A  N/A  N/A
0.99  N/A  N/A  N/A
"""
# Columns: each method at mask ratios 0, 0.9 and 0.99.
CHART_4 = """
0    30.83  12.58  11.39  16.65   9.52   9.80  22.40  12.42   9.91
10   75.18  27.44  11.32  75.08  21.96   6.75  70.64  19.01  14.02
20   79.29  31.26  11.61  78.67  30.54   8.26  78.38  33.37  10.53
30   81.13  39.03  10.17  80.41  35.40   9.20  79.97  49.52  15.42
40   81.99  42.03   8.90  81.00  37.85  11.64  80.98  57.80  23.05
50   82.09  48.19   8.48  80.99  44.38  12.44  82.05  61.14  27.88
60   82.46  49.01   8.42  82.28  48.78  13.53  83.72  61.80  21.72
70   82.50  52.44   8.77  82.28  55.18  14.07  82.41  50.42  18.37
80   83.66  53.57   9.52  82.59  57.45  15.13  82.87  69.10  31.20
90   83.84  58.53   9.46  83.01  60.00  14.56  83.53  60.29  18.18
100  83.94  61.31   9.70  83.52  61.21  14.76  84.39  69.29  34.98
"""
TAGS = {'0': 'm00', '0.8': 'm80', '0.9': 'm90', '0.95': 'm95', '0.98': 'm98'}
TAGS['0.99'] = 'm99'
METHODS = ('fsl', 'sspt', 'ssjo')
TUNED = ('m90', 'm98', 'm99')


def cells(chart):
  """Returns {(first cell of the row, column): text}."""
  lines = [line.split() for line in chart.strip().splitlines()]
  return {
    (line[0], column): text
    for line in lines
    for column, text in enumerate(line[1:])
  }


def per_mask(name, ratio):
  """Returns the names of a cell's rows: there is no mask at ratio 0."""
  masks = ('',) if ratio == '0' else ('_fixed', '_redrawn')
  return [f'{name}_{TAGS[ratio]}{mask}' for mask in masks]


def published(table):
  return {row: r.published for row, r in recipes.load(table).items()}


def texts(recipe):
  """Returns the flags of a row as written."""
  return dict(part[2:].split('=') for part in recipe.flags_text.split())


def test_chart_2():
  columns = [f'{where}_{m}' for where in ('central', 'fed') for m in METHODS]
  printed = {
    row: round(float(text) / 100, 4)
    for (ratio, column), text in cells(CHART_2).items()
    for row in per_mask(columns[column], ratio)
  }
  assert len(cells(CHART_2)) == 36
  assert published('label_hungry_chart2') == printed


def test_chart_3():
  printed = {
    row: None if text == 'N/A' else int(text)
    for (ratio, column), text in cells(CHART_3).items()
    for row in per_mask(f'fed_{METHODS[column]}', ratio)
  }
  assert len(cells(CHART_3)) == 18
  assert published('label_hungry_chart3') == printed
  for recipe in recipes.load('label_hungry_chart3').values():
    assert ('N/A' in recipe.note) == (recipe.published is None)
    assert str(recipe.measure) == 'rounds_to@0.5'
    assert recipe.run_name == f'label_hungry_chart2:{recipe.row}'


def test_chart_4():
  ratios = ('0', '0.9', '0.99')
  printed = {
    f'{row}_r{number}': round(float(text) / 100, 4)
    for (number, column), text in cells(CHART_4).items()
    for row in per_mask(f'fed_{METHODS[column // 3]}', ratios[column % 3])
  }
  assert len(cells(CHART_4)) == 99
  assert published('label_hungry_chart4') == printed
  for recipe in recipes.load('label_hungry_chart4').values():
    run, _, number = recipe.row.rpartition('_r')
    assert str(recipe.measure) == f'accuracy@{number}'
    assert recipe.run_name == f'label_hungry_chart2:{run}'


def test_where_the_charts_disagree_the_note_says_so():
  chart4 = cells(CHART_4)
  for method in range(3):
    for place, ratio in enumerate(('0', '0.9', '0.99')):
      curve = {
        int(number): float(text)
        for (number, column), text in chart4.items()
        if column == 3 * method + place
      }
      best = float(cells(CHART_2)[ratio, 3 + method])
      reached = next((n for n, x in curve.items() if x >= 50), None)
      rounds = cells(CHART_3)[ratio, method]
      for row in per_mask(f'fed_{METHODS[method]}', ratio):
        notes = {
          chart: recipes.find(f'label_hungry_chart{chart}:{row}').note
          for chart in (2, 3)
        }
        if max(curve.values()) != best:
          wrong = curve[100] if curve[100] != best else max(curve.values())
          assert f'{wrong:.2f}%' in notes[2]
        else:
          assert 'Chart 4' not in notes[2]
        if str(reached or 'N/A') != rounds:
          assert f'by Chart 4 it is {reached}' in notes[3]
        else:
          assert 'Chart 4' not in notes[3]


@pytest.mark.parametrize(
  'table', ['label_hungry_chart2', 'label_hungry_controls']
)
def test_rows_have_the_settings_of_chart_1(table):
  for recipe in recipes.load(table).values():
    flags = texts(recipe)
    assert (flags['batch_size'], flags['momentum']) == ('20', '0.99')
    central = recipe.row.startswith('central')
    assert flags['learning_rate'] == ('0.0001' if central else '0.001')
    epochs = int(flags['total_rounds']) - int(
      flags.get('pretraining_rounds', 0)
    )
    if central:
      assert (epochs, flags['local_epochs']) == (10, '1')
      assert 'clients_per_round' not in flags
    else:
      assert (epochs, flags['local_epochs']) == (100, '10')
      assert flags['clients_per_round'] == '100'


def test_names_say_process_ratio_and_mask():
  for table in ('label_hungry_chart2', 'label_hungry_controls'):
    for recipe in recipes.load(table).values():
      flags = texts(recipe)
      parts = recipe.row.split('_')
      assert flags['process'] == parts[1]
      ratio = f'{float(flags["mask_ratio"]):g}'
      assert TAGS[ratio] in parts
      assert flags.get('mask') == (None if ratio == '0' else parts[-1])
      several = ratio in ('0.9', '0.99')
      assert recipe.seeds == ((0, 1, 2) if several else (0,))
      assert str(recipe.measure) == 'best_accuracy'


def test_rounds_of_chart_4_are_evaluated():
  for recipe in recipes.load('label_hungry_chart4').values():
    flags = {k: int(v) for k, v in texts(recipe).items() if v.isdecimal()}
    first = flags.get('pretraining_rounds', 0) + 1
    last, number = flags['total_rounds'], recipe.measure.argument
    done = min(first + number, last)
    assert done == last or (
      (done - flags['evaluation_offset']) % flags['rounds_per_evaluation'] == 0
    )


def test_controls_differ_from_the_chart_in_one_thing():
  rows = recipes.load('label_hungry_controls')
  # Momentum rests, and images turn, at two ratios only.
  assert len(rows) == 4 * 4 * 2 + 4 * 2 * 2
  own = {
    'fsl_matched': {'match_local_steps': 'true', 'epoch_batches': None},
    'ssjo_weight0': {'ssjo_loss_weight': '0.0'},
    'ssjo_weight0rests': {
      'ssjo_loss_weight': '0.0',
      'idle_momentum': 'rests',
    },
    'ssjo_rests': {'idle_momentum': 'rests'},
    'ssjo_decayed': {'schedule': 'exponential', 'schedule_decay': '0.97'},
    'sspt_frozen': {'encoder_training': 'frozen'},
    'ssjo_rotation': {'proxy_task': 'rotation'},
    'sspt_rotation': {'proxy_task': 'rotation'},
  }
  for recipe in rows.values():
    _, method, control, ratio, mask = recipe.row.split('_')
    chart = recipes.find(f'label_hungry_chart2:fed_{method}_{ratio}_{mask}')
    here, there = texts(recipe), texts(chart)
    changed = {
      name: here.get(name)
      for name in here.keys() | there.keys()
      if here.get(name) != there.get(name)
    }
    assert changed == own[f'{method}_{control}']
    assert (recipe.published, recipe.seeds) == (None, chart.seeds)


def test_rows_to_tune_differ_from_the_chart_in_the_split():
  rows = recipes.load('label_hungry_tuned')
  assert set(rows) == {
    f'{method}_{ratio}'
    for method in ('fsl', 'ssjo', 'ssjo_rests')
    for ratio in TUNED
  }
  for recipe in rows.values():
    method, *rests, ratio = recipe.row.split('_')
    chart = recipes.find(f'label_hungry_chart2:fed_{method}_{ratio}_fixed')
    here, there = texts(recipe), texts(chart)
    changed = {
      name
      for name in here.keys() | there.keys()
      if here.get(name) != there.get(name)
    }
    # Evaluated more often, for the mean of the last five.
    evaluations = {'rounds_per_evaluation', 'evaluation_offset'}
    assert changed - evaluations == {'split', *(['idle_momentum'] * len(rests))}
    assert here['split'] == '90_10_per_client'
    assert here.get('idle_momentum', 'rests') == 'rests'
    assert (recipe.published, recipe.seeds) == (None, (0, 1, 2))
    assert str(recipe.measure) == 'mean_of_last@5'
