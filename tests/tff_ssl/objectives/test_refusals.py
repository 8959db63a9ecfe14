"""Settings out of range are refused where an objective is made."""

import pytest

from tff_ssl import objectives
from tff_ssl.augmentation import views

_BAD = {
  objectives.TwoExperts: [
    *(('threshold', 2.0), ('threshold', -0.1), ('consistency_weight', -1)),
    *(('confidence', 'mean'), ('experts', 'none'), ('expert_view', 'x')),
  ],
  objectives.InterClientConsistency: [
    *(('threshold', 2.0), ('inter_client_weight', -1.0), ('l1_weight', 'much')),
    *(('agreement_weight', float('nan')), ('sigma_psi_weight', -0.1)),
  ],
  objectives.FixAndMix: [
    *(('mixup_weight', -1.0), ('mixup_concentration', 0.0)),
    *(('mixup_concentration', -1.0), ('mixup_concentration', float('nan'))),
    ('mixup_concentration', 'even'),
  ],
  objectives.ConfidenceMix: [
    *(('threshold', -0.1), ('mix', 'labels')),
    *(('mixup_weight', -1.0), ('mixup_concentration', 0.0)),
  ],
  objectives.VirtualAdversarialProportions: [
    *(('vat_weight', -1), ('vat_radius', 0), ('vat_ramp', 'late')),
  ],
  objectives.SurrogateSets: [
    *(('surrogate_loss', 'by_hand'), ('test_prior', (0.7, 0.7))),
  ],
}
_SUPERVISED = objectives.Supervised(views.PlainViews())
_WRAPPERS = {
  'proximal_strength': objectives.Proximal,
  'l1_weight': objectives.L1Penalty,
  'supervised_weight': objectives.WeightedLoss,
}


@pytest.mark.parametrize(
  'objective, name, value',
  [(objective, *bad) for objective, all_ in _BAD.items() for bad in all_],
)
def test_of_objectives(objective, name, value):
  with pytest.raises(ValueError, match=f'{name} must ') as error:
    objective(views.PlainViews(), **{name: value})
  assert repr(value) in str(error.value)


@pytest.mark.parametrize('name', _WRAPPERS)
@pytest.mark.parametrize('value', [-0.1, float('nan'), 'much'])
def test_of_what_is_put_around_them(name, value):
  with pytest.raises(ValueError, match=f'{name} must be a .*number >= 0'):
    _WRAPPERS[name](_SUPERVISED, value)


@pytest.mark.parametrize('weight', [-0.1, float('nan'), '1'])
def test_of_a_proxy_task_beside_labels(weight):
  with pytest.raises(ValueError, match='ssjo_loss_weight must be a .*number'):
    objectives.JointlyOptimized(
      views.PlainViews(), objectives.Rotation(), weight
    )
