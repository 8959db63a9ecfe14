"""Drawn sets at clients: who gets what, what clients know, refusals."""

import dataclasses

import numpy as np
import pytest

from datasets.partition import client_labels, partitions

DRAWN = {'num_clients': 5, 'sets_per_client': 10}


@pytest.fixture(scope='module')
def digits(digits_of):
  return digits_of()


@pytest.fixture(scope='module')
def mnist_like(source_of):
  """The class counts of the first 48,000 digits of MNIST, roughly."""
  counts = [4738, 5394, 4766, 4905, 4674, 4337, 4734, 5012, 4681, 4759]
  labels = np.repeat(np.arange(10), counts)
  return source_of(np.random.default_rng(0).permutation(labels))


def build(source, **arguments):
  return partitions.build('u_sets', source, **{'seed': 3, **DRAWN, **arguments})


def counted(source, partition):
  """Class counts of each set, example by example, `int [C, M, d]`."""
  counts = np.zeros(partition.class_priors.shape, int)
  for example, client, number in zip(
    partition.examples, partition.owners, partition.set_ids, strict=True
  ):
    counts[client, number, source.train.labels[example]] += 1
  return counts


@pytest.mark.parametrize('recipe', ['paper', 'code'])
@pytest.mark.parametrize('priors', ['iid', 'noniid'])
def test_exact_priors_are_the_shares_in_the_sets(mnist_like, recipe, priors):
  partition = build(mnist_like, u_set_recipe=recipe, priors=priors)
  counts = counted(mnist_like, partition)
  sizes = counts.sum(axis=2)
  np.testing.assert_array_equal(partition.set_sizes, sizes)
  np.testing.assert_allclose(
    partition.class_priors, counts / sizes[..., np.newaxis]
  )
  np.testing.assert_allclose(
    partition.set_shares, sizes / sizes.sum(axis=1, keepdims=True)
  )
  assert partition.num_sets.tolist() == [10] * 5
  # Each client's own in random order, not set by set.
  own = partition.set_ids[: partition.offsets[1]]
  assert (np.diff(own) < 0).sum() > len(own) / 4


def test_sets_of_the_paper(mnist_like):
  iid = build(mnist_like)
  # n_c / M each, no example twice, hardly any left over.
  assert np.ptp(iid.set_sizes) == 0
  assert len(np.unique(iid.examples)) == len(iid.examples) > 47_900
  of_client = counted(mnist_like, iid).sum(axis=1) / iid.client_sizes[0]
  data = np.bincount(mnist_like.train.labels) / 48_000
  np.testing.assert_allclose(of_client, [data] * 5, atol=5e-4)
  noniid = counted(mnist_like, build(mnist_like, priors='noniid'))
  shares = noniid.sum(axis=1) / noniid.sum(axis=(1, 2))[0]
  ordered = np.sort(shares, axis=1)
  assert (ordered[:, -2:] > 0.149).all() and (ordered[:, -2:] < 0.251).all()
  assert (ordered[:, :-2] < 0.081).all()


@pytest.mark.parametrize(
  'num_sets, examples', [(10, 9550), (20, 4696), (40, 2198)]
)
def test_iid_data_of_the_code_shrink_with_the_sets(
  mnist_like, num_sets, examples
):
  """What the authors' code gives at each of five clients."""
  partition = build(mnist_like, u_set_recipe='code', sets_per_client=num_sets)
  np.testing.assert_allclose(partition.client_sizes, examples, rtol=5e-3)
  priors = partition.class_priors
  np.testing.assert_allclose(priors, [priors[0]] * 5, atol=0.03)


@pytest.mark.parametrize('num_sets', [10, 20, 40])
def test_iid_data_stay_where_the_code_normalises_rows(mnist_like, num_sets):
  """What the authors do on CIFAR-10, for FedUL alone."""
  arguments = {'priors': 'iid', 'sets_per_client': num_sets}
  partition = build(mnist_like, u_set_recipe='code_rows', **arguments)
  # Rows sum to 1; of each class a whole number is taken, rounded down.
  lost = 9_600 - partition.client_sizes
  assert (lost >= 0).all() and (lost < num_sets * 10).all()
  assert len(np.unique(partition.examples)) < len(partition.examples)
  by_columns = build(mnist_like, u_set_recipe='code', **arguments)
  shares = by_columns.class_priors[0]
  # The matrix is another one, since columns are not scaled.
  assert np.abs(partition.class_priors[0] - shares).max() > 0.005


