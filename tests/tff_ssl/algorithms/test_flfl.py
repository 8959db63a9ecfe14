"""(FL)^2's rounds against numpy: softmax regression on a few examples."""

import numpy as np
import pytest
import softmax_regression
from labelled_rounds import (
  SERVER,
  SIZE,
  arrays,
  assert_weights,
  begin,
  builder,
  client,
  start,
  step,
)

from tff_ssl.algorithms import flfl, semifl

build = builder('flfl', sharpness_radius=0.0, server_warmup_rounds=0)


def _labels(weights, x):
  """Returns labels, which are kept, and the mean confidence."""
  found = softmax_regression.probabilities(weights, x)
  shares, labels = found.mean(0), found.argmax(1)
  thresholds = found.max(1).mean() * shares / shares.max()
  return labels, found.max(1) >= thresholds[labels], found.max(1).mean()


def test_labels_equal_numpy():
  x = arrays(3)[0]
  labels, kept, status = _labels(start(), x)
  found = softmax_regression.probabilities(start(), x).astype(np.float32)
  labelling = flfl.from_mean_confidence(found)
  np.testing.assert_array_equal(labelling.labels, labels)
  np.testing.assert_array_equal(labelling.mask, kept)
  assert 0 < kept.sum() < SIZE
  weight = semifl.learning_status(found).numpy()
  assert weight == pytest.approx(256 * (1 - status), rel=1e-5)
  np.testing.assert_allclose(
    labelling.more['confidence'], found.max(1), rtol=1e-6
  )


def test_who_knows_nothing_keeps_all():
  labelling = flfl.from_mean_confidence(np.full([5, 3], 1 / 3, np.float32))
  assert labelling.mask.numpy().all()
  nothing = np.zeros([0, 3], np.float32)
  assert flfl.from_mean_confidence(nothing).mask.shape == (0,)
  assert semifl.learning_status(nothing) == 0


@pytest.mark.dear
@pytest.mark.parametrize('client_weighting', ['learning_status', 'uniform'])
def test_two_rounds_by_hand(client_weighting, tff_context):
  """Clients, their mean by what they have learnt, momentum, the server."""
  process = build(client_weighting=client_weighting, global_momentum=0.5)
  weights = start()
  state = begin(process, weights)
  velocity = [0.0, 0.0]
  for participants in ((0, 1), (2, 3)):
    state, metrics = process.next(state, [*map(client, participants)])
    deltas, shares = [], []
    for index in participants:
      x = arrays(index)[0]
      labels, kept, status = _labels(weights, x)
      local = step(weights, x[kept], labels[kept])
      deltas.append([w - own for w, own in zip(weights, local, strict=True)])
      is_own = client_weighting == 'learning_status'
      shares.append(1 - status if is_own else 1.0)
    mean = [
      np.average(d, axis=0, weights=shares) for d in zip(*deltas, strict=True)
    ]
    velocity = [0.5 * v + d for v, d in zip(velocity, mean, strict=True)]
    weights = step(
      [w - v for w, v in zip(weights, velocity, strict=True)], *SERVER
    )
    assert_weights(process, state, weights)
    assert metrics['client_work']['clients']['participating'] == 2


@pytest.mark.parts
def test_the_neighbour_counts_where_the_model_is_sure(tff_context):
  """As the objective's own test has it by numpy; here it reaches a round."""
  state = None
  for radius, threshold, moves in ((0.5, 0.0, True), (0.5, 1.0, False)):
    process = build(sharpness_radius=radius, sharpness_threshold=threshold)
    plain = build()
    state = begin(process, start())
    found = process.next(state, [client(0)]).state
    without = plain.next(begin(plain, start()), [client(0)]).state
    kernels = [
      process.get_model_weights(each).trainable[0] for each in (found, without)
    ]
    assert (np.abs(kernels[0] - kernels[1]).max() > 1e-4) == moves


@pytest.mark.parts
def test_the_server_trains_alone_at_first(tff_context):
  process = build(server_warmup_rounds=1)
  weights = start()
  state, metrics = process.next(begin(process, weights), [client(0)])
  weights = step(weights, *SERVER)
  assert_weights(process, state, weights)
  assert metrics['client_work']['clients']['participating'] == 0
  # Nobody labels what nobody trains on: of no passes the mean is no number.
  assert np.isnan(metrics['client_work']['train']['forward_passes'])
  state, _ = process.next(state, [client(0)])
  x = arrays(0)[0]
  labels, kept, _ = _labels(weights, x)
  local = step(weights, x[kept], labels[kept])
  # The default momentum of the mean has nothing to add to the first change.
  assert_weights(process, state, step(local, *SERVER))
