"""Forward and backward passes of a client, counted by hand.

One client has 20 examples, of which 7 have a label where clients have some of
them; minibatches hold 8, and a step of a pass over 20 is one of 8, 8 and 4.
"""

import numpy as np
import pytest

from tff_ssl import algorithms, objectives, testing

_SIZE, _LABELLED, _UNLABELLED, _BATCH = 20, 7, 13, 8


def problem_of(name):
  return testing.TinyProblem(algorithms.PROCESSES[name])


def passes_of(metrics):
  train = metrics['client_work']['train']
  return train['forward_passes'], train['backward_passes']


@pytest.mark.parts
@pytest.mark.parametrize(
  'name, settings, forward, backward',
  [
    # A pass over what has a label: all examples.
    ('fedavg', {}, _SIZE, _SIZE),
    ('fedavg', {'local_epochs': 3}, 3 * _SIZE, 3 * _SIZE),
    # 3 labelled minibatches; the weak view gives labels, no gradient.
    (
      *('fedprox_fixmatch', {'threshold': 0.0}),
      *(3 * _BATCH + 2 * _SIZE, 3 * _BATCH + _SIZE),
    ),
    # Of examples without a pseudo-label no strong view goes through.
    (
      *('fedprox_fixmatch', {'threshold': 1.01, 'labelled_batch_size': 5}),
      *(15 + 20, 15),
    ),
    ('fedavg_uda', {'threshold': 1.01}, 3 * _BATCH + _SIZE, 3 * _BATCH),
    # The received model labels all, to find its classes, and each minibatch.
    (
      *('fedavg_robust', {'pseudo_label_rule': 'fixed', 'threshold': 0.0}),
      *(_SIZE + 3 * _BATCH + 2 * _SIZE, 3 * _BATCH + _SIZE),
    ),
    # tau = 3 steps; tau' = 3 with two experts and the strong view: 2P + 2B of
    # Table 3, whose P are passes that label and whose B the two trainings.
    (
      *('fedlabel', {'threshold': 0.0, 'consistency_view': 'strong'}),
      *(24 + 3 * 24, 24 + 24),
    ),
    (
      *('fedlabel', {'threshold': 0.0, 'consistency_weight': 0.0}),
      *(24 + 3 * 24, 24 + 24),
    ),
    ('fedlabel', {'threshold': 1.0}, 24 + 2 * 24, 24),
    ('grouping', {'threshold': 0.0}, 2 * _SIZE, _SIZE),
    ('grouping', {'threshold': 1.01}, _SIZE, 0),
    # Reconstruction takes the images themselves: one pass for both heads. Three
    # minibatches, labelled or not, are full.
    ('ssjo', {}, 24, 24),
    # Besides the images as they are, each in four rotations.
    (
      'ssjo',
      {'proxy_task': objectives.PROXY_TASKS['rotation']},
      (1 + 4) * 24,
      (1 + 4) * 24,
    ),
    # One model labels all, then the sure ones: at this threshold, all. Each is
    # trained on its strong view and in a mixture.
    ('semifl', {'threshold': 0.0}, _SIZE + 2 * _SIZE, 2 * _SIZE),
    # Labelled examples for sigma, the others for psi: both views
    # at once, two helpers on one of them; and one image of noise.
    (
      *('fedmatch', {}),
      _LABELLED + (2 + 2) * _UNLABELLED + 1,
      _LABELLED + 2 * _UNLABELLED,
    ),
    ('fedul', {}, _SIZE, _SIZE),
    ('fedpl', {}, _SIZE, _SIZE),
    # With everybody confident, none is left to mix with.
    ('fedpl', {'warmup_rounds': 0, 'threshold': 0.0}, _SIZE, _SIZE),
    ('fedpl', {'warmup_rounds': 0, 'mix': 'logits'}, _SIZE, _SIZE),
    ('fedllp', {}, _SIZE, _SIZE),
    # Clean and perturbed images.
    ('fedllp_vat', {}, 2 * _SIZE, 2 * _SIZE),
    ('sspt', {'pretraining_rounds': 0}, _LABELLED, _LABELLED),
    ('sspt', {}, _SIZE, _SIZE),
  ],
)
def test_one_round(name, settings, forward, backward, tff_context):
  problem = problem_of(name)
  process = problem.build(**settings)
  # The empty client computes nothing and is none of those that are averaged.
  clients = [problem.client(0, _SIZE), problem.client(1, 0)]
  output = process.next(process.initialize(), clients)
  assert passes_of(output.metrics) == (forward, backward)


@pytest.mark.parts
def test_views_in_one_pass_go_back_together(tff_context):
  """Batch normalisation mixes both views: so does its gradient."""
  problem = problem_of('grouping')
  process = problem.build(model=problem.build_model(normalised=True))
  output = process.next(process.initialize(), [problem.client(0, _SIZE)])
  assert passes_of(output.metrics) == (2 * _SIZE, 2 * _SIZE)


@pytest.mark.parts
@pytest.mark.parametrize(
  'name, forward, backward',
  [
    # The mean of 20 and 10 examples.
    ('grouping', 2 * 15, 15),
    # Both views, two helpers, and the noise.
    ('fedmatch_server', (2 + 2) * 15 + 1, 2 * 15),
  ],
)
def test_clients_that_wait_for_the_server_do_not_count(
  name, forward, backward, tff_context
):
  problem = problem_of(name)
  process = problem.build(server_warmup_rounds=1, threshold=0.0)
  clients = [problem.client(0, _SIZE), problem.client(1, 10)]
  first = process.next(process.initialize(), clients)
  assert np.isnan(passes_of(first.metrics)).all()
  second = process.next(first.state, clients)
  assert passes_of(second.metrics) == (forward, backward)


@pytest.mark.parts
def test_fedtrinet_votes_three_times(tff_context):
  problem = problem_of('fedtrinet')
  process = problem.build(supervised_rounds=1)
  clients = [problem.client(0, _SIZE)]
  first = process.next(process.initialize(), clients)
  assert passes_of(first.metrics) == (_LABELLED, _LABELLED)
  second = process.next(first.state, clients)
  mask_rate = second.metrics['client_work']['train']['mask_rate']
  # Head, then all of the model, which sees what was labelled by the vote, too.
  trained = 2 * _LABELLED + round(_UNLABELLED * float(mask_rate))
  assert passes_of(second.metrics) == (3 * _SIZE + trained, trained)


@pytest.mark.parts
def test_fedlabel_takes_the_plain_view_where_experts_agree(tff_context):
  problem = problem_of('fedlabel')
  process = problem.build(threshold=0.0, unlabelled_steps=5)
  state, rates = process.initialize(), []
  for _ in range(3):
    state, metrics = process.next(state, [problem.client(0, _SIZE)])
    rates.append(float(metrics['client_work']['train']['agreement_rate']))
    trained = 24 + 40 + round(rates[-1] * 40)
    assert passes_of(metrics) == (trained + 2 * 40, trained)
  assert len(set(rates)) > 1
