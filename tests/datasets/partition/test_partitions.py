"""The partitions by name: who gets what under a seed, and what is refused."""

import dataclasses
import inspect

import numpy as np
import pytest
import pythons

from datasets.partition import partitions, u_sets
from datasets.partition.assignment import PartitionSpec
from datasets.records import partition_report, split_manifest


def build(name, source, **given):
  return partitions.build(
    name, source, **{'server_examples': 0, 'seed': 0, **given}
  )


def _r(num_clients, noniid_r=0.4):
  return {'num_clients': num_clients, 'noniid_r': noniid_r}


@pytest.mark.parametrize('server_examples', [0, 1, 10, 103, 500])
def test_server_set_is_class_uniform(digits_of, server_examples):
  source = digits_of()
  for name, others in (('pooled', {}), ('r', _r(num_clients=10))):
    given = {'server_examples': server_examples, 'seed': 3, **others}
    partition = build(name, source, **given)
    at_server = source.train.labels[partition.server_indices]
    counts = np.bincount(at_server, minlength=10)
    assert counts.sum() == server_examples
    assert np.ptp(counts) == (1 if server_examples % 10 else 0)
    assert len(partition.examples) == 1797 - server_examples
    if server_examples == 500:  # Not sorted by class.
      assert len(np.unique(at_server[:50])) == 10


def test_a_seed_fixes_the_partition(digits_of):
  source = digits_of()
  first, again, more, other = (
    build('r', source, seed=seed, server_examples=100, **_r(num_clients))
    for seed, num_clients in ((4, 10), (4, 10), (4, 20), (5, 10))
  )
  assert first.digest() == again.digest() != other.digest()
  # The server set is that of the seed, whatever the clients look like.
  np.testing.assert_array_equal(first.server_indices, more.server_indices)
  assert set(first.server_indices) != set(other.server_indices)


# Stores and run folders go by these: made with the code as it was before there
# were partitions into sets.
@pytest.mark.parametrize(
  'name, arguments, digest',
  [
    ('r', _r(5), '9e1c6320bbc82dcf'),
    (
      'dirichlet',
      {'num_clients': 5, 'dirichlet_alpha': 0.5},
      '93ea24bf0873c3fc',
    ),
    ('native', {'server_writers': 'everyone'}, '5f4c66d5d633b6e8'),
    ('native', {'server_writers': 'held_out'}, 'da4daac8d623b830'),
    ('pooled', {'mask_ratio': 0.5, 'server_examples': 0}, 'a630884da60254be'),
  ],
)
def test_digests_do_not_change(source_of, name, arguments, digest):
  source = source_of(
    np.arange(600) % 7, client_ids=[f'w{i % 30}' for i in range(600)]
  )
  given = {'seed': 3, 'server_examples': 14, **arguments}
  partition = build(name, source, **given)
  assert partition.digest().startswith(digest)


def test_a_seed_does_not_depend_on_the_hash_seed():
  program = (
    'import numpy as np; from datasets.partition import partitions;'
    'from datasets.sources.source import Source, Split;'
    'ids = np.array([f"w{i % 40}" for i in range(900)], object);'
    'images = np.zeros((900, 1, 1, 1), np.uint8);'
    'split = Split(images, np.arange(900) % 9, ids);'
    'source = Source("t", "1", "", split, split, 9, (0,), (1,), 0, False);'
    'held = partitions.build("native", source, server_examples=45, seed=1,'
    ' num_clients=20);'
    'print(held.client_names, held.examples.tolist());'
    'import sys; assert "tensorflow" not in sys.modules'
  )
  outputs = {
    pythons.run(
      '-c', program, env={'PYTHONHASHSEED': hash_seed}, check=True
    ).stdout
    for hash_seed in ('1', '2')
  }
  assert len(outputs) == 1


