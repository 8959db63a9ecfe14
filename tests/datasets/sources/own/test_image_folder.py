"""Folders of pictures: what is read, how it is scaled, what is refused."""

import os
import shutil

import numpy as np
import psutil
import pytest
from PIL import Image, PngImagePlugin

from datasets.sources import catalogue
from datasets.sources.own import image_folder
from datasets.sources.source import UNKNOWN

RNG = np.random.default_rng(3)
SIDE = 8
# By name of client, class and file, the order in which examples come.
TRAIN = (
  *('north/_unlabelled/0.png', 'north/_unlabelled/1.jpg'),
  *('north/cat/0.png', 'north/cat/1.PNG', 'north/dog/0.png'),
  *('south/cat/0.png', 'south/dog/0.png', 'south/dog/1.jpeg'),
)
TEST = ('cat/a.png', 'dog/a.png', 'dog/b.png')


def pixels(*shape):
  return RNG.integers(0, 256, shape, np.uint8)


def write(path, array=None, **options):
  """Writes an image; without one, a grey square of the size asked for."""
  path.parent.mkdir(parents=True, exist_ok=True)
  array = pixels(SIDE, SIDE) if array is None else array
  Image.fromarray(array).save(path, **options)
  return array


@pytest.fixture
def folder(tmp_path):
  root = tmp_path / 'pictures'
  for name in TRAIN:
    write(root / 'train' / name)
  for name in TEST:
    write(root / 'test' / name)
  return root


def load(folder, side=SIDE):
  return catalogue.load(
    'image_folder',
    data_dir=str(folder),
    cache_dir=str(folder.parent / 'cache'),
    side=side,
  )


def cached(folder):
  return sorted((folder.parent / 'cache').rglob('*.npz'))


def read(path, mode='L'):
  with Image.open(path) as image:
    return np.asarray(image.convert(mode))


def test_reads_what_was_written_and_writes_nothing(folder):
  before = sorted(folder.rglob('*'))
  source = load(folder)
  assert sorted(folder.rglob('*')) == before
  for split, names in ((source.train, TRAIN), (source.test, TEST)):
    place = folder / ('train' if split is source.train else 'test')
    wanted = np.stack([read(place / name) for name in names])
    np.testing.assert_array_equal(split.examples, wanted[..., np.newaxis])
    assert split.examples.dtype == np.uint8 and split.labels.dtype == np.int32
  assert source.class_names == ('cat', 'dog') and source.num_classes == 2
  assert source.train.labels.tolist() == [UNKNOWN] * 2 + [0, 0, 1, 0, 1, 1]
  assert source.train.client_ids.tolist() == ['north'] * 5 + ['south'] * 3
  assert source.test.labels.tolist() == [0, 1, 1]
  assert source.test.client_ids is None and source.validation is None
  assert not source.mirrorable
  assert source.mean == pytest.approx([source.train.examples.mean() / 255])
  assert source.stddev == pytest.approx([source.train.examples.std() / 255])
  for part in (
    'in pictures: 8 train and 3 test',
    '2 clients',
    '2 of the training',
  ):
    assert part in source.title


def test_validation(folder):
  written = write(folder / 'validation' / 'dog' / 'x.png')
  source = load(folder)
  np.testing.assert_array_equal(source.validation.examples[0, ..., 0], written)
  assert source.validation.labels.tolist() == [1]
  assert len(source.test.labels) == 3
  assert '8 train, 1 validation and 3 test examples' in source.title


def test_classes_are_numbered_by_name_over_all_clients(folder):
  """The first client lacks the class that comes first."""
  write(folder / 'train' / 'south' / 'ant' / '0.png')
  source = load(folder)
  assert source.class_names == ('ant', 'cat', 'dog')
  assert source.test.labels.tolist() == [1, 2, 2]
  assert source.train.labels.tolist()[-4:] == [0, 1, 2, 2]


def test_names_are_equal_however_they_are_composed(folder):
  (folder / 'train/south/cat').rename(folder / 'train/south/ges\u00fcnd')
  (folder / 'train/north/cat').rename(folder / 'train/north/gesu\u0308nd')
  (folder / 'test/cat').rename(folder / 'test/gesu\u0308nd ')
  source = load(folder)
  assert source.class_names == ('dog', 'ges\u00fcnd')
  assert source.test.labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
  'name', ['.DS_Store', 'Thumbs.db', 'thumbs.db', 'desktop.ini']
)
def test_files_that_computers_leave_are_passed_over(folder, name):
  for place in ('', 'train', 'train/north', 'train/north/cat', 'test/dog'):
    (folder / place / name).write_text('')
  assert len(load(folder).train.labels) == 8