def test_noniid_sets_of_the_code_are_the_same_by_rows(mnist_like):
  of_code, by_rows = (
    build(mnist_like, u_set_recipe=recipe, priors='noniid')
    for recipe in ('code', 'code_rows')
  )
  np.testing.assert_array_equal(of_code.examples, by_rows.examples)


def test_noniid_clients_of_the_code_run_out_of_classes(mnist_like):
  """Table D.5: the last of five clients has none of class 3 or 5."""
  partition = build(mnist_like, u_set_recipe='code', priors='noniid')
  counts = counted(mnist_like, partition)
  missing = np.argwhere(counts.sum(axis=1) == 0)
  assert len(missing) and (missing[:, 0] >= 3).all()
  # Repeats, but none within a set or with another client.
  assert len(np.unique(partition.examples)) < len(partition.examples)
  pairs = np.stack([partition.examples, partition.owners, partition.set_ids])
  assert np.unique(pairs, axis=1).shape == pairs.shape
  assert len(np.unique(pairs[:2], axis=1)[0]) == len(np.unique(pairs[0]))
  whole = build(
    mnist_like, u_set_recipe='code', priors='noniid', set_repeats='none'
  )
  assert len(np.unique(whole.examples)) == len(whole.examples)


def test_repeats_across_sets_are_a_choice(digits):
  partition = build(digits, set_repeats='across_sets')
  same = build(digits)
  np.testing.assert_array_equal(partition.class_priors, same.class_priors)
  assert len(np.unique(partition.examples)) < len(same.examples)


def test_each_client_with_its_own_number_of_sets(digits):
  """Table E.12, with fewer examples."""
  partition = build(
    digits, num_clients=3, sets_per_client='10,12,15', client_examples=300
  )
  assert partition.num_sets.tolist() == [10, 12, 15]
  assert partition.class_priors.shape == (3, 15, 10)
  assert not partition.class_priors[0, 10:].any()
  np.testing.assert_array_equal(partition.set_sizes[1, :12], 25)
  np.testing.assert_allclose(partition.set_shares.sum(axis=1), 1)
  assert partition.arguments['sets_per_client'] == '10,12,15'


def test_fifty_clients_of_500(mnist_like):
  """Section 4.2: n_c = 500 for up to 50 clients."""
  partition = build(
    mnist_like,
    num_clients=50,
    client_examples=500,
    priors='noniid',
    u_set_recipe='paper',
  )
  assert partition.client_sizes.tolist() == [500] * 50


def test_nominal_priors_are_near_the_exact_ones(mnist_like):
  exact = build(mnist_like)
  nominal = build(mnist_like, known_priors='nominal')
  np.testing.assert_array_equal(exact.examples, nominal.examples)
  np.testing.assert_array_equal(exact.set_ids, nominal.set_ids)
  # Rounded to whole examples of 959 in a set.
  distances = np.abs(exact.class_priors - nominal.class_priors)
  assert 0 < distances.max() < 1 / 900


def test_noise_changes_what_clients_know_alone(mnist_like):
  exact, noisy = (build(mnist_like, prior_noise=e) for e in (0.0, 0.4))
  np.testing.assert_array_equal(exact.examples, noisy.examples)
  assert exact.digest() == build(mnist_like).digest() != noisy.digest()
  ratios = noisy.class_priors / exact.class_priors
  ratios /= np.median(ratios, axis=2, keepdims=True)
  assert ratios.min() > 0.6 / 1.4 and ratios.max() < 1.4 / 0.6
  np.testing.assert_allclose(noisy.class_priors.sum(axis=2), 1)


def test_a_seed_fixes_everything(digits):
  first, again, other = (build(digits, seed=seed) for seed in (3, 3, 4))
  assert first.digest() == again.digest() != other.digest()