@pytest.mark.parametrize('server_writers', ['spread', 'held_out'])
def test_held_out_writers_never_take_part(digits_of, server_writers):
  source = digits_of(writers=60)
  given = {'server_examples': 100, 'seed': 6}
  partition = build('native', source, server_writers=server_writers, **given)
  held_out = set(partition.held_out_client_names)
  assert held_out
  assert not held_out & set(partition.client_names)
  ids = source.train.client_ids
  assert set(ids[partition.server_indices]) <= held_out
  assert not set(ids[partition.examples]) & held_out
  for client, name in enumerate(partition.client_names):
    np.testing.assert_array_equal(
      np.sort(partition.client_indices(client)), np.flatnonzero(ids == name)
    )
  assert list(partition.client_names) == sorted(set(ids) - held_out)
  counts = np.bincount(source.train.labels[partition.server_indices])
  assert counts.tolist() == [10] * 10
  assert len(held_out) < 10


def test_each_held_out_writer_was_needed(source_of):
  # Each writer has one class: 4 classes need exactly 4 of 40 writers.
  source = source_of(np.arange(400) % 4, [f'{i % 40:02d}' for i in range(400)])
  given = {'server_examples': 20, 'seed': 8, 'server_writers': 'held_out'}
  partition = build('native', source, **given)
  assert len(partition.held_out_client_names) == 4


@pytest.mark.parametrize(
  'writers, server_examples, held_out, of_a_class, of_a_writer',
  [
    # As many writers as a class has labels: 3 or 4.
    (60, 100, 4, 1, 25),
    # A tenth of the writers, rounded up.
    (60, 280, 6, 2, 47),
    (21, 280, 3, 4, 94),
    (5, 100, 1, 4, 100),
  ],
)
def test_server_labels_are_spread_over_held_out_writers(
  source_of, writers, server_examples, held_out, of_a_class, of_a_writer
):
  # Every writer has 5 examples of each of 28 classes and could serve alone.
  source = source_of(
    np.arange(140 * writers) // writers % 28,
    [f'{i % writers:02d}' for i in range(140 * writers)],
  )
  given = {'server_examples': server_examples, 'seed': 4}
  partition = build('native', source, **given)
  assert len(partition.held_out_client_names) == held_out
  server = partition.server_indices
  table = np.zeros((writers, 28), int)
  owner = source.train.client_ids[server].astype(int)
  np.add.at(table, (owner, source.train.labels[server]), 1)
  assert np.ptp(table.sum(axis=0)) == (1 if server_examples % 28 else 0)
  # Nobody gives more of a class, or in all, than equal shares make necessary.
  assert table.max() == of_a_class
  assert table.sum(axis=1).max() == of_a_writer