def test_one_colour_image_makes_all_rgb(folder):
  colour = write(folder / 'test/cat/a.png', pixels(SIDE, SIDE, 3))
  source = load(folder)
  assert source.train.examples.shape == (8, SIDE, SIDE, 3)
  grey = read(folder / 'train' / TRAIN[0])
  for channel in range(3):
    np.testing.assert_array_equal(source.train.examples[0, ..., channel], grey)
  np.testing.assert_array_equal(source.test.examples[0], colour)
  assert len(source.mean) == 3


def test_a_jpeg_called_png_is_read(folder):
  path = folder / 'test/dog/a.png'
  write(path, format='JPEG')
  np.testing.assert_array_equal(
    load(folder).test.examples[1, ..., 0], read(path)
  )


def test_second_load_decodes_nothing(folder, monkeypatch):
  first = load(folder)
  monkeypatch.setattr(Image, 'open', None)
  second = load(folder)
  assert second.version == first.version
  for split in ('train', 'test'):
    ours, theirs = getattr(first, split), getattr(second, split)
    np.testing.assert_array_equal(ours.examples, theirs.examples)
    np.testing.assert_array_equal(ours.labels, theirs.labels)


def test_caches_are_apart_by_content_name_and_side(folder):
  versions = {load(folder).version}
  path = folder / 'train' / TRAIN[0]
  before = path.stat()
  array = read(path).copy()
  array[0, 0] ^= 1
  write(path, array)
  # The content counts, not the time.
  os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
  versions.add(load(folder).version)
  # The order stays.
  path.rename(path.with_name('00.png'))
  versions.add(load(folder).version)
  versions.add(load(folder, side=9).version)
  assert len(versions) == len(cached(folder)) == 4


def test_version_does_not_depend_on_the_place(folder):
  first = load(folder).version
  moved = folder.rename(folder.with_name('moved'))
  assert load(moved).version == first


def test_damaged_cache_is_decoded_anew(folder):
  first = load(folder)
  (path,) = cached(folder)
  sound = path.read_bytes()
  path.write_bytes(sound[:300] + bytes([sound[300] ^ 1]) + sound[301:])
  again = load(folder)
  np.testing.assert_array_equal(again.train.examples, first.train.examples)
  assert path.read_bytes() == sound


def put(place, *array):
  return lambda folder: write(folder / place, *array)


def put_text(place, text=''):
  return lambda folder: (folder / place).write_text(text)


def put_image(place, mode, image_format=None):
  image = Image.new(mode, (8, 8))
  return lambda folder: image.save(folder / place, format=image_format)


def make(place):
  return lambda folder: (folder / place).mkdir()


def remove(*places):
  return lambda folder: [shutil.rmtree(folder / place) for place in places]


def cut_short(place):
  cut = lambda path: os.truncate(path, path.stat().st_size - 40)
  return lambda folder: cut(folder / place)


def empty(folder):
  shutil.rmtree(folder / 'test/dog')
  (folder / 'test/dog').mkdir()


def misspell(folder):
  (folder / NORTH / '_unlabelled').rename(folder / NORTH / '_unlabeled')


def nameless(folder):
  os.mkdir(os.fsencode(folder / 'train') + b'/\xff')


def leave_one_value(folder):
  for name in TRAIN:
    write(folder / 'train' / name, np.full((8, 8), 7, np.uint8))


def animate(folder):
  frames = [Image.fromarray(pixels(8, 8)) for _ in range(3)]
  frames[0].save(folder / PICTURE, save_all=True, append_images=frames[1:])


def deep_grey(folder):
  Image.fromarray(pixels(8, 8).astype(np.uint16) * 9).save(folder / PICTURE)


def deep_colour(folder):
  """Writes a PNG file of 16 bits, which Pillow itself cannot do in colour."""
  header = bytes([0, 0, 0, 8, 0, 0, 0, 8, 16, 2, 0, 0, 0])
  with (folder / PICTURE).open('wb') as stream:
    stream.write(b'\x89PNG\r\n\x1a\n')
    PngImagePlugin.putchunk(stream, b'IHDR', header)
    PngImagePlugin.putchunk(stream, b'IDAT', b'')
    PngImagePlugin.putchunk(stream, b'IEND', b'')


NORTH = 'train/north'
PICTURE = f'{NORTH}/cat/0.png'
JPEG = f'train/{TRAIN[1]}'


