"""Measures on metrics written by hand."""

import pytest
import run_folders

from experiments.tables import measures

# Evaluated after rounds 1, 3, 5 and 6: numbers 0, 2, 4 and 5 from 0.
METRICS = """round,loss,accuracy
1,2.0,0.1
2,1.9,
3,1.8,0.5
4,1.7,
5,1.6,0.75
6,1.5,0.625
"""


@pytest.fixture
def run_dir(tmp_path):
  (tmp_path / 'metrics.csv').write_text(METRICS)
  return tmp_path


@pytest.mark.parametrize(
  'given, values',
  [
    # After six rounds, "round 6" can only be the last. Without a validation
    # split there is no best.
    (
      {},
      '=0.625 accuracy=0.625 best_accuracy=0.75 accuracy@0=0.1 accuracy@2=0.5 '
      'accuracy@5=0.625 accuracy@6=0.625 accuracy@1=None accuracy@7=None '
      'mean_of_last@1=0.625 mean_of_last@3=0.625 mean_of_last@4=0.49375 '
      'mean_of_last@5=None rounds_to@0.1=0 rounds_to@.5=2 rounds_to@0.51=4 '
      'rounds_to@0.75=4 rounds_to@0.76=None rounds_to@1=None '
      'accuracy_at_best_validation=None',
    ),
    # Rounds count from the end of pre-training, whose best does not count.
    (
      {'pretraining_rounds': 2},
      'best_accuracy=0.75 accuracy=0.625 accuracy@0=0.5 accuracy@2=0.75 '
      'accuracy@4=0.625 accuracy@5=None mean_of_last@3=0.625 '
      'mean_of_last@4=None rounds_to@0.1=0 rounds_to@0.6=2',
    ),
    ({'pretraining_rounds': 5}, 'best_accuracy=0.625'),
    # A mean leaves out rounds in which no client trains.
    (
      {'idle_rounds': 5},
      'mean_of_last@1=0.625 mean_of_last@2=None accuracy@2=0.5',
    ),
    ({'idle_rounds': 6}, 'mean_of_last@2=0.6875'),
    # Rounds of a shortened run are those in their place; evaluations are none.
    (
      {'scale': 0.1},
      'accuracy@20=0.5 accuracy@40=0.75 accuracy@60=0.625 accuracy@0=0.1 '
      'best_accuracy=0.75 accuracy=0.625 mean_of_last@2=0.6875',
    ),
  ],
)
def test_values(run_dir, given, values):
  wanted = dict(part.split('=') for part in values.split())
  assert wanted == {
    text: str(measures.parse(text).of_run(run_dir, **given)) for text in wanted
  }


@pytest.mark.parametrize(
  'text', ['accuracy', 'best_accuracy', 'mean_of_last@1', 'rounds_to@0.1']
)
def test_nothing_evaluated(tmp_path, text):
  (tmp_path / 'metrics.csv').write_text('round,accuracy\n1,\n2,\n')
  assert measures.parse(text).of_run(tmp_path) is None


def test_costs_are_those_of_the_summary(run_dir):
  summary = {'accuracy': 0.625, 'seconds_per_client': 1.5}
  run_folders.write(run_dir, **summary)
  assert measures.parse('seconds_per_client').of_run(run_dir) == 1.5
  # A process without clients.
  passes = measures.parse('forward_passes_per_client')
  assert passes.of_run(run_dir) is None


@pytest.mark.parametrize(
  'text',
  [
    *('best', 'accuracy@', 'accuracy@-1', 'accuracy@0.5', 'accuracy@1 '),
    *('best_accuracy@3', 'rounds_to', 'rounds_to@', 'rounds_to@0'),
    *('mean_of_last', 'mean_of_last@', 'mean_of_last@0', 'mean_of_last@1.5'),
    *('rounds_to@1.01', 'rounds_to@50', 'rounds_to@nan', 'rounds_to@-0.5'),
  ],
)
def test_refused(text):
  with pytest.raises(ValueError, match='must be accuracy, best_accuracy'):
    measures.parse(text)


def test_texts_come_back():
  for text in (
    *('accuracy', 'best_accuracy', 'accuracy@30', 'seconds_per_client'),
    *('mean_of_last@5', 'rounds_to@0.5'),
  ):
    assert str(measures.parse(text)) == text
  assert measures.parse('') == measures.ACCURACY


@pytest.mark.parametrize(
  'measure, text, value',
  [
    *(('best_accuracy', '0', 0), ('accuracy@3', '1', 1)),
    *(('rounds_to@0.5', '0', 0), ('rounds_to@0.5', '80', 80)),
    ('seconds_per_client', '32.47', 32.47),
  ],
)
def test_published(measure, text, value):
  assert measures.parse(measure).published(text) == value


@pytest.mark.parametrize(
  'measure, text, message',
  [
    ('accuracy', '1.1', 'accuracy in'),
    ('best_accuracy', 'nan', 'accuracy in'),
    ('accuracy@3', '84%', 'accuracy in'),
    *(
      ('rounds_to@0.5', text, 'whole number of rounds')
      for text in ('-1', '0.8', 'N/A')
    ),
    *(
      ('seconds_per_client', text, f"'{text}' must be a number that")
      for text in ('-1', 'nan', 'inf', 'fast')
    ),
  ],
)
def test_refused_published(measure, text, message):
  with pytest.raises(ValueError, match=message):
    measures.parse(measure).published(text)


def test_accuracy_at_the_best_validation(tmp_path):
  measure = measures.parse('accuracy_at_best_validation')
  (tmp_path / 'metrics.csv').write_text(
    'round,accuracy,validation_accuracy\n'
    '1,0.1,0.2\n2,,\n3,0.5,0.75\n4,0.9,0.75\n5,0.8,0.5\n'
  )
  assert measure.of_run(tmp_path) == 0.5
  assert measure.of_run(tmp_path, pretraining_rounds=3) == 0.9
