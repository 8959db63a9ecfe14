"""A cluster on this machine is for this machine."""

import ipaddress
import json

import pytest
import pythons

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group('ray')]

_LISTENERS = """
import json, psutil
from tff_ssl.simulation import ray_cluster

ray_cluster.connect('local')
ray = ray_cluster.import_ray()
assert ray.get(ray.remote(lambda: 42).remote()) == 42
found = []
own = psutil.Process()
for process in (own, *own.children(recursive=True)):
  for connection in process.net_connections(kind='inet'):
    if connection.status == psutil.CONN_LISTEN:
      found.append([process.name(), connection.laddr.ip])
print(json.dumps(found))
"""


def test_s1_a_local_cluster_listens_on_the_loopback_alone():
  done = pythons.run('-c', _LISTENERS)
  assert done.returncode == 0, done.stderr
  found = json.loads(done.stdout.splitlines()[-1])
  # The head, the node and more.
  assert len(found) > 3
  for name, text in found:
    address = ipaddress.ip_address(text)
    # IPv4 may stand in the form of IPv6.
    address = getattr(address, 'ipv4_mapped', None) or address
    assert address.is_loopback, (name, text)


_LOSES_ITS_NODE = """
import psutil
from tff_ssl.simulation import ray_cluster

ray_cluster.connect('local')
ray_cluster.say_if_killed('Ray has ended this process.')
for process in psutil.Process().children():
  if process.name() == 'raylet':
    process.kill()
    process.wait()
ray_cluster.import_ray().put(bytes(1_000_000))
raise AssertionError('Ray has changed: nobody needs `say_if_killed`.')
"""


def test_a_process_that_ray_ends_says_so():
  done = pythons.run('-c', _LOSES_ITS_NODE)
  assert done.returncode == 1
  assert done.stderr.splitlines()[-1] == 'Ray has ended this process.'