@pytest.mark.parametrize(
  'spoil, message',
  [
    # Folders.
    (remove('.'), 'pictures/train: no such folder.*test/<class>/'),
    (remove('test'), 'pictures/test: no such folder'),
    (empty, 'dog is empty'),
    (make('train/west'), 'train/west is empty.*remove'),
    (make(f'{NORTH}/ant'), 'north/ant is empty.*JPEG'),
    (make('validation'), 'validation is empty'),
    (make('val'), 'pictures/val is not read.*validation'),
    # A client's folder is forgotten.
    (put('train/cat/0.png'), '0.png is not a folder.*train/<client>/<class>/'),
    (put_text('test/notes'), 'notes is not a folder'),
    (nameless, 'is not UTF-8.*rename'),
    (make('test/cat '), 'cat .*have one name.*rename'),
    # Classes.
    (put('test/cow/0.png'), "test: folders.*class 'cow'.*unseen"),
    (put('validation/cow/0.png'), "validation: folders.*'cow'.*unseen"),
    (put('test/_unlabelled/0.png'), r'test/_unl.*train/<client>/_unlabelled/'),
    (put('validation/_unlabelled/0.png'), 'validation/_unlabelled has a name'),
    (misspell, 'north/_unlabeled has a name.*train/<client>/_unlabelled/'),
    (
      remove('train/north/dog', 'train/south/dog'),
      "train: folders.*one single class, 'cat'",
    ),
    (
      remove('train/south', f'{NORTH}/cat', f'{NORTH}/dog'),
      'train: folders.*no label at all',
    ),
    # Files.
    (
      put_text(f'{NORTH}/cat/0.gif'),
      r'cat/0.gif is no PNG or JPEG file \(.png, .jpg, .jpeg\).*convert',
    ),
    (make(f'{NORTH}/cat/0'), 'cat/0 is one folder too many: put its'),
    (
      lambda folder: (folder / NORTH / 'cat/9.png').symlink_to('nowhere'),
      'cat/9.png is no PNG',
    ),
    (put_text(PICTURE, 'x'), 'cat/0.png holds neither'),
    (put_text(PICTURE), 'cat/0.png holds neither'),
    (put_image(PICTURE, 'L', 'GIF'), 'cat/0.png holds neither .* JPEG.*conv'),
    (cut_short(PICTURE), 'cat/0.png is damaged.*replace it'),
    (cut_short(JPEG), '1.jpg is damaged or cut short.*replace it'),
    (put(PICTURE, pixels(3, 9)), '0.png is 9x3 pixels.*4x4 are the .*larger'),
    (deep_grey, 'has 16 bits per channel.*8 bit'),
    (deep_colour, 'has 16 bits per channel.*8 bit'),
    (animate, 'cat/0.png is an animation of 3 images.*save the one'),
    (put_image(JPEG, 'CMYK'), '1.jpg has colours .* kind CMYK.*grey or RGB'),
    (leave_one_value, 'pictures/train: images: found one single value'),
  ],
)
def test_refusals(folder, spoil, message, refusal):
  spoil(folder)
  with refusal(match=message):
    load(folder)


def test_a_file_that_cannot_be_read(folder, monkeypatch):
  def refuse(path):
    raise PermissionError(13, 'Permission denied', str(path))

  monkeypatch.setattr('pathlib.Path.read_bytes', refuse)
  with pytest.raises(ValueError, match='cannot be read .Permission denied.'):
    load(folder)


def test_too_many_pixels(folder, monkeypatch):
  monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 20)
  with pytest.raises(ValueError, match='0.png has too many pixels'):
    load(folder)


def test_more_than_the_free_memory_is_refused(folder, monkeypatch):
  memory = psutil.virtual_memory()._replace(available=100)
  monkeypatch.setattr(psutil, 'virtual_memory', lambda: memory)
  message = r'11 images of \[8, 8, 1\] pixels take 7.04e-07 GB'
  with pytest.raises(ValueError, match=message):
    load(folder)
  assert not cached(folder)


def test_wrong_layouts_are_found_without_opening_a_file(folder, monkeypatch):
  monkeypatch.setattr('pathlib.Path.read_bytes', None)
  monkeypatch.setattr(Image, 'open', None)
  _, labelled, _ = image_folder.check_files(str(folder))
  assert labelled.class_names == ('cat', 'dog')
  write(folder / 'test/cow/0.png')
  with pytest.raises(ValueError, match='cow'):
    image_folder.check_files(str(folder))


def test_tiny_images_are_refused(folder):
  with pytest.raises(ValueError, match='image_folder_side must be .* >= 4'):
    load(folder, side=3)


def test_the_servers_own_images(folder):
  before = load(folder)
  names = ('bird/a.png', 'cat/a.png', 'dog/a.png', 'dog/b.png')
  for name in names:
    write(folder / 'server' / name)
  source = load(folder)
  assert source.class_names == ('bird', 'cat', 'dog')
  assert len(source.server.labels) == 4 and source.version != before.version
  clients = source.train.examples
  np.testing.assert_array_equal(clients, before.train.examples)
  assert source.server.labels.tolist() == [0, 1, 2, 2]
  wanted = np.stack([read(folder / 'server' / name) for name in names])
  np.testing.assert_array_equal(source.server.examples[..., 0], wanted)
  given = {'data_dir': str(folder)}
  values = catalogue.SOURCES['image_folder'].derive({}, given)
  assert values['server_examples'] == 4