def test_more_writers_are_held_out_where_labels_are_short(source_of):
  # Class 0 is rare: each of 40 writers has one example of it and 9 of class 1.
  source = source_of(
    (np.arange(400) // 40 > 0) + 0, [f'{i % 40:02d}' for i in range(400)]
  )
  partition = build('native', source, server_examples=20)
  assert len(partition.held_out_client_names) == 10
  server = partition.server_indices
  assert np.bincount(source.train.labels[server]).tolist() == [10, 10]
  # Everybody gave an example of each class, not one all of class 1.
  assert set(np.bincount(source.train.client_ids[server].astype(int))) == {0, 2}


def test_writers_without_labels_are_not_held_out(source_of):
  labels = np.arange(400) // 20 % 4
  writers = np.arange(400) % 20
  labels[writers % 2 == 0] = -1
  source = source_of(labels, [f'{w:02d}' for w in writers], 4)
  partition = build('native', source, server_examples=8)
  assert [int(w) % 2 for w in partition.held_out_client_names] == [1, 1]


def test_server_examples_from_everyone(digits_of):
  source = digits_of(writers=60)
  given = {'server_examples': 100, 'seed': 6, 'server_writers': 'everyone'}
  partition = build('native', source, **given)
  assert partition.held_out_client_names == ()
  assert partition.num_clients == 60
  given = np.concatenate([partition.server_indices, partition.examples])
  np.testing.assert_array_equal(np.sort(given), np.arange(1797))
  assert len(set(source.train.client_ids[partition.server_indices])) > 30


def test_a_subset_of_native_clients(digits_of):
  source = digits_of(writers=60)
  some, others, everyone = (
    build('native', source, server_examples=10, seed=seed, num_clients=k)
    for seed, k in ((1, 20), (2, 20), (1, None))
  )
  assert some.num_clients == 20
  assert set(some.client_names) < set(everyone.client_names)
  assert some.client_names != others.client_names
  np.testing.assert_array_equal(some.server_indices, everyone.server_indices)


def test_3400_native_clients(source_of):
  rng = np.random.default_rng(0)
  ids = [f'f{w:04d}_{w % 50:02d}' for w in range(3400)]
  owners = np.repeat(ids, 30)
  source = source_of(rng.integers(62, size=len(owners)), owners.tolist())
  partition = build('native', source, server_examples=620)
  assert partition.num_clients + len(partition.held_out_client_names) == 3400
  assert (partition.client_sizes == 30).all()


def test_b3_hostile_ids_stay_apart(source_of):
  ids = ['a', 'a\x00', 'a|b', '../../x', "'; drop", '\n', 'é', 'e\u0301']
  ids += ['\ud800', 'x' * 10_000, '']
  source = source_of(np.arange(110) % 5, [ids[i % 11] for i in range(110)])
  partition = build('native', source)
  assert list(partition.client_names) == sorted(ids)
  for client, name in enumerate(partition.client_names):
    assert set(partition.client_indices(client) % 11) == {ids.index(name)}


@pytest.mark.parametrize(
  ('name', 'arguments', 'message'),
  [
    ('q', {}, 'partition=q is unknown; there are r, dirichlet, native'),
    ('native', {}, '--partition=r'),
    ('r', {'num_clients': 5}, 'noniid_r=None'),
    ('r', {'noniid_r': 0.5}, 'num_clients=None.*an integer >= 1'),
    ('r', _r(5, 1.5), 'noniid_r must be a number between 0 and 1, but is 1.5'),
    ('r', _r(5, -0.1), 'noniid_r must be .* is -0.1'),
    ('r', _r(5, float('nan')), 'noniid_r must be .* is nan'),
    ('r', _r(5, '1'), "noniid_r must be .* is '1'"),
    ('r', _r(0), 'num_clients must be an integer >= 1, but is 0'),
    ('r', _r(2.0), 'num_clients must be .* is 2.0'),
    ('r', _r(1788), 'num_clients=1788.*1787'),
    ('r', {**_r(5), 'seed': -1}, 'seed must be an integer >= 0, but is -1'),
    ('r', {**_r(5), 'seed': True}, 'seed must be .* is True'),
    ('r', {**_r(5), 'server_examples': -1}, 'server_examples must be .* is -1'),
    ('r', {**_r(5), 'server_examples': 1797}, 'server_examples=1797'),
    ('r', {**_r(5), 'server_examples': 1740}, 'server_examples=1740'),
    (
      'r',
      {**_r(5), 'server_examples': 1750},
      "class '8', which has 174: .*=1740 or less",
    ),
    (
      'r',
      {**_r(5), 'server_writers': 'held_out'},
      'server_writers=.*--partition=native',
    ),
    ('pooled', {'num_clients': 2}, 'num_clients=2'),
    ('pooled', {'noniid_r': 0.4}, 'noniid_r=0.4.*--partition=r'),
    ('pooled', {'num_client': 4}, 'num_client=4 does not apply .*: leave it'),
    ('writers', {'server_writers': 'some'}, "server_writers must be .* 'some'"),
    ('writers', {'num_clients': 61}, 'num_clients=61'),
    ('writers', {'server_examples': 1740}, 'holds out all|lower it'),
  ],
)
def test_bad_arguments(digits_of, name, arguments, message):
  has_writers = name == 'writers'
  source = digits_of(writers=60 if has_writers else None)
  name = 'native' if has_writers else name
  with pytest.raises(ValueError, match=message):
    build(name, source, **{'server_examples': 10, **arguments})


def test_a_class_left_without_examples(source_of):
  source = source_of([0] * 5 + [1] * 50)
  with pytest.raises(ValueError, match='no example of class 0'):
    build('r', source, server_examples=10, **_r(2))
  partition = build('r', source, server_examples=8, **_r(2))
  assert len(partition.examples) == 47


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'examples': np.array([0, 1, 1, 2])}, 'example 1 .*more than once'),
    ({'examples': np.array([0, 1, 2, 99])}, 'from 0 to 99'),
    ({'offsets': np.array([0, 2, 3])}, 'offsets'),
    ({'offsets': np.array([0, 4])}, 'offsets'),
    ({'client_names': ('a',)}, 'offsets'),
    ({'client_names': ('a', 'a')}, "client_names begins with .'a', 'a'"),
    ({'client_names': (1, 2)}, 'client_names begins with .1, 2'),
    ({'client_names': 'ab'}, 'client_names'),
    ({'client_names': (), 'offsets': np.array([0])}, 'client_names'),
    ({'examples': np.empty(0, int), 'offsets': np.zeros(3, int)}, 'offsets'),
    ({'examples': np.arange(4.0)}, r'examples is float64 \[4\]: give a vector'),
    ({'examples': np.full(4, np.nan)}, 'examples is float64'),
    ({'examples': np.arange(4)[:, None]}, r'examples is int64 \[4, 1\]'),
    ({'examples': np.arange(4).astype(str)}, 'examples is <U'),
    ({'offsets': np.array([0, 2.5, 4])}, 'offsets is float64'),
    ({'server_indices': np.empty(0)}, 'server_indices is float64'),
    ({'server_indices': np.arange(1, dtype=np.uint64)}, 'indices is uint64'),
    ({'labelled_indices': np.array([1.0])}, 'labelled_indices is float64'),
  ],
)
def test_an_inconsistent_partition_is_refused(source_of, changes, message):
  sound = build('r', source_of([0, 0, 1, 1]), **_r(2, 0.0))
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(sound, **changes)


