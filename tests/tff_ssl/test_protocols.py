"""What protocols describe is what there is."""

import inspect

import pytest

from tff_ssl import augmentation, objectives, protocols


def _parameters(function):
  return [
    (name, parameter.kind, parameter.default)
    for name, parameter in inspect.signature(function).parameters.items()
  ]


@pytest.mark.parametrize(
  'objective', [objectives.Supervised, objectives.TwoExperts]
)
def test_objectives_take_what_the_protocol_says(objective):
  given = _parameters(objective.__call__)
  assert given == _parameters(protocols.Objective.__call__)


@pytest.mark.parametrize(
  'views', [augmentation.ImageViews, augmentation.PlainViews]
)
def test_views_take_as_many_arguments_as_the_protocol_says(views):
  for name in ('plain', 'weak', 'strong'):
    given = _parameters(getattr(views, name))
    assert len(given) == len(_parameters(getattr(protocols.Views, name)))
    assert all(default is inspect.Parameter.empty for *_, default in given)
