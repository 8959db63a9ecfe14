"""A run with the labels alone beside it."""

import types

import pytest
import run_folders

from experiments import run
from experiments.config.command_line import UsageError
from experiments.tables import lower_bound

_GIVEN = {
  'process': 'grouping_robust',
  'dataset': 'digits',
  'total_rounds': 7,
  'server_steps': 5,
  'clients_per_round': 4,
  'seed': 3,
  'run_dir': 'runs/own',
  'with_lower_bound': True,
}


def _plan(**changes):
  given = {**_GIVEN, **changes}
  return lower_bound.plan({k: v for k, v in given.items() if v is not None})


def test_the_server_does_as_much_alone():
  own, bound = (child.settings for child in _plan(run_dir='runs/own/'))
  assert (bound.process, own.process) == ('server_only', 'grouping_robust')
  assert (bound.run_dir, own.run_dir) == ('runs/own_server_only', 'runs/own/')
  alike = (
    *('dataset', 'seed', 'total_rounds', 'server_steps', 'server_examples'),
    *('server_batch_size', 'rounds_per_evaluation', 'model', 'ema_decay'),
  )
  for name in alike:
    assert getattr(bound, name) == getattr(own, name), name


@pytest.mark.parametrize(
  'given, expected',
  [
    ({}, 0.01),
    ({'learning_rate': 0.05}, 0.05),
    ({'server_learning_rate': 0.2}, 0.2),
    ({'learning_rate': 0.05, 'server_learning_rate': 0.2}, 0.2),
  ],
)
def test_its_learning_rate_is_its_own_unless_one_was_given(given, expected):
  own, bound = (child.settings for child in _plan(**given))
  # What its server trains with.
  assert bound.server_learning_rate == expected
  assert own.server_learning_rate == (expected if given else 0.03)


def test_its_momentum_is_its_own_and_its_weight_decay_that_of_the_run():
  changed = {'process': 'fedmatch_server'}
  own, bound = (child.settings for child in _plan(**changed))
  # The paper of FedMatch takes plain SGD.
  assert (own.momentum, own.weight_decay) == (0, 0)
  assert (bound.momentum, bound.weight_decay) == (0.9, 0)
  # Without momentum, the run has no such setting.
  assert '--nesterov=True for none,' in lower_bound._changes(own, bound)
  _, bound = (child.settings for child in _plan(**changed, momentum=0.5))
  assert (bound.momentum, bound.weight_decay) == (0.5, 0)


def test_a_recipe_gives_no_rate_to_the_bound():
  given = {'recipe': 'gain_writers:ten_writers_defaults', 'seed': 3}
  runs = lower_bound.plan({**given, 'with_lower_bound': True})
  own, bound = (child.settings for child in runs)
  assert (own.server_learning_rate, bound.server_learning_rate) == (0.03, 0.01)
  assert bound.server_batch_size == own.server_batch_size == 20
  assert bound.recipe is None


def test_passes_of_the_server_are_steps():
  own, bound = (
    child.settings
    for child in _plan(process='semifl', server_steps=None, server_epochs=3)
  )
  # 100 examples in minibatches of 10.
  assert (own.server_examples, own.server_batch_size) == (100, 10)
  assert bound.server_steps == 30


@pytest.mark.parametrize(
  'process, steps, bound, expected',
  [
    # Passes of the run go over what has no label, too.
    ('fedavg_robust', {'local_epochs': 2}, 'fedavg', (None, 2, True)),
    ('fedavg_robust', {'local_steps': 8}, 'fedavg', (8, None, None)),
    ('fedlabel', {'labelled_steps': 3}, 'fedavg', (6, None, None)),
    (
      'fedlabel',
      {'labelled_steps': 3, 'unlabelled_steps': 5},
      'fedavg',
      (8, None, None),
    ),
    ('ssjo', {'local_epochs': 2}, 'fsl', (None, 2, True)),
  ],
)
def test_clients_train_as_long_on_their_labels_alone(
  process, steps, bound, expected
):
  changed = {'server_steps': None, 'labelled_fraction': 0.1, **steps}
  own, alone = (child.settings for child in _plan(process=process, **changed))
  assert alone.process == bound
  assert alone.run_dir == f'runs/own_{bound}'
  lengths = ('local_steps', 'local_epochs', 'match_local_steps')
  assert tuple(getattr(alone, name) for name in lengths) == expected
  for name in ('dataset', 'seed', 'total_rounds', 'mask_ratio', 'ema_decay'):
    assert getattr(alone, name) == getattr(own, name), name