def test_no_such_client(digits_of):
  partition = build('pooled', digits_of())
  with pytest.raises(ValueError, match='client=1'):
    partition.client_indices(1)


def test_a_partition_of_a_users_own(digits_of, paths):
  name = 'own_partition:PARTITION'
  summary = 'as many clients as asked for, in turn'
  assert partitions.PARTITIONS.find(name).description == summary
  given = {'rows': 4, 'server_examples': 10, 'mask_ratio': 0.5}
  partition = build(name, digits_of(), **given)
  for client in range(4):
    assert (partition.client_indices(client) % 4 == client).all()
  assert partition.arguments['rows'] == 4
  # What a run keeps of it is found again by the same name.
  split_manifest.write(partition, *paths, labels_at='dealt')
  loaded, _ = split_manifest.load(*paths)
  assert loaded.digest() == partition.digest()
  assert partitions.PARTITIONS.find(loaded.name).name == 'in_turn'
  (text, *_) = partition_report.lines(digits_of(), loaded)
  assert summary in text
  with pytest.raises(ValueError, match='rows must be an integer between 2'):
    partitions.build(name, digits_of(), rows=0, seed=0)
  with pytest.raises(TypeError, match='returned None: .* the class Assign'):
    partitions.build('own_partition:LOST', digits_of(), seed=0)
  with pytest.raises(TypeError, match='examples of Partition is of the type l'):
    dataclasses.replace(partition, examples=partition.examples.tolist())


@pytest.mark.parametrize(
  'priors, message',
  [
    ([[0.5, np.nan], [0.5, 0.5]], 'not all numbers of at least 0'),
    ([[0.5, 0.6], [0.5, 0.5]], 'sum to 1.1 instead of 1'),
    ([[0.5, 0.5, 0.0]] * 3, 'for 1 clients and 2 classes'),
  ],
)
def test_priors_of_a_users_own_sets(source_of, monkeypatch, priors, message):
  held = u_sets.lay_out(
    [[np.arange(4), np.arange(4, 8)]], np.array([priors]), ('a',), seed=0
  )
  own = PartitionSpec('own', 'x', lambda source, seed: held, in_sets=True)
  monkeypatch.setitem(partitions.PARTITIONS._choices, 'own_sets', own)
  with pytest.raises(ValueError, match=message):
    partitions.build('own_sets', source_of([0, 1] * 4), seed=0)


def test_integers_of_another_size_are_stored_as_others(digits_of, paths):
  partition = build('r', digits_of(), **_r(5))
  small = dataclasses.replace(
    partition, examples=partition.examples.astype(np.int32)
  )
  split_manifest.write(small, *paths, labels_at='clients')
  loaded, _ = split_manifest.load(*paths)
  assert loaded.digest() == small.digest() == partition.digest()


