"""What `cluster/` starts, as far as it can be checked without a cluster."""

import pathlib
import re
import subprocess

import pytest
import yaml

from experiments.config import flags, settings

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / 'cluster'


@pytest.fixture(scope='module')
def job():
  return yaml.safe_load((FOLDER / 'kuberay.yaml').read_text())


def pin(name):
  text = (ROOT / 'requirements/ray.txt').read_text()
  return re.search(f'^{name}==(.*)$', text, re.MULTILINE)[1]


def test_the_manifest_names_the_pinned_ray_and_one_image(job):
  cluster = job['spec']['rayClusterSpec']
  assert cluster['rayVersion'] == pin('ray')
  groups = [cluster['headGroupSpec'], *cluster['workerGroupSpecs']]
  pods = [group['template']['spec'] for group in groups]
  images = {pod['containers'][0]['image'] for pod in pods}
  assert images == {'REGISTRY/tff_ssl'}
  assert all(pod['volumes'] == pods[0]['volumes'] for pod in pods)


def test_the_command_of_the_manifest_can_be_run(job):
  words = job['spec']['entrypoint'].split()
  assert words[:3] == ['python', '-m', 'experiments.run']
  made = settings.make(flags.parse(['run', *words[3:]]))
  assert made.cluster == 'auto'
  for folder in (made.cache_dir, made.data_dir, made.run_dir):
    assert folder.startswith('/shared/')


def test_the_image_has_what_it_copies():
  text = (FOLDER / 'Dockerfile').read_text()
  assert 'COPY requirements/ requirements/\n' in text
  pins = re.findall(r'-r (\S+)', text)
  assert pins and all((ROOT / name).is_file() for name in pins)


def test_the_script_is_sound_bash():
  subprocess.run(['bash', '-n', FOLDER / 'slurm.sh'], check=True)
