"""The npz source: what it reads, and the many files that it refuses."""

import io
import os
import pathlib
import struct
import unicodedata
import zipfile

import numpy as np
import psutil
import pytest

from datasets.files import npz_files
from datasets.sources import catalogue
from datasets.sources.own import npz

RNG = np.random.default_rng(5)
IMAGES = RNG.integers(0, 256, [12, 6, 5, 1], np.uint8)
LABELS = np.arange(12) % 3


def write(folder, split, **changes):
  """Writes a good file with some arrays changed, or left out if None."""
  arrays = {'images': IMAGES, 'labels': LABELS} | changes
  kept = {key: value for key, value in arrays.items() if value is not None}
  np.savez_compressed(pathlib.Path(folder, f'{split}.npz'), **kept)


@pytest.fixture
def folder(tmp_path):
  write(tmp_path, 'train')
  write(tmp_path, 'test', images=IMAGES[:4], labels=LABELS[:4])
  return tmp_path


def load(folder):
  return catalogue.load('npz', data_dir=str(folder), cache_dir='unused')


def refused(folder, *fragments):
  """Asserts one ValueError of one line that holds all fragments."""
  with pytest.raises(ValueError) as caught:
    load(folder)
  message = str(caught.value)
  for fragment in fragments:
    assert fragment in message
  assert '\n' not in message


def test_reads_what_was_written(folder):
  source = load(folder)
  np.testing.assert_array_equal(source.train.examples, IMAGES)
  np.testing.assert_array_equal(source.train.labels, LABELS)
  np.testing.assert_array_equal(source.test.examples, IMAGES[:4])
  assert source.train.labels.dtype == np.int32
  assert source.train.client_ids is None and source.test.client_ids is None
  assert source.num_classes == 3 and not source.mirrorable
  assert source.mean == pytest.approx([IMAGES.mean() / 255])
  assert source.stddev == pytest.approx([IMAGES.std() / 255])


@pytest.mark.parametrize('dtype', ['>i8', 'u1', 'i2', 'u8'])
def test_any_integer_label_and_memory_order(folder, dtype):
  colour = RNG.integers(0, 256, [12, 4, 6, 3], np.uint8)
  labels = LABELS.astype(dtype)
  write(folder, 'train', images=np.asfortranarray(colour), labels=labels)
  write(folder, 'test', images=colour, labels=LABELS)
  source = load(folder)
  np.testing.assert_array_equal(source.train.examples, colour)
  np.testing.assert_array_equal(source.train.labels, LABELS)
  by_channel = colour.reshape(-1, 3) / 255
  assert source.mean == pytest.approx(by_channel.mean(axis=0).tolist())
  assert source.stddev == pytest.approx(by_channel.std(axis=0).tolist())


def test_training_images_may_have_no_label(folder):
  labels = np.where(np.arange(12) < 5, -1, LABELS)
  write(folder, 'train', labels=labels.astype(np.int8))
  source = load(folder)
  np.testing.assert_array_equal(source.train.labels, labels)
  assert source.num_classes == 3
  assert '5 of the training examples have no label' in source.title


def test_client_ids_are_seen_without_reading_an_array(folder):
  def is_native():
    given = {'data_dir': str(folder)}
    return npz.SPEC.derive({}, given).get('partition') == 'native'

  assert not is_native()
  write(folder, 'test', client_ids=LABELS)
  assert not is_native()
  write(folder, 'train', client_ids=LABELS)
  path = folder / 'train.npz'
  assert is_native()
  # Damage within an array is not looked at, only the directory at the end is.
  path.write_bytes(flip_in_images(path.read_bytes()))
  assert is_native()
  path.write_bytes(cut(path.read_bytes()))
  assert not is_native()
  path.unlink()
  assert not is_native()


