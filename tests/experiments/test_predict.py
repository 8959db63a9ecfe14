"""The command that classifies a user's files with an exported model."""

import io

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image

from experiments import predict


@pytest.fixture
def files(tmp_path):
  """An npz file of two images, an npy file of one, and a picture."""
  images = np.random.default_rng(0).integers(0, 256, (4, 4, 5), np.uint8)
  np.savez(tmp_path / 'a.npz', images=images[:2])
  np.save(tmp_path / 'b.npy', images[2:3, ..., np.newaxis] / 255)
  Image.fromarray(images[3]).save(tmp_path / 'c.png')
  paths = [str(tmp_path / name) for name in ('a.npz', 'b.npy', 'c.png')]
  return paths, images[..., np.newaxis]


@pytest.mark.dear
def test_a_row_for_each_image(exported, files, capsys):
  paths, images = files
  assert predict.main(['predict', str(exported), *paths]) == 0
  table = pd.read_csv(io.StringIO(capsys.readouterr().out))
  names = ['a', 'b', 'c,d']
  columns = [f'probability_{name}' for name in names]
  leading = ['file', 'index', 'predicted', 'confidence', 'unusual']
  assert list(table) == [*leading, *columns]
  assert table['file'].tolist() == [paths[0], *paths]
  assert table['index'].tolist() == [0, 1, 0, 0]
  classify = tf.saved_model.load(str(exported / 'classifier'))
  expected = tf.nn.softmax(classify(images)).numpy()
  np.testing.assert_allclose(table[columns], expected, rtol=1e-4, atol=1e-5)
  best = expected.argmax(axis=1)
  assert table['predicted'].tolist() == [names[place] for place in best]
  np.testing.assert_allclose(table['confidence'], expected.max(1), rtol=1e-4)


def test_a_file_with_the_table(exported, files, tmp_path, capsys):
  output = tmp_path / 'new' / 'out.csv'
  model = str(exported / 'classifier')
  arguments = ['predict', model, files[0][0], f'--output={output}']
  assert predict.main(arguments) == 0
  assert capsys.readouterr().out == f'2 predictions are in {output}\n'
  assert len(pd.read_csv(output)) == 2
  assert [path.name for path in output.parent.iterdir()] == ['out.csv']


@pytest.mark.parametrize(
  'arguments, message',
  [
    ([], 'MODEL is missing: name the folder of an exported model.'),
    (['{model}'], 'FILE is missing: name a file of examples.'),
    (['{here}', '{file}'], 'MODEL={here} holds no exported classifier: name'),
    (['{model}', '{file}', '{here}/d.npy'], 'FILE={here}/d.npy: no such file'),
    (['{model}', '{file}', '--output={file}'], '--output={file} does not end'),
    (
      ['{model}', '{file}', '--output={file}/x.csv'],
      '--output={file}/x.csv cannot be written: ',
    ),
  ],
)
def test_what_cannot_be_classified(
  arguments, message, exported, files, tmp_path, capsys
):
  words = {'model': exported, 'file': files[0][0], 'here': tmp_path}
  before = sorted(tmp_path.rglob('*'))
  argv = [argument.format(**words) for argument in arguments]
  assert predict.main(['predict', *argv]) == 2
  said = capsys.readouterr()
  assert said.err.startswith(f'error: {message.format(**words)}')
  assert said.err.count('\n') == 1 and not said.out
  assert sorted(tmp_path.rglob('*')) == before


@pytest.mark.parametrize('link', [None, 'symlink_to', 'hardlink_to'])
def test_the_input_is_not_written_over(link, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  given = tmp_path / 'new.csv'
  given.write_text('x,label\n1,a\n')
  output = tmp_path / (link or 'new.csv')
  if link:
    output = output.with_suffix('.csv')
    getattr(output, link)(given)
  arguments = ['predict', 'model', 'new.csv', f'--output={output}']
  assert predict.main(arguments) == 2
  assert 'the same file as FILE=new.csv' in capsys.readouterr().err
  assert given.read_text() == 'x,label\n1,a\n'
