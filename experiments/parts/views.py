"""The views that participants train on: settings, and a builder."""

from __future__ import annotations

from etils import epy

from tff_ssl.common.setting import Setting, condition, needs_process, unless

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


def _of(form: str):
  """Returns the condition that examples have a form."""

  @condition(f'a data set of {form}')
  def is_of(values):
    if values.get('form', form) == form:
      return None
    return f'--dataset={values["dataset"]} has {values["form"]}, not {form}'

  return is_of


_AUGMENTS = needs_process('augments')
_STRONG = needs_process('has_strong_view', ', it takes no strong view')
_CHANGES = unless('views', _PLAIN, 'leaves examples as they are')
_IMAGES = (_AUGMENTS, _of('images'), _CHANGES)
_VECTORS = (_AUGMENTS, _of('vectors'), _CHANGES)
_TOKENS = (_AUGMENTS, _of('tokens'), _CHANGES)

SETTINGS = (
  Setting(
    'views',
    str,
    'What a network sees of an example: auto, views for the form of the data '
    '(images, vectors or tokens); or plain, the example itself, standardised '
    'where it has no words.',
    default='auto',
    choices=('auto', _PLAIN),
    used_when=(_AUGMENTS,),
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
  Setting(
    'vector_noise',
    float,
    'Standard deviation of the noise in the views of vectors, in standard '
    'deviations of the feature.',
    default=0.1,
    at_least=0,
    used_when=_VECTORS,
  ),
  Setting(
    'vector_corruption',
    float,
    "Probability that a feature of the strong view is another example's.",
    default=0.3,
    at_least=0,
    at_most=1,
    used_when=(_STRONG, *_VECTORS),
  ),
  Setting(
    'token_dropout',
    float,
    'Probability that the weak view of a text lacks a word.',
    default=0.1,
    at_least=0,
    below=1,
    used_when=_TOKENS,
  ),
  Setting(
    'strong_token_dropout',
    float,
    'Probability that the strong view of a text lacks a word.',
    default=0.3,
    at_least=0,
    below=1,
    used_when=(_STRONG, *_TOKENS),
  ),
  Setting(
    'token_shuffle',
    int,
    'The most places by which the strong view of a text moves a word.',
    default=3,
    at_least=0,
    used_when=(_STRONG, *_TOKENS),
  ),
)


def build(settings, process, source):
  """Returns the views of a run.

  Args:
    settings: What has the values of `SETTINGS`.
    process: The `ProcessSpec`.
    source: The data set; its mean, background and orientation matter.

  Raises:
    ValueError: If `augment_crop` is no shift within the images.
  """
  augments = process.needs.views != 'none'
  changes = augments and settings.views != _PLAIN
  if source.form == 'vectors':
    return augmentation.VectorViews(
      source.mean,
      source.stddev,
      noise=(settings.vector_noise or 0.0) if changes else 0.0,
      # None where the process takes no strong view.
      corruption=(settings.vector_corruption or 0.0) if changes else 0.0,
      columns=source.columns,
    )
  if source.form == 'tokens':
    if not changes:
      return augmentation.TokenViews(0.0, 0.0, 0)
    return augmentation.TokenViews(
      settings.token_dropout,
      # None where the process takes no strong view.
      settings.strong_token_dropout or 0.0,
      settings.token_shuffle or 0,
    )
  if not augments:
    return augmentation.PlainViews()
  if not changes:
    return augmentation.ImageViews(
      source.mean,
      source.stddev,
      flip=False,
      crop_padding=0,
      num_ops=0,
      cutout_size=0,
    )
  return _of_images(settings, source)


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