@pytest.mark.parametrize(
  'process, message',
  [
    ('server_only', 'the process server_only is that bound'),
    ('fedavg', 'no such bound of the process fedavg'),
    ('fedul', 'no such bound of the process fedul'),
  ],
)
def test_where_it_is_no_bound(process, message):
  with pytest.raises(UsageError, match=message):
    _plan(process=process, server_steps=None, clients_per_round=None)


@pytest.mark.runs
def test_the_difference_is_told(tmp_path, capfd):
  argv = [
    *('run', '--process=recommended', '--dataset=digits', '--model=dense'),
    *('--total_rounds=3', '--rounds_per_evaluation=1', '--local_epochs=1'),
    *('--server_warmup_rounds=0', '--clients_per_round=4'),
    '--min_confidence=0.1',
    *('--with_lower_bound', f'--cache_dir={tmp_path / "cache"}'),
    f'--run_dir={tmp_path / "own"}',
  ]
  assert run.main(argv) == 0
  folders = [tmp_path / name for name in ('own', 'own_server_only')]
  evaluated = [run_folders.metrics_of(f)['accuracy'].dropna() for f in folders]
  own, alone = (each.tail(3).mean() for each in evaluated)
  last = evaluated[0].iloc[-1] - evaluated[1].iloc[-1]
  said = capfd.readouterr().out
  assert 'Recommended here: --process=grouping_robust.' in said
  assert (
    f'Unlabelled examples gave {own - alone:+.4f}: {own:.4f} with '
    f'grouping_robust, {alone:.4f} with the server alone, which takes '
    '--server_learning_rate=0.01 for 0.03 (test accuracy, mean of the last 3 '
    f'evaluations; {last:+.4f} after the last round; seed 0'
  ) in said
  # Several seeds have a mean, too; this one is finished.
  several = [x for x in argv if 'run_dir' not in x]
  for folder in folders:
    folder.rename(tmp_path / folder.name.replace('own', 'one_seed0'))
  assert run.main([*several, f'--run_dir={tmp_path / "one"}', '--seeds=0']) == 0
  said = capfd.readouterr().out
  assert '2/2 were done before.' in said
  assert (
    'Unlabelled examples gave, beyond the server alone: mean '
    f'{own - alone:.4f}, n 1' in said
  )


@pytest.mark.parametrize(
  ('warmup', 'number', 'said'),
  [
    (0, 5, 'gave +0.1000: 0.6000 with own, 0.5000 with the server'),
    # Evaluations of the warm-up show what the server alone did.
    (4, 2, 'gave +0.1500: 0.6500 with own, 0.5000 with the server'),
    # Where no client ever trains, there is nothing to leave out.
    (6, 5, 'gave +0.1000: 0.6000 with own, 0.5000 with the server'),
  ],
)
def test_means_of_last_evaluations_are_compared(tmp_path, warmup, number, said):
  accuracies = {'own': [0.9, 0.5, 0.6, 0.6, 0.7, 0.6], 'alone': [0.5] * 6}
  flags = {'own': {'server_warmup_rounds': warmup, 'clients_per_round': 2}}
  both = []
  for name, values in accuracies.items():
    used = {'total_rounds': 6, **flags.get(name, {})}
    table = {'round': range(1, 7), 'accuracy': values}
    facts = {'flags': used, 'accuracy': values[-1]}
    run_folders.write(tmp_path / name, table, **facts)
    both.append(
      types.SimpleNamespace(
        run_dir=str(tmp_path / name),
        process='server_only' if name == 'alone' else name,
        seed=0,
        used=used,
      )
    )
  sentence = lower_bound.compare(*both)
  assert said in sentence
  assert f'mean of the last {number} evaluations; +0.1000 after' in sentence