def test_background_is_the_median_corner_of_grey_images(folder):
  images = np.full([12, 6, 5], 40, np.uint8)
  images[:, [0, 0, -1, -1], [0, -1, 0, -1]] = 200
  images[0, 0, 0] = 3
  write(folder, 'train', images=images)
  source = load(folder)
  assert source.background == 200
  np.testing.assert_array_equal(source.train.examples[..., 0], images)


def test_version_follows_the_bytes_of_both_files(folder):
  first = load(folder).version
  assert load(folder).version == first
  write(folder, 'test', images=IMAGES[1:5], labels=LABELS[1:5])
  second = load(folder).version
  write(folder, 'train', images=255 - IMAGES)
  assert len({first, second, load(folder).version}) == 3


def test_a_validation_file_is_read_where_there_is_one(folder):
  without = load(folder)
  assert without.validation is None
  write(folder, 'validation', images=IMAGES[4:9], labels=LABELS[4:9])
  source = load(folder)
  np.testing.assert_array_equal(source.validation.examples, IMAGES[4:9])
  np.testing.assert_array_equal(source.validation.labels, LABELS[4:9])
  np.testing.assert_array_equal(source.test.examples, IMAGES[:4])
  assert '12 train, 5 validation and 4 test' in source.title
  assert source.version != without.version
  (folder / 'validation.npz').unlink()
  (folder / 'validation.npz').mkdir()
  refused(folder, str(folder / 'validation.npz'))


def test_hostile_ids_come_back_exactly(folder, hostile_ids):
  # But for the way in which an accent is written; no name is nobody's.
  hostile_ids = [unicodedata.normalize('NFC', i) or 'x' for i in hostile_ids]
  write(folder, 'train', client_ids=np.array(hostile_ids))
  write(folder, 'test', client_ids=np.array(hostile_ids[::-1]))
  before = sorted(os.listdir(folder))
  source = load(folder)
  assert source.train.client_ids.tolist() == hostile_ids
  assert source.test.client_ids.tolist() == hostile_ids[::-1]
  assert sorted(os.listdir(folder)) == before


def test_integer_ids_become_strings_and_test_may_lack_them(folder):
  write(folder, 'train', client_ids=np.arange(12) - 20)
  source = load(folder)
  assert source.train.client_ids.tolist() == [str(i - 20) for i in range(12)]
  assert source.test.client_ids is None


def test_ids_of_the_other_byte_order(folder, hostile_ids):
  ids = np.array([unicodedata.normalize('NFC', i) or 'x' for i in hostile_ids])
  write(folder, 'train', client_ids=ids.astype(ids.dtype.newbyteorder()))
  assert load(folder).train.client_ids.tolist() == ids.tolist()


def ids_of_code(code):
  ids = np.array(['ab'] * 12)
  ids.view(np.uint32)[:] = code
  return ids


@pytest.mark.parametrize('dtype', ['f2', '>f4', 'f8'])
def test_floats_become_bytes(folder, dtype):
  for split in ('train', 'test'):
    write(folder, split, images=(IMAGES / 255).astype(dtype))
  source = load(folder)
  assert source.train.examples.dtype == np.uint8
  np.testing.assert_array_equal(source.train.examples, IMAGES)


def test_classes_may_have_names(folder):
  assert load(folder).class_names == ('0', '1', '2')
  write(folder, 'train', class_names=np.array(['cat', 'dog', 'Käfer']))
  assert load(folder).class_names == ('cat', 'dog', 'Käfer')
  write(folder, 'train', class_names=np.array(['cat', 'dog', 'dog']))
  refused(folder, 'class_names', '2 of them', 'a name of its own')
  write(folder, 'train', class_names=np.array(['cat', '', 'dog']))
  refused(folder, 'class_names', '2 of them', 'a name of its own')
  write(folder, 'train', class_names=np.array(['cat', 'dog']))
  refused(folder, 'train.npz: labels', '0..2', 'from 0 to 1')