@pytest.mark.parametrize(
  'name, message',
  [
    ('no_such_module:SPEC', "there is no module 'no_such_module'"),
    (':SPEC', "'' is no name of a module"),
    ('own_partition:MISSING', "has no 'MISSING'"),
    ('own_partition:', "has no ''"),
    ('own_partition:ROWS', 'is no PartitionSpec, but of the type Setting'),
  ],
)
def test_own_partitions_that_are_none(name, message, refusal):
  with refusal(f'partition={name!r}', message):
    partitions.PARTITIONS.find(name)


def test_settings_of_all_partitions_have_defaults_that_they_allow():
  defaults = {s.name: s.default for s in partitions.SETTINGS}
  assert defaults == {
    'server_examples': 100,
    'labelled_examples': 100,
    'mask_ratio': 0.0,
    'shared_fraction': 0.05,
    'shared_share': 1.0,
    'labelled_fraction': None,
    'mask': 'fixed',
    'unknown_classes': None,
    'unknown_share': 0.2,
  }
  for setting in partitions.SETTINGS:
    assert setting.help.endswith('.')
    assert setting.default is None or setting.allows(setting.default)


def test_settings_are_checked_without_data():
  given = {'num_clients': 3, 'sets_per_client': 11, 'u_set_recipe': 'code'}
  settings = partitions.check_settings('u_sets', given)
  assert settings['sets_per_client'] == '11,11,11'
  assert settings['set_repeats'] == 'across_sets'
  assert 'noise_formula' not in settings
  with pytest.raises(ValueError, match='2 numbers for 3 clients'):
    partitions.check_settings('u_sets', {**given, 'sets_per_client': '9,9'})


@pytest.mark.parametrize('name', list(partitions.PARTITIONS))
def test_records_say_what_the_function_takes(name):
  spec = partitions.PARTITIONS[name]
  signature = inspect.signature(spec.builder).parameters
  others = {'source', 'seed', 'server_examples'}
  names = set(spec.setting_names)
  if spec.in_sets:
    # Noise joins the priors of all sets.
    names -= {'prior_noise', 'noise_formula'}
  assert names == set(signature) - others
  assert ('server_examples' in signature) != spec.in_sets
  for setting in spec.settings:
    assert setting.help.endswith('.')
    assert setting.default is None or setting.allows(setting.default)


@pytest.mark.parametrize(
  'name, given, expected',
  [
    ('pooled', {}, {'clients_per_round': 1, 'num_groups': 1}),
    ('native', {}, {'num_clients': None}),
    (
      'u_sets',
      {},
      {'num_clients': 5, 'clients_per_round': 5, 'set_repeats': 'none'},
    ),
    (
      'u_sets',
      {'num_clients': 500, 'u_set_recipe': 'code_rows'},
      {
        'num_clients': 5,
        'clients_per_round': 100,
        'set_repeats': 'across_sets',
      },
    ),
  ],
)
def test_what_a_partition_changes_of_a_run(name, given, expected):
  values = {'num_clients': 20, 'u_set_recipe': 'paper'}
  assert partitions.PARTITIONS.find(name).derive(values, given) == expected


@pytest.mark.parametrize(
  'name, settings', [('pooled', {}), ('native', {}), ('r', _r(3, 0.0))]
)
@pytest.mark.parametrize('own', [10, 45])
def test_the_servers_own_examples_go_to_nobody_else(
  source_of, name, settings, own
):
  rest = 60 - own
  ids = [f'w{i % 6}' for i in range(rest)] + [''] * own
  whole = source_of(np.arange(60) % 3, ids)
  source = dataclasses.replace(
    whole,
    train=whole.train.part(slice(rest)),
    server=whole.train.part(slice(rest, 60)),
  )
  held = partitions.build(name, source, seed=3, server_examples=own, **settings)
  assert sorted(held.server_indices) == list(range(rest, 60))
  assert sorted(held.examples) == list(range(rest))
  assert not held.held_out_client_names and '' not in held.client_names
  # A process without a server leaves them alone.
  alone = partitions.build(name, source, seed=3, **settings)
  assert not len(alone.server_indices)
  assert sorted(alone.examples) == list(range(rest))
  with pytest.raises(ValueError, match='server_examples=9 has no effect'):
    partitions.build(name, source, seed=3, server_examples=9, **settings)
