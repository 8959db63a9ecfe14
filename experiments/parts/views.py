"""The views that participants train on: settings, and a builder."""

from __future__ import annotations

from etils import epy

from tff_ssl.common.setting import Setting, needs, needs_process, unless

with epy.lazy_imports():
  from tff_ssl import augmentation

# Operations and strength.
_RAND_AUGMENT = {
  'rand_augment_1_10': (1, 10),
  'rand_augment_10_1': (10, 1),
  # No operation after the weak view, as in Figure 9 of FedLabel.
  'weak': (0, 1),
}
_PLAIN = 'plain'


_AUGMENTS = needs_process('augments')
_STRONG = needs_process('has_strong_view', ', it takes no strong view')
_CHANGES = unless('views', _PLAIN, 'leaves examples as they are')
_IMAGES = (
  _AUGMENTS,
  needs(
    'a data set of images',
    '--dataset={dataset} has {form}, not images',
    'form',
    'images',
  ),
  _CHANGES,
)

SETTINGS = (
  Setting(
    'views',
    str,
    'What a network sees of an example: auto, views for the form of the data; '
    'or plain, the example itself, standardised where it has no words.',
    default='auto',
    choices=('auto', _PLAIN),
    used_when=(_AUGMENTS,),
    needed_by='rows and texts whose class the views would change',
  ),
  Setting(
    'augmentation',
    str,
    'What follows mirroring and cropping in the strong view: fixmatch (2 '
    'operations of random strength and a grey square), rand_augment_N_M '
    '(RandAugment with N operations of strength M) or weak (nothing).',
    default='fixmatch',
    choices=('fixmatch', *_RAND_AUGMENT),
    used_when=(_STRONG, *_IMAGES),
    needed_by='FedLabel, Section 5.2 (rand_augment_10_1)',
  ),
  Setting(
    'augment_flip',
    bool,
    'Whether images are mirrored at random; by default, where that does not '
    'change their class.',
    used_when=_IMAGES,
  ),
  Setting(
    'augment_crop',
    int,
    'Largest random shift of images in each direction, in pixels; 0 for none. '
    'By default 3 of 28, 4 of 32, or else an eighth of the side.',
    at_least=0,
    used_when=_IMAGES,
  ),
  Setting(
    'augment_rotation',
    float,
    'Largest random rotation of images either way, in degrees; by default '
    'none.',
    at_least=0,
    at_most=180,
    used_when=_IMAGES,
  ),
)


def build(settings, process, source):
  """Returns the views of a run on a data set, which gives mean and form."""
  if process.needs.views == 'none' and source.form == 'images':
    return augmentation.PlainViews()
  if process.needs.views == 'none' or settings.views == _PLAIN:
    return unchanged(source.form, source.mean, source.stddev)
  return _BUILDERS[source.form](settings, source)


def unchanged(form: str, mean, stddev):
  """Returns views that leave examples as they are, but for standardisation.

  `mean` and `stddev` are `None` where examples are not standardised.
  """
  if form == 'tokens':
    return augmentation.TokenViews(0.0, 0.0, 0)
  if form == 'vectors':
    return augmentation.VectorViews(mean, stddev, noise=0.0, corruption=0.0)
  if mean is None:
    return augmentation.PlainViews()
  return augmentation.ImageViews(
    mean, stddev, flip=False, crop_padding=0, num_ops=0, cutout_size=0
  )


def _of_images(settings, source):
  side = min(source.train.examples.shape[1:3])
  if (settings.augment_crop or 0) >= side:
    raise ValueError(
      f'--augment_crop={settings.augment_crop} must be below {side}, the '
      'shorter side of the images.'
    )
  flip = settings.augment_flip
  common = {
    'mean': source.mean,
    'stddev': source.stddev,
    'flip': source.mirrorable if flip is None else flip,
    'crop_padding': settings.augment_crop,
    'rotation': settings.augment_rotation or 0.0,
    'fill': source.background,
  }
  # None where the process takes no strong view.
  if settings.augmentation in (None, 'fixmatch'):
    return augmentation.ImageViews(**common)
  num_ops, strength = _RAND_AUGMENT[settings.augmentation]
  return augmentation.rand_augment_views(num_ops, strength, **common)


_BUILDERS = {
  'images': _of_images,
  'vectors': lambda settings, source: augmentation.VectorViews(
    source.mean, source.stddev, columns=source.columns
  ),
  'tokens': lambda settings, source: augmentation.TokenViews(),
}
