"""What protocols describe is what there is."""

import inspect

import pytest

from tff_ssl import augmentation, objectives, protocols
from tff_ssl.templates import prediction


def _parameters(function):
  return [
    (name, parameter.kind, parameter.default)
    for name, parameter in inspect.signature(function).parameters.items()
  ]


@pytest.mark.parametrize(
  'protocol, implementation, names',
  [
    (
      protocols.Predictor,
      prediction.Predictor,
      ('__call__', 'of_any_number', 'probe', 'at'),
    ),
    (protocols.Objective, objectives.Supervised, ('__call__',)),
    (protocols.Objective, objectives.TwoExperts, ('__call__',)),
  ],
)
def test_methods_are_those_of_the_protocol(protocol, implementation, names):
  for name in names:
    assert _parameters(getattr(implementation, name)) == _parameters(
      getattr(protocol, name)
    )


@pytest.mark.parametrize(
  'views', [augmentation.ImageViews, augmentation.PlainViews]
)
def test_views_take_as_many_arguments_as_the_protocol_says(views):
  for name in ('plain', 'weak', 'strong'):
    given = _parameters(getattr(views, name))
    assert len(given) == len(_parameters(getattr(protocols.Views, name)))
    assert all(default is inspect.Parameter.empty for *_, default in given)
