"""Flags of few labels at clients: masks, pre-training, central training."""

import pytest

from experiments.config import flags, settings

NAN, INF = float('nan'), float('inf')


@pytest.fixture(autouse=True)
def no_data_dir(monkeypatch):
  monkeypatch.delenv('TFF_SSL_DATA_DIR', raising=False)


def make(**given):
  return settings.make({'dataset': 'digits', **given})


def refusal(**given):
  """Returns the text of the refusal, which is one line."""
  with pytest.raises(flags.UsageError) as caught:
    make(**given)
  text = str(caught.value)
  assert '\n' not in text and text.endswith(('.', '?'))
  return text


@pytest.mark.parametrize('value', [-0.01, 1.01, NAN, INF])
def test_mask_ratio_is_a_share(value):
  text = refusal(process='fedavg', mask_ratio=value)
  assert f'--mask_ratio={value} must be a number between 0 and 1' in text


def test_masks():
  made = make(process='fedavg')
  assert (made.mask_ratio, made.mask) == (0.0, None)
  assert 'mask' not in made.used
  for ratio in (0.5, 1.0):
    made = make(process='grouping_supervised', mask_ratio=ratio)
    assert (made.used['mask_ratio'], made.used['mask']) == (ratio, 'fixed')
  for process in ('grouping', 'grouping_client_labels'):
    made = make(process=process)
    assert made.mask_ratio is made.mask is None


def test_only_a_process_that_redraws_masks_takes_redrawn():
  made = make(process='fedavg', mask_ratio=0.5, mask='redrawn')
  assert made.used['mask'] == 'redrawn'
  assert make(process='fedavg', mask_ratio=0.5).mask == 'fixed'
  assert make(process='fedavg').mask is None
  fixed = {'process': 'grouping_supervised', 'mask_ratio': 0.5}
  assert make(**fixed, mask='fixed').mask == 'fixed'
  text = refusal(**fixed, mask='redrawn')
  assert text.startswith('--mask=redrawn: the process grouping_supervised')
  text = refusal(process='grouping', mask_ratio=0.5)
  assert text.startswith('--mask_ratio=0.5 has no effect')


def test_a_labelled_fraction_is_what_a_mask_leaves():
  for fraction, ratio in ((0.2, 0.8), (0.1, 0.9), (0.05, 0.95), (1.0, 0.0)):
    made = make(process='fedavg', labelled_fraction=fraction)
    # As a float: int(ratio * n) examples are hidden.
    assert made.mask_ratio == ratio and made.labelled_fraction is None
  for fraction in (0.0, -0.5, 1.5, NAN):
    text = refusal(process='fedlabel', labelled_fraction=fraction)
    assert text.startswith(
      f'--labelled_fraction={fraction} must be a number > 0'
    )
  text = refusal(process='fedavg', labelled_fraction=0.5, mask_ratio=0.5)
  assert '--mask_ratio=0.5' in text and '--labelled_fraction=0.5' in text
  text = refusal(process='grouping', labelled_fraction=0.5)
  assert text.startswith('--labelled_fraction=0.5 has no effect')


def test_the_decay_needs_the_exponential_schedule():
  given = {'process': 'grouping', 'schedule_decay': 0.5}
  assert '--schedule=exponential' in refusal(**given)
  assert make(**given, schedule='exponential').schedule_decay == 0.5
  for value in (0.0, 1.5):
    given = {'process': 'fsl', 'schedule': 'exponential'}
    assert f'--schedule_decay={value} must be' in refusal(
      **given, schedule_decay=value
    )


def test_label_hungry_defaults_are_those_of_the_paper():
  # Chart 1; the rounds of SSPT's first stage come on top.
  for process, rounds in (('fsl', 100), ('ssjo', 100), ('sspt', 200)):
    made = make(process=process, dataset='emnist')
    chart = (made.batch_size, made.learning_rate, made.momentum)
    assert chart == (20, 1e-3, 0.99) and not made.nesterov
    assert (made.local_epochs, made.clients_per_round) == (10, 100)
    assert made.total_rounds == rounds and made.weight_decay == 0
    central = make(process=process, dataset='emnist', setting='central')
    assert (central.learning_rate, central.local_epochs) == (1e-4, 1)
    assert central.partition == 'pooled' and central.clients_per_round == 1
    assert central.total_rounds == rounds // 10
    assert central.client_momentum == 'slot'
  assert made.pretraining_rounds == 100 and central.pretraining_rounds == 10


@pytest.mark.parametrize(
  'given, texts',
  [
    (
      {'process': 'ssjo', 'model': 'small_cnn'},
      ['--model=small_cnn', '--model=dense_encoder'],
    ),
    (
      {'process': 'sspt', 'pretraining_rounds': 10, 'total_rounds': 10},
      ['--pretraining_rounds=10', '--total_rounds=10'],
    ),
    (
      {
        'process': 'sspt',
        'mask_ratio': 0.0,
        'pretraining_images': 'unlabelled',
      },
      ['--pretraining_images=unlabelled', '--mask_ratio=0'],
    ),
    (
      {'process': 'fsl', 'setting': 'central', 'partition': 'r'},
      ['--partition=r', '--setting=central'],
    ),
    (
      {'process': 'grouping', 'setting': 'central'},
      ['--setting=central has no effect'],
    ),
    (
      {
        'process': 'fsl',
        'match_local_steps': True,
        'epoch_batches': 'separate',
      },
      ['--epoch_batches=separate has no effect', '--match_local_steps'],
    ),
    (
      {'process': 'fsl', 'evaluation_offset': 10},
      ['--evaluation_offset=10', '--rounds_per_evaluation=10'],
    ),
    (
      {'process': 'ssjo', 'gradient_diversity_clients': 5},
      ['--gradient_diversity_clients=5 has no effect'],
    ),
  ],
)
def test_label_hungry_conflicts_are_refused(given, texts):
  text = refusal(**given)
  assert all(part in text for part in texts), text


@pytest.mark.parametrize(
  'name', ['labelled_batch_probability', 'consistency_weight']
)
def test_what_a_process_has_no_use_for_is_said_first(name):
  assert refusal(process='grouping', **{name: 0.5}) == (
    f'--{name}=0.5 has no effect: the process grouping does not use it; '
    'leave it out.'
  )


def test_supervised_rounds_leave_some_for_pseudo_labels():
  given = {'process': 'fedtrinet', 'total_rounds': 10}
  assert make(**given).supervised_rounds == 4
  text = refusal(**given, supervised_rounds=10)
  assert '--supervised_rounds=10' in text and '--total_rounds=10' in text