def test_all_files_number_the_same_names(folder):
  names = np.array(['cow', 'cat', 'dog'])
  for splits in (['train'], ['test'], ['train', 'test']):
    for split in ('train', 'test'):
      write(folder, split, class_names=names if split in splits else None)
    assert load(folder).class_names == ('cow', 'cat', 'dog')
  write(folder, 'server', class_names=names[[1, 0, 2]])
  refused(folder, 'server.npz: class_names', 'cat, cow, dog, where', 'cow, cat')


@pytest.mark.parametrize('split', ['train', 'test', 'server'])
@pytest.mark.parametrize('label', ['bird', '0'])
def test_words_that_are_no_names_of_classes(folder, split, label):
  names = np.array(['cow', 'cat', 'dog'])
  for name in ('train', 'test', 'server'):
    labels = np.where(LABELS == 1, ' ', names[LABELS])
    if name != 'train':
      labels = names[LABELS]
    if name == split:
      labels = np.where(LABELS == 2, label, labels)
    write(folder, name, labels=labels, class_names=names)
  refused(
    folder, f'{split}.npz: labels: found {label!r} (image 2)', '(cow, cat, dog)'
  )
  write(folder, split, labels=names[LABELS], class_names=names)
  np.testing.assert_array_equal(load(folder).test.labels, LABELS)


@pytest.mark.parametrize('as_text', [False, True])
def test_how_no_label_is_written_is_told_in_the_form_of_labels(folder, as_text):
  for split, classes in (('train', 3), ('test', 2)):
    labels = np.arange(12) % classes
    write(folder, split, labels=labels.astype(str) if as_text else labels)
  (note,) = (note for note in load(folder).notes if 'of no other file' in note)
  assert ('leave the text empty' if as_text else 'write -1') in note


def test_named_classes_are_what_they_are_called(folder):
  write(folder, 'train', class_names=np.array(['1.0', 'a', 'A']))
  source = load(folder)
  assert source.class_names == ('1', 'a', 'A')
  np.testing.assert_array_equal(source.train.labels, LABELS)
  np.testing.assert_array_equal(source.test.labels, LABELS[:4])
  write(folder, 'train', class_names=np.array(['unknown', 'a', 'b']))
  assert load(folder).class_names[0] == 'unknown'


def test_classes_are_any_numbers_or_words(folder):
  for labels, names in (
    (LABELS * 50 + 1, ('1', '51', '101')),
    (np.array(['b', 'c', 'a'])[LABELS], ('a', 'b', 'c')),
    (np.array(['b', 'c', ''])[LABELS], ('b', 'c')),
  ):
    write(folder, 'train', labels=labels)
    write(folder, 'test', images=IMAGES[:2], labels=labels[:2])
    source = load(folder)
    assert source.class_names == names
    found = ['' if n < 0 else names[n] for n in source.train.labels]
    assert found == labels.astype(str).tolist()


def test_other_arrays_are_named_and_not_read(folder):
  assert load(folder).notes == ()
  write(folder, 'train', ages=np.array([{}] * 12), width=np.zeros(3))
  (note,) = load(folder).notes
  assert 'train.npz' in note and 'not read are ages, width' in note


def test_the_servers_own_examples(folder):
  unlabelled = {'labels': None, 'client_ids': np.array(list('abc') * 4)}
  write(folder, 'train', **unlabelled)
  refused(folder, "['client_ids', 'images']")
  write(folder, 'server', images=IMAGES[2:8], labels=LABELS[2:8])
  source = load(folder)
  assert len(source.server.labels) == 6 and source.num_classes == 3
  assert '12 train, 6 server and 4 test' in source.title
  assert '12 of the training examples have no label' in source.title
  clients, server = source.train, source.server
  np.testing.assert_array_equal(clients.examples, IMAGES)
  assert (clients.labels == -1).all() and len(set(clients.client_ids)) == 3
  np.testing.assert_array_equal(server.examples, IMAGES[2:8])
  np.testing.assert_array_equal(server.labels, LABELS[2:8])
  spec = catalogue.SOURCES['npz']
  values = spec.derive({}, {'data_dir': str(folder)})
  assert (values['server_examples'], values['partition']) == (6, 'native')
  write(folder, 'server', images=IMAGES[:3], labels=np.array([0, 1, -1]))
  refused(folder, 'server.npz', 'each example needs its label')
  write(folder, 'server', images=IMAGES[:2], labels=np.array([0, 1]))
  refused(folder, 'test.npz', "'2'", 'unseen')


