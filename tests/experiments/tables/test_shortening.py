"""A shortened run is a picture of the whole one."""

import pytest

from experiments.config.usage import UsageError
from experiments.tables import shortening

PRETRAINED = {
  'total_rounds': 200,
  'pretraining_rounds': 100,
  'rounds_per_evaluation': 10,
  'evaluation_offset': 1,
}
# Every round is evaluated: there is nothing to offset.
LEAST = {'rounds_per_evaluation': 1, 'evaluation_offset': 0}


@pytest.mark.parametrize(
  'given, scale, shorter',
  [
    (
      PRETRAINED,
      0.2,
      {
        'total_rounds': 40,
        'pretraining_rounds': 20,
        'rounds_per_evaluation': 4,
        'evaluation_offset': 1,
      },
    ),
    (PRETRAINED, 0.05, {'total_rounds': 10, 'pretraining_rounds': 5, **LEAST}),
    # A round each at least.
    (PRETRAINED, 0.001, {'total_rounds': 2, 'pretraining_rounds': 1, **LEAST}),
    (
      {'total_rounds': 100, 'supervised_rounds': 40},
      0.1,
      {'total_rounds': 10, 'supervised_rounds': 4},
    ),
    # A round with pseudo-labels is left.
    (
      {'total_rounds': 100, 'supervised_rounds': 99},
      0.02,
      {'total_rounds': 2, 'supervised_rounds': 1},
    ),
    *(
      ({'total_rounds': 40, name: n}, 0.25, {'total_rounds': 10, name: fewer})
      for name in (
        *('server_warmup_rounds', 'warmup_rounds', 'helper_interval'),
        'threshold_rounds',
      )
      for n, fewer in ((5, 2), (0, 0))
    ),
    # Only what is given is shortened.
    (
      {'total_rounds': 30, 'schedule': 'constant', 'learning_rate': 0.1},
      0.1,
      {'total_rounds': 3},
    ),
    # The rate ends where it would: .97 ** 4.
    (
      {'total_rounds': 100, 'schedule': 'exponential', 'schedule_decay': 0.97},
      0.25,
      {'total_rounds': 25, 'schedule_decay': pytest.approx(0.88529281)},
    ),
  ],
)
def test_what_shrinks_with_the_rounds(given, scale, shorter):
  assert shortening.shorten(given, scale) == shorter


def test_a_schedule_that_there_is_not_is_refused():
  with pytest.raises(UsageError, match="--schedule=cosin .*'cosine'"):
    shortening.shorten({'total_rounds': 10, 'schedule': 'cosin'}, 0.5)