@pytest.mark.parametrize('set_repeats', ['none', 'across_sets'])
def test_masks_are_of_different_examples(digits, set_repeats):
  partition = build(digits, set_repeats=set_repeats, mask_ratio=0.9)
  for client in range(5):
    own = np.unique(partition.client_indices(client))
    labelled = np.isin(own, partition.labelled_indices).sum()
    assert labelled == len(own) - client_labels.num_masked(len(own), 0.9)
  plain = build(digits, set_repeats=set_repeats)
  np.testing.assert_array_equal(plain.examples, partition.examples)


@pytest.mark.parametrize(
  'arguments, message',
  [
    ({'num_clients': None}, 'num_clients=None'),
    ({'sets_per_client': None}, 'sets_per_client=None'),
    ({'sets_per_client': 0}, 'sets_per_client=0 '),
    ({'sets_per_client': '10,20'}, '2 numbers for 5 clients'),
    ({'sets_per_client': 9}, 'sets_per_client=9 is less than the 10 classes'),
    (
      {
        'u_set_recipe': 'code',
        'priors': 'noniid',
        'sets_per_client': '10,9,10,10,10',
      },
      'sets_per_client=9 is less than the 10 classes',
    ),
    ({'sets_per_client': 400}, 'sets_per_client=400: the data'),
    ({'client_examples': 9}, 'client_examples=9 .*empty'),
    ({'client_examples': 400}, 'client_examples=400 .*class 0'),
    ({'client_examples': 1.5}, 'client_examples must be .* is 1.5'),
    (
      {'client_examples': 360, 'u_set_recipe': 'code'},
      'client_examples=360 for each of 5',
    ),
    ({'priors': 'some'}, "priors must be one of .* 'some'"),
    ({'u_set_recipe': 'own'}, "u_set_recipe must be .* 'own'"),
    ({'set_repeats': 'all'}, "set_repeats must be .* 'all'"),
    ({'known_priors': 'no'}, "known_priors must be .* 'no'"),
    ({'prior_noise': -1.0}, 'prior_noise must be .* is -1.0'),
    ({'prior_noise': float('nan')}, 'prior_noise must be .* is nan'),
    (
      {'prior_noise': 0.2, 'noise_formula': 'white'},
      "noise_formula must be .* 'white'",
    ),
    (
      {'prior_noise': 0.5},
      'prior_noise=0.5 changes nothing .*--noise_formula=symmetric',
    ),
    (
      {'noise_formula': 'printed'},
      'no effect: `prior_noise=0` .* leave it out',
    ),
    ({'server_examples': 10}, 'server_examples=10 does not fit'),
    ({'labelled_examples': 10}, 'labelled_examples=10 does not fit'),
    (
      {'priors': 'noniid', 'client_examples': 20, 'sets_per_client': 20},
      'rank .*client_examples.*another seed',
    ),
    ({'mask_ratio': 2.0}, 'mask_ratio must be .* is 2.0'),
    ({'seed': -1}, 'seed must be .* is -1'),
  ],
)
def test_bad_arguments(digits, arguments, message, refusal):
  with refusal(match=message):
    build(digits, **arguments)


@pytest.mark.parametrize(
  'labels, message',
  [
    ([0, 2] * 300, "'tiny' is of class 1, of 3: add"),
    ([*np.arange(100) % 3, -1], '1 training images without a label'),
  ],
)
def test_labels_of_every_class_are_needed(source_of, labels, message):
  with pytest.raises(ValueError, match=message):
    build(source_of(labels, num_classes=3), sets_per_client=4)


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda p: {'set_ids': p.set_ids[1:]}, 'do not fit'),
    (lambda p: {'set_ids': p.set_ids + 9}, 'do not fit'),
    (lambda p: {'class_priors': p.class_priors[0]}, 'do not fit'),
    (lambda p: {'class_priors': p.class_priors * 0}, 'a set needs both'),
    (
      lambda p: {'examples': np.roll(p.examples, 1)[[0, 0, *range(2, 1700)]]},
      'do not fit|two clients',
    ),
    (lambda p: {'examples': p.examples * 0}, 'two clients'),
    (lambda p: {'server_indices': p.examples[:1]}, 'two clients'),
  ],
)
def test_inconsistent_sets_are_refused(digits, change, message):
  sound = build(digits)
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(sound, **change(sound))
