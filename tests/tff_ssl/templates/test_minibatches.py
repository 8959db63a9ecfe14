"""Minibatches hold what they should, as often as they should."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.templates import minibatches

SEED = tf.constant([3, 4])
_CONTINUOUS = {'epoch_batches': 'continuous'}
_MATCHED = {'epoch_batches': 'matched'}


def draw(labels, seed=SEED, **arguments):
  """Returns the minibatches' indices and labels, as lists of arrays."""
  labels = np.asarray(labels, np.int32)
  selection = minibatches.Selection(
    **{
      name: arguments.pop(name)
      for name in ('rows', 'labelled_probability', 'redrawn_mask_ratio')
      if name in arguments
    }
  )
  plan = minibatches.Minibatches(**arguments, selection=selection)
  examples = collections.OrderedDict(
    x=tf.range(len(labels)), y=tf.constant(labels)
  )

  drawn = plan.draw(examples['y'], seed)
  batches = [
    drawn.cut(examples, tf.constant(step)) for step in range(drawn.num_steps)
  ]
  return [b['x'].numpy() for b in batches], [b['y'].numpy() for b in batches]


def sizes(batches):
  return [len(batch) for batch in batches]


@pytest.mark.parametrize(
  'n, batch_size, length, expected',
  [
    (7, 4, {'steps': 5}, [4] * 5),
    (3, 8, {'steps': 5}, [8] * 5),
    (7, 4, {'epochs': 3}, [4, 3] * 3),
    (7, 4, {'epochs': 3, 'epoch_batches': 'separate'}, [4, 3] * 3),
    (7, 4, {'epochs': 3, 'epoch_batches': 'continuous'}, [4, 4, 4, 4, 4, 1]),
  ],
)
def test_minibatches_are_cut_from_whole_passes(n, batch_size, length, expected):
  batches, _ = draw(np.zeros(n), batch_size=batch_size, **length)
  assert sizes(batches) == expected
  stream = np.concatenate(batches)
  passes = stream[: len(stream) // n * n].reshape(-1, n)
  assert (np.sort(passes, axis=1) == np.arange(n)).all()
  assert not (passes == passes[0]).all()


def test_one_label_for_ten_continuous_passes_is_one_step():
  # As in the published code at mask ratio 0.99: ten copies in one minibatch.
  labels = [-1] * 99 + [5]
  batches, seen = draw(
    labels,
    batch_size=20,
    epochs=10,
    epoch_batches='continuous',
    rows='labelled',
  )
  assert [b.tolist() for b in batches] == [[99] * 10]
  assert seen[0].tolist() == [5] * 10


def test_matched_steps_are_those_of_all_examples():
  labels = [-1] * 15 + [1, 2]
  matched, _ = draw(
    labels, batch_size=4, epochs=2, epoch_batches='matched', rows='labelled'
  )
  either, _ = draw(labels, batch_size=4, epochs=2, rows='either')
  # 2 * 17 / 4, rounded up.
  assert sizes(matched) == sizes(either) == [4] * 9
  assert set(np.concatenate(matched)) == {15, 16}


@pytest.mark.parametrize(
  'rows, expected', [('labelled', {0, 3}), ('unlabelled', {1, 2, 4})]
)
def test_rows_are_selected_by_their_label(rows, expected):
  labels = [7, -1, -1, 8, -1]
  batches, seen = draw(labels, batch_size=2, epochs=2, rows=rows)
  assert set(np.concatenate(batches)) == expected
  assert (np.concatenate(seen) >= 0).all() == (rows == 'labelled')


def test_without_examples_of_a_kind_there_are_no_steps():
  for rows, labels in (('labelled', [-1, -1]), ('unlabelled', [1, 2])):
    for arguments in ({'steps': 3}, {'epochs': 2}):
      assert draw(labels, batch_size=2, rows=rows, **arguments) == ([], [])
  assert draw([], batch_size=2, rows='either', epochs=2) == ([], [])


def counts_of_kinds(seen):
  kinds = [np.unique(batch >= 0).tolist() for batch in seen]
  assert all(len(kind) == 1 for kind in kinds)
  return sum(kind == [True] for kind in kinds), len(kinds)


@pytest.mark.parts
def test_each_minibatch_is_labelled_or_unlabelled_in_proportion():
  labels = np.where(np.arange(1000) % 5 == 0, 3, -1)
  batches, seen = draw(labels, batch_size=50, epochs=20, rows='either')
  labelled, total = counts_of_kinds(seen)
  assert total == 400
  # Binomial(400, 1/5): four standard deviations are 32.
  assert abs(labelled - 80) < 32
  for batch, own in zip(batches, seen, strict=True):
    assert (labels[batch] == own).all()
  # Each kind is gone through in passes: no example is far ahead of another.
  for kind in (True, False):
    stream = np.concatenate(
      [b for b, s in zip(batches, seen, strict=True) if (s[0] >= 0) == kind]
    )
    appearances = np.bincount(stream, minlength=1000)[(labels >= 0) == kind]
    assert appearances.max() - appearances.min() <= 1


@pytest.mark.parts
@pytest.mark.parametrize('probability', [0.0, 0.3, 1.0])
def test_the_probability_of_labelled_minibatches_can_be_chosen(probability):
  labels = np.where(np.arange(100) < 50, 3, -1)
  _, seen = draw(
    labels,
    batch_size=10,
    steps=200,
    rows='either',
    labelled_probability=probability,
  )
  labelled, total = counts_of_kinds(seen)
  deviation = (total * probability * (1 - probability)) ** 0.5
  assert abs(labelled - total * probability) <= 4 * deviation


def test_where_there_is_one_kind_only_it_is_drawn():
  for labels, expected in (([1, 2, 3], 4), ([-1, -1, -1], 0)):
    _, seen = draw(
      labels, batch_size=2, steps=4, rows='either', labelled_probability=0.5
    )
    assert counts_of_kinds(seen) == (expected, 4)


def test_a_redrawn_mask_shows_others_in_every_pass():
  n, ratio, passes = 20, 0.8, 300
  batches, seen = draw(
    np.arange(n),
    batch_size=4,
    epochs=passes,
    rows='labelled',
    redrawn_mask_ratio=ratio,
  )
  # Of 20, int(0.8 * 20) are hidden: each pass is one minibatch of 4.
  assert sizes(batches) == [4] * passes
  assert all(len(set(batch)) == 4 for batch in batches)
  appearances = np.bincount(np.concatenate(batches), minlength=n)
  # Binomial(300, 1/5), five standard deviations for 20 of them.
  assert abs(appearances - 60).max() < 35
  assert (np.concatenate(seen) == np.concatenate(batches)).all()


@pytest.mark.dear
def test_a_redrawn_mask_is_one_mask_for_both_kinds_and_hides_labels():
  n, ratio, batch_size, epochs = 12, 0.75, 4, 100
  batches, seen = draw(
    np.arange(n),
    batch_size=batch_size,
    epochs=epochs,
    rows='either',
    redrawn_mask_ratio=ratio,
  )
  kinds = np.array([own[0] >= 0 for own in seen])
  assert abs(kinds.sum() - 75) < 4 * (300 * 0.25 * 0.75) ** 0.5
  # An epoch is three minibatches of four.
  masks = []
  for epoch in range(epochs):
    steps = range(3 * epoch, 3 * epoch + 3)
    labelled, unlabelled = (
      {i for step in steps if kinds[step] == kind for i in batches[step]}
      for kind in (True, False)
    )
    assert not labelled & unlabelled
    assert len(labelled) in (0, 3) and len(unlabelled) <= 9
    masks.append(frozenset(labelled))
  # A mask shows 3 of 12, where its epoch has a labelled minibatch at all.
  assert len(set(masks)) > 25


@pytest.mark.parametrize('epochs', [1, 3])
def test_matched_steps_see_one_mask_in_each_epoch(epochs):
  n, ratio = 50, 0.99
  batches, seen = draw(
    np.arange(n),
    batch_size=10,
    epochs=epochs,
    epoch_batches='matched',
    rows='labelled',
    redrawn_mask_ratio=ratio,
  )
  # int(0.99 * 50) labels are hidden: one is left, for five minibatches.
  assert sizes(batches) == [10] * (5 * epochs)
  assert all(len(set(batch)) == 1 for batch in batches)
  per_epoch = [
    set(np.concatenate(batches[5 * e : 5 * e + 5])) for e in range(epochs)
  ]
  assert all(len(labels) == 1 for labels in per_epoch)
  assert (np.concatenate(seen) == np.concatenate(batches)).all()


def test_supervised_and_joint_training_see_the_same_masks():
  n, epochs = 12, 20
  arguments = {'batch_size': 4, 'epochs': epochs, 'redrawn_mask_ratio': 0.75}
  supervised, _ = draw(
    np.arange(n), rows='labelled', epoch_batches='matched', **arguments
  )
  joint, seen = draw(np.arange(n), rows='either', **arguments)
  compared = 0
  for epoch in range(epochs):
    steps = range(3 * epoch, 3 * epoch + 3)
    shown = {i for step in steps for i in supervised[step]}
    labelled = [i for step in steps if seen[step][0] >= 0 for i in joint[step]]
    assert len(shown) == 3
    if labelled:
      assert set(labelled) == shown
      compared += 1
  assert compared > 5


@pytest.mark.parametrize('n', [1, 2, 9, 20, 50, 100])
@pytest.mark.parametrize('ratio', [0.0, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0])
def test_as_many_labels_are_hidden_as_python_would_count(n, ratio):
  batches, _ = draw(
    np.arange(n),
    batch_size=200,
    epochs=1,
    rows='labelled',
    redrawn_mask_ratio=ratio,
  )
  assert sizes(batches) == [n - min(int(ratio * n), n - 1)]


def test_seeds_differ_and_repeat():
  def first(seed):
    return np.concatenate(
      draw(
        np.where(np.arange(50) < 25, 1, -1),
        seed=tf.constant(seed),
        batch_size=5,
        epochs=1,
        rows='either',
      )[0]
    )

  assert (first([1, 2]) == first([1, 2])).all()
  assert not (first([1, 2]) == first([1, 3])).all()


@pytest.mark.parametrize(
  'arguments, text',
  [
    # Of what is selected.
    ({'rows': 'some'}, "rows must be one of .*'some'"),
    ({'rows': 'either', 'labelled_probability': 1.5}, 'labelled_prob.* 1.5'),
    ({'rows': 'all', 'labelled_probability': 0.5}, "only 'either' draws"),
    ({'rows': 'labelled', 'redrawn_mask_ratio': -0.1}, 'redrawn_mask.* -0.1'),
    (
      {'rows': 'labelled', 'redrawn_mask_ratio': float('nan')},
      'redrawn_mask_ratio must be a number between 0 and 1, but is nan',
    ),
    ({'rows': 'all', 'redrawn_mask_ratio': 0.5}, "rows='all'"),
    ({'rows': 'sets', 'redrawn_mask_ratio': 0.5}, "rows='sets'"),
    # Of minibatches.
    ({'batch_size': 0, 'steps': 1}, 'batch_size must be an integer >= 1'),
    ({'batch_size': 1}, 'exactly one of steps=None and epochs=None'),
    ({'batch_size': 1, 'steps': 1, 'epochs': 2}, 'exactly one of steps=1'),
    ({'batch_size': 1, 'epochs': 1, 'epoch_batches': 'x'}, 'epoch_batches'),
    (
      {'batch_size': 1, 'steps': 2, 'epoch_batches': 'continuous'},
      "epoch_batches='continuous' has no effect with steps=2",
    ),
    (
      {**_CONTINUOUS, 'batch_size': 1, 'epochs': 2, 'rows': 'either'},
      "no effect with steps=None and rows='either'",
    ),
    # Whole sets have no other size.
    *(
      (arguments, 'batch_size=.* do not fit rows=')
      for arguments in (
        {'rows': 'sets', 'batch_size': 4, 'epochs': 1},
        {'rows': 'sets', 'batch_size': None, 'steps': 2},
        {'rows': 'all', 'batch_size': None, 'epochs': 1},
        {**_CONTINUOUS, 'rows': 'sets', 'batch_size': None, 'epochs': 1},
        {**_MATCHED, 'rows': 'sets', 'batch_size': None, 'epochs': 1},
      )
    ),
  ],
)
def test_what_does_not_fit_is_refused(arguments, text):
  with pytest.raises(ValueError, match=text):
    draw([0, 1], **{'batch_size': 1, **arguments})


def test_whole_sets_are_minibatches_in_random_order():
  labels = np.repeat([0, 2, 3, 7, 8, 9, 11, -1], [4, 1, 3, 6, 2, 2, 5, 3])
  batches, sets = draw(labels, batch_size=None, epochs=3, rows='sets')
  orders = np.array([batch[0] for batch in sets]).reshape(3, 7)
  assert (np.sort(orders, axis=1) == [0, 2, 3, 7, 8, 9, 11]).all()
  assert len({tuple(order) for order in orders.tolist()}) == 3
  for batch, members in zip(batches, sets, strict=True):
    np.testing.assert_array_equal(
      np.sort(batch), np.where(labels == members[0])[0]
    )
  again, _ = draw(labels, [5, 6], batch_size=None, epochs=3, rows='sets')
  assert sizes(again) != sizes(batches)
  assert draw([-1, -1], batch_size=None, epochs=1, rows='sets') == ([], [])


def test_members_are_those_that_numpy_finds():
  labels = np.random.default_rng(0).integers(-1, 9, 60).astype(np.int32)
  # A set without examples, and examples without a set.
  labels[labels == 4] = -1
  rows = minibatches.sets_of(tf.constant(labels)).to_list()
  expected = [np.flatnonzero(labels == m).tolist() for m in range(9) if m != 4]
  assert rows == expected
  # No examples make no set.
  for labels in ([], [-1, -1]):
    assert minibatches.sets_of(tf.constant(labels, tf.int32)).nrows() == 0
