"""What continuous integration runs beside `make test`."""

import importlib.util
import pathlib

import costs
import pytest

from tff_ssl.algorithms import PROCESSES

_FILE = pathlib.Path(__file__).parents[1] / '.ci' / 'share.py'


@pytest.fixture(scope='module')
def share():
  spec = importlib.util.spec_from_file_location('share', _FILE)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


@pytest.mark.parametrize(
  'path, target',
  [
    ('tff_ssl/algorithms/flfl.py', 'test-contract NAMES=flfl'),
    ('tff_ssl/algorithms/semifl.py', 'test-contract NAMES=flfl,semifl'),
    ('tests/tff_ssl/algorithms/test_semifl.py', 'test-contract NAMES=semifl'),
    (
      'tff_ssl/algorithms/own_models.py',
      'test-contract NAMES=easgd,overlap_sgd',
    ),
    ('tff_ssl/templates/groups.py', 'test-contract'),
    ('tff_ssl/objectives/losses.py', 'test-contract'),
    ('requirements/runtime.txt', 'test-contract'),
    ('tff_ssl/simulation/ray_context.py', 'test-ray'),
    ('cluster/slurm.sh', 'test-ray'),
    ('tutorials/1_first_run.ipynb', 'test-notebooks'),
    ('examples/own_algorithm.py', 'test-notebooks'),
    ('tests/tff_parity/fed_avg.py', 'test-cases'),
    ('experiments/recipes/ssfl_table2.csv', 'test-tables'),
    ('experiments/running/round_loop.py', 'test-runs'),
    ('experiments/artifacts/checkpoints.py', 'test-runs'),
    ('tff_ssl/models/residual.py', 'test-parts'),
  ],
)
def test_what_is_touched_is_run(share, path, target):
  assert share.share([path], '0')[0] == target


def test_a_page_that_others_build_on_asks_for_them_too(share):
  names = share.processes_of('fed_avg')
  assert {'fedavg', 'fedprox_uda', 'fsl'} <= set(names) <= set(PROCESSES)
  assert 'sage' in names  # By way of fedlabel.
  assert 'sage' in share.processes_of('fedlabel')
  assert 'fedlabel' not in share.processes_of('sage')
  assert share.processes_of('process_spec') == []


def test_text_asks_for_a_shard_alone(share):
  calls = share.share(['README.md', 'docs/index.md'], '0')
  assert calls == [share.shards()[0][0]]


def test_every_shard_has_its_turn(share):
  turns = [share.share([], f'{n:x}')[0] for n in range(len(share.shards()))]
  assert sorted(turns) == sorted(call for call, _ in share.shards())
  assert {call.split()[0] for call in turns} == {
    f'test-{tier}' for tier in costs.TIERS
  }


def test_what_has_no_room_is_told(share):
  calls = share.share(
    ['tff_ssl/templates/groups.py', 'experiments/run.py'], '0'
  )
  assert calls[0] == 'test-contract'
  assert any(call.startswith('# no room for: ') for call in calls)