@pytest.mark.parametrize('split', ['train', 'test'])
@pytest.mark.parametrize(
  'changes, fragments',
  [
    ({'images': None}, ["['labels']", 'must be images and labels']),
    ({'labels': None}, ["['images']"]),
    ({'client_id': LABELS}, ['client_id:', 'call it client_ids']),
    ({'image': IMAGES}, ['image:', 'call it images']),
    ({'images': IMAGES / 1.0}, ['images', 'floats from 0 to', 'divide']),
    ({'images': IMAGES / 255 - 0.1}, ['images', 'floats from -0.1 to']),
    ({'images': np.full([12, 6, 5], np.nan)}, ['360 pixels that are NaN']),
    ({'images': IMAGES / 255**2}, ['images', 'divided twice']),
    ({'images': IMAGES.astype(np.longdouble)}, ['images', 'float128']),
    ({'class_names': np.arange(3)}, ['class_names', 'int64', 'one for each']),
    ({'images': IMAGES.astype(np.int64)}, ['images', 'int64']),
    ({'images': IMAGES > 9}, ['images', 'bool']),
    ({'images': IMAGES[0, 0, 0]}, ['images', '(1,)']),
    ({'images': np.uint8(3)}, ['images', '()', '[N, H, W]']),
    ({'images': IMAGES[..., np.newaxis]}, ['images', '(12, 6, 5, 1, 1)']),
    ({'images': IMAGES[:0], 'labels': LABELS[:0]}, ['images', '(0, 6, 5, 1)']),
    ({'images': IMAGES[:, :0]}, ['images', '(12, 0, 5, 1)']),
    ({'images': IMAGES[..., :0]}, ['images', '(12, 6, 5, 0)']),
    ({'images': IMAGES.swapaxes(1, 3)}, ['images', 'channels come last']),
    ({'images': np.array([{}] * 12)}, ['images', 'pickled objects']),
    ({'labels': np.array([{}] * 12)}, ['labels', 'pickled objects']),
    ({'labels': LABELS - 2}, ['labels', '-2..0', 'from 0', 'by -1']),
    ({'labels': LABELS.astype(float)}, ['labels', 'float64', 'integers']),
    (
      {'labels': np.array(['NA', 'b'] * 6)},
      ["'NA' in 6 of 12", 'another name'],
    ),
    ({'labels': np.full(12, 255, np.uint8)}, ['255 in 12 of 12', 'int64']),
    ({'images': IMAGES // 128}, ['images', '0 and 1', 'by 255']),
    ({'labels': LABELS > 0}, ['labels', 'bool']),
    ({'labels': LABELS[:-1]}, ['labels', '(11,)', 'there are 12 images']),
    ({'labels': LABELS[:, np.newaxis]}, ['labels', '(12, 1)', 'ravel']),
    ({'labels': np.eye(3, dtype=int)[LABELS]}, ['(12, 3)', 'argmax']),
    ({'labels': np.int64(3)}, ['labels', '()']),
    ({'client_ids': np.array([b'a'] * 12)}, ['client_ids', 'unicode']),
    ({'client_ids': np.array(['a', None] * 6)}, ['client_ids', 'pickled']),
    ({'client_ids': np.ones(12)}, ['client_ids', 'float64']),
    ({'client_ids': np.array(['a'] * 9)}, ['client_ids', '(9,)']),
    ({'client_ids': ids_of_code(0xDC80)}, ['client_ids', 'not unicode']),
    ({'client_ids': ids_of_code(0x7FFFFFFF)}, ['client_ids', 'not unicode']),
  ],
)
def test_wrong_arrays_are_refused(folder, split, changes, fragments):
  write(folder, 'train', client_ids=LABELS)
  write(folder, split, **changes)
  refused(folder, str(folder / f'{split}.npz'), *fragments)


@pytest.mark.parametrize(
  'split, changes, fragments',
  [
    ('test', {'images': IMAGES[:, 1:]}, ['[5, 5, 1]', '[6, 5, 1]']),
    ('test', {'labels': LABELS + 1}, ['labels', "'3'", 'unseen in train']),
    ('train', {'labels': LABELS * 0}, ["one single class, '0'"]),
    ('train', {'labels': np.full(12, -1)}, ['no label at all']),
    ('test', {'labels': [-1] * 5 + [0] * 7}, ['5 of 12 without', 'to train']),
    ('test', {'client_ids': LABELS}, ['client_ids', 'none in train']),
    ('train', {'hospital': LABELS}, ['hospital', 'call it client_ids']),
    ('validation', {'client_ids': LABELS}, ['client_ids', 'none in train']),
    ('validation', {'images': IMAGES[:, 1:]}, ['[5, 5, 1]', '[6, 5, 1]']),
    ('validation', {'labels': LABELS - 1}, ['4 of 12 without']),
    ('validation', {'labels': LABELS + 1}, ["'3'", 'unseen in train']),
    ('validation', {'labels': None}, ['labels']),
    ('train', {'images': np.full_like(IMAGES, 7)}, ['one single value']),
  ],
)
def test_files_that_do_not_fit_are_refused(folder, split, changes, fragments):
  write(folder, split, **changes)
  refused(folder, str(folder / f'{split}.npz'), *fragments)


def cut(data):
  return data[: len(data) // 2]


def flip_in_images(data):
  start = data.index(b'images.npy')
  flipped = data[start + 200] ^ 255
  return data[: start + 200] + bytes([flipped]) + data[start + 201 :]


def npy_instead(data):
  stream = io.BytesIO()
  np.save(stream, IMAGES)
  return stream.getvalue()


def encrypted(data):
  """Sets the encryption bit of every member."""
  data = bytearray(data)
  for signature, offset in [(b'PK\3\4', 6), (b'PK\1\2', 8)]:
    at = data.find(signature)
    while at >= 0:
      data[at + offset] |= 1
      at = data.find(signature, at + 4)
  return bytes(data)


@pytest.mark.parametrize('split', ['train', 'test', 'validation'])
@pytest.mark.parametrize(
  'damage',
  [
    lambda data: b'',
    lambda data: b'garbage' * 100,
    cut,
    lambda data: data[:-1],
    flip_in_images,
    npy_instead,
    encrypted,
  ],
)
def test_damaged_files_are_refused(folder, split, damage):
  path = folder / f'{split}.npz'
  write(folder, split)
  path.write_bytes(damage(path.read_bytes()))
  refused(folder, str(path), 'write it with np.savez')


@pytest.mark.parametrize('split', ['train', 'test'])
def test_absent_file_or_a_folder_names_its_path(folder, split):
  path = folder / f'{split}.npz'
  path.unlink()
  refused(folder, str(path), 'no such file')
  path.mkdir()
  refused(folder, str(path), 'no such file')


def npy(key, array, declared_shape=None):
  """Returns the name and the bytes of an array in an npz file."""
  stream = io.BytesIO()
  header = np.lib.format.header_data_from_array_1_0(array)
  header['shape'] = declared_shape or array.shape
  np.lib.format.write_array_header_1_0(stream, header)
  return f'{key}.npy', stream.getvalue() + array.tobytes()


GOOD_IMAGES, GOOD_LABELS = npy('images', IMAGES), npy('labels', LABELS)


@pytest.mark.filterwarnings('ignore:Duplicate name')
@pytest.mark.parametrize(
  'members, fragments',
  [
    *(
      ([npy('images', IMAGES, shape), GOOD_LABELS], ['the header declares'])
      for shape in [(10**9, 28, 28), (11, 6, 5), (-3, -4)]
    ),
    ([GOOD_IMAGES, GOOD_LABELS, GOOD_LABELS], ['a key twice']),
    *(
      ([GOOD_IMAGES, ('labels.npy', content)], ['labels: no plain npy array'])
      for content in (
        *(b'', b'no npy', b'\x93NUMPY\x01\x00\xff\xff{'),
        b'\x93NUMPY\x09\x00',
      )
    ),
  ],
)
def test_members_that_are_no_arrays(folder, members, fragments):
  with zipfile.ZipFile(folder / 'train.npz', 'w') as archive:
    for name, content in members:
      archive.writestr(name, content)
  refused(folder, str(folder / 'train.npz'), *fragments)


def test_b2_pickle_is_never_run(folder, tmp_path):
  canary = tmp_path / 'canary'

  class Payload:
    def __reduce__(self):
      return (pathlib.Path.touch, (canary,))

  payload = np.array([Payload()] * 12, dtype=object)
  write(folder, 'train', images=payload)
  refused(folder, 'pickled objects')
  assert not canary.exists()
  # The negative control: loaded with pickle, the payload does run.
  np.load(folder / 'train.npz', allow_pickle=True)['images']
  assert canary.exists()


def test_b2_zip_bomb_is_refused_unread(folder, monkeypatch):
  monkeypatch.setattr(npz_files, 'MAX_BYTES', 100 * 10**6)
  path = folder / 'train.npz'
  write(folder, 'train', images=np.zeros([12, 3_000, 3_000], np.uint8))
  assert path.stat().st_size < 500_000
  before = psutil.Process().memory_info().rss
  with pytest.raises(ValueError, match='0.108 GB uncompressed') as caught:
    npz.load(str(folder), 'unused')
  assert str(path) in str(caught.value)
  assert psutil.Process().memory_info().rss - before < 50 * 10**6


def test_declared_size_of_both_files_counts(folder, monkeypatch):
  declared = 0
  for split in ('train', 'test'):
    with zipfile.ZipFile(folder / f'{split}.npz') as archive:
      declared += sum(member.file_size for member in archive.infolist())
  monkeypatch.setattr(npz_files, 'MAX_BYTES', declared)
  npz.load(str(folder), 'unused')
  monkeypatch.setattr(npz_files, 'MAX_BYTES', declared - 1)
  with pytest.raises(ValueError, match='uncompressed'):
    npz.load(str(folder), 'unused')


def test_more_than_the_standard_limit_is_refused(folder):
  path = folder / 'train.npz'
  data = bytearray(path.read_bytes())
  # The uncompressed size of the first member in the zip's directory.
  struct.pack_into('<I', data, data.index(b'PK\1\2') + 24, 4_100_000_000)
  path.write_bytes(data)
  refused(folder, '4.1 GB uncompressed', 'the limit is 4 GB')


def test_more_than_the_free_memory_is_refused(folder, monkeypatch):
  memory = psutil.virtual_memory()._replace(available=100)
  monkeypatch.setattr(psutil, 'virtual_memory', lambda: memory)
  refused(folder, 'uncompressed', '1e-07 GB of memory are free')


def test_files_beside(folder):
  np.savez(folder / 'more.npz', x=IMAGES)
  assert load(folder).notes == (f'{folder}: not read are more.npz.',)
  for name in ('Server.npz', 'val.npz', 'train.csv'):
    (folder / name).write_text('')
    refused(folder, f'{name} is not read: call it train, test')
    (folder / name).unlink()
